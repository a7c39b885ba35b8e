"""`stompbroker last-values`: what newcomers to a topic get first; look at it, or take it away.

Law: values are removed only with --yes, or after a person has seen how many and agreed. A signal stops the work between
two portions, never inside one.
"""

import base64
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from stompbroker.cli.message_content import BodyOption, content_lines, write_body
from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory, read_pattern, read_topic
from stompbroker.cli.outcome import CommandFailed, ExitCode, ask_broker, require_consent, run, stopped_by_signal
from stompbroker.cli.terminal import print_uncut, progress_bar, say, say_json, table_of
from stompbroker.cli.wording import counted, labelled, moment, relative, size
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from rich.table import Table

#: Values in one answer, and values removed in one request: the most the broker gives and takes.
PAGE = 1_000
PORTION = 1_000
#: What the options of --sort are to the broker.
_SORTS = {"name": "topic", "newest": "-published_at", "largest": "-body_bytes"}
SortOption = Annotated[Literal["name", "newest", "largest"], typer.Option(help="Which come first.")]
LimitOption = Annotated[int, typer.Option(min=1, help="Show this many.")]


class _ListsByDefault(TyperGroup):
    """`last-values prices.>` is `last-values list prices.>`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["list", *args])


commands = typer.Typer(rich_markup_mode="rich", cls=_ListsByDefault, subcommand_metavar="[PATTERN | COMMAND [ARGS]...]")


@commands.callback(invoke_without_command=True)
def _about(
    context: typer.Context,
    sort: SortOption = "name",
    limit: LimitOption = 100,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the last values of topics, which newcomers get first; or look at one, or remove some.

    A publisher sets one with the header retain:set and removes it with retain:remove; [bold]last_value[/] in a
    [bold]topics[/] table of the settings makes one of each message.

    Examples:

    $ stompbroker last-values
    $ stompbroker last-values "prices.>" --sort newest
    $ stompbroker last-values show prices.eur
    $ stompbroker last-values remove "prices.>"
    """
    # "last-values --data DIR show TOPIC" means the same as "last-values show TOPIC --data DIR".
    context.obj = {"data": data, "config": config, "as_json": as_json, "sort": sort, "limit": limit}
    if context.invoked_subcommand is None:
        _print_list(data_directory(data, config), None, sort, limit, as_json)


@commands.command("list")
def _list(
    context: typer.Context,
    pattern: Annotated[
        str | None, typer.Argument(metavar="PATTERN", help="Only those of these topics, such as prices.>.")
    ] = None,
    sort: Annotated[Literal["name", "newest", "largest"] | None, typer.Option(help="Which come first.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show this many.")] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the last values of topics. The word list can be left out.

    Examples:

    $ stompbroker last-values list "prices.>" --sort largest
    """
    given = context.obj
    _print_list(
        data_directory(data or given["data"], config or given["config"]),
        None if pattern is None else str(read_pattern(pattern)),
        sort or given["sort"],
        limit or given["limit"],
        as_json or given["as_json"],
    )


@commands.command("show")
def _show(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Whose: prices.eur or /topic/prices.eur.")],
    body: BodyOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last value of a topic: its headers and its body.

    With --body the body is written and nothing else is shown.

    Examples:

    $ stompbroker last-values show prices.eur
    $ stompbroker last-values show prices.eur --body - | jq .
    """
    is_for_programs = as_json or context.obj["as_json"]
    if is_for_programs and body is not None:
        raise typer.BadParameter("cannot be combined with --json, which has the body", param_hint="--body")
    directory = data_directory(data or context.obj["data"], config or context.obj["config"])
    value = ask_broker(directory, "last_value", topic=read_topic(topic).key)
    content = base64.b64decode(value["body"])
    if body is not None:
        write_body(content, body)
    elif is_for_programs:
        say_json(value)
    else:
        title, *lines = value_lines(value, content, datetime.now(UTC))
        say(title, bold=True)
        say(*lines)


@commands.command("remove")
def _remove(
    context: typer.Context,
    pattern: Annotated[str, typer.Argument(metavar="TOPIC|PATTERN", help="Whose: prices.eur, or prices.> for many.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the last value of a topic, or those of all topics of a pattern. Nothing is published.

    Newcomers get none then, until somebody sets the next one. You are asked first.

    Examples:

    $ stompbroker last-values remove prices.eur
    $ stompbroker last-values remove "prices.>" --yes
    """
    wanted = str(read_pattern(pattern))
    directory = data_directory(data or context.obj["data"], config or context.obj["config"])
    number = ask_broker(directory, "last_values", pattern=wanted, limit=1)["total"]
    if number and not yes:
        require_consent(
            f"{_of(number, wanted)} would be gone for good",
            to="have that done",
            question="Do it?",
            otherwise="Nothing was removed.",
        )
    removed, is_interrupted = run(_purge, directory, wanted, number) if number else (0, False)
    if as_json or context.obj["as_json"]:
        say_json({"pattern": wanted, "removed": removed, "is_interrupted": is_interrupted})
    elif not number:
        say(f"There are {_of(0, wanted)}; nothing was removed.")
    else:
        say(f"Interrupted. Removed {_of(removed, wanted)}." if is_interrupted else f"Removed {_of(removed, wanted)}.")
    if is_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _of(number: int, pattern: str) -> str:
    return f"{counted(number, 'last value') if number else 'no last values'} of {visible(pattern)}"


async def _purge(directory: Path, pattern: str, number: int) -> tuple[int, bool]:
    """How many were removed, and whether a signal came before the rest. Raises CommandFailed, which says it, too."""
    import trio

    from stompbroker.cli.control_client import ControlRefused, NoBroker, ask

    is_told_to_stop = trio.Event()
    removed, after, is_complete = 0, "", False
    with progress_bar("removing" if sys.stderr.isatty() else None, number) as show:
        async with stopped_by_signal(is_told_to_stop.set):
            while not (is_complete or is_told_to_stop.is_set()):
                try:
                    answer = await ask(directory, "purge_last_values", pattern=pattern, after=after, limit=PORTION)
                except (ControlRefused, NoBroker) as error:
                    raise CommandFailed(f"{error}\n  {counted(removed, 'value')} had been removed.") from error
                removed += answer["purged"]
                after, is_complete = answer["after"], answer["is_complete"]
                show(removed)
    return removed, not is_complete


def _print_list(directory: Path, pattern: str | None, sort: str, limit: int, as_json: bool) -> None:
    total, values = run(_first_values, directory, pattern, _SORTS[sort], limit)
    if as_json:
        say_json({"total": total, "last_values": values})
    elif values:
        print_uncut(value_table(values, datetime.now(UTC)))
        if total > len(values):
            say(f"… and {total - len(values):,} more; --limit shows more than {len(values):,}.")
    elif pattern is not None:
        say(f"There are {_of(0, pattern)}.")
    else:
        say(
            "There are no last values. A publisher sets one with the header retain:set, for example:",
            "  stompbroker publish /topic/prices.eur 1.1 --header retain:set",
        )


async def _first_values(
    directory: Path, pattern: str | None, sort: str, limit: int
) -> tuple[int, list[dict[str, Any]]]:
    """How many there are, and the first of them."""
    from stompbroker.cli.control_client import connect

    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {"sort": sort} | ({} if pattern is None else {"pattern": pattern})
    async with connect(directory) as control:
        while True:
            answer = await control.call("last_values", limit=min(PAGE, limit - len(found)), **params)
            found += answer["last_values"]
            params["cursor"] = answer["next_cursor"]
            if params["cursor"] is None or len(found) >= limit:
                return answer["total"], found


def value_table(values: Iterable[Mapping[str, Any]], now: datetime) -> "Table":
    return table_of(
        values,
        {
            "topic": lambda one: visible(one["topic"]),
            "published": lambda one: relative(one["published_at"], now),
            "expires": lambda one: relative(one["expires_at"], now),
            "size": lambda one: size(one["body_bytes"]),
            "stored": lambda one: "yes" if one["stored"] else "no",
            "message id": lambda one: one["message_id"],
        },
        right=("size",),
    )


def value_lines(value: Mapping[str, Any], body: bytes, now: datetime) -> Iterator[str]:
    yield f"Last value of {visible(value['topic'])}"
    pairs = {
        "published": moment(value["published_at"], now),
        "expires": moment(value["expires_at"], now) or "never",
        "stored": "yes" if value["stored"] else "no: it ends with the broker's process",
        "message id": readable(value["message_id"]),
    }
    yield from labelled(pairs.items(), width=None)
    yield from content_lines(value["headers"], body)
