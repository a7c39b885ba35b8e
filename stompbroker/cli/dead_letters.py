"""`stompbroker dead-letters`: what could not be delivered; look at it, send it again, or delete it.

Law: asks over the control socket and shows the answer. Letters are moved only when a person has said so after seeing
how many, or with --yes; a program that did not say so is refused.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, require_utf8
from stompbroker.cli.terminal import open_console, say, say_json

if TYPE_CHECKING:
    from rich.table import Table

    from stompbroker.cli.dead_letter_chunks import Selection

__all__ = ["make_dead_letters"]

#: Letters that a list shows unless it is told otherwise.
SHOWN_LETTERS = 100

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic they died in: orders, /topic/orders or DLQ.orders.")
]
SubscriptionOption = Annotated[
    str | None, typer.Option("--subscription", "-s", metavar="KEY", help="Only those that this subscription left.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only those with this text somewhere in their reason.")
]
MessageOption = Annotated[
    str | None, typer.Option("--message-id", metavar="ID", help="Only those about this message, by its original id.")
]
OffsetOption = Annotated[
    int | None, typer.Option("--offset", metavar="N", min=0, help="Only the one at this offset, as the list has it.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Target(StrEnum):
    SUBSCRIBER = "subscriber"
    TOPIC = "topic"


def make_dead_letters() -> typer.Typer:
    """The command and what is below it."""
    application = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)
    application.callback()(_about)
    application.command("list")(_list)
    application.command("show")(_show)
    application.command("redrive")(_redrive)
    application.command("purge")(_purge)
    return application


def _about() -> None:
    """What could not be delivered: look at it, send it again, or delete it.

    A message that a subscription has failed over too often, or refused for good, is kept as a dead letter
    in /topic/DLQ.TOPIC. Others who subscribe to its topic do not notice.

    Examples:

    $ stompbroker dead-letters list
    $ stompbroker dead-letters show orders 17
    $ stompbroker dead-letters redrive orders --subscription billing/invoices --rate 50
    $ stompbroker dead-letters purge orders --reason "no such customer"
    """


def _list(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="The topic they died in; without it, the topics that have any."),
    ] = None,
    subscription: SubscriptionOption = None,
    reason: ReasonOption = None,
    message_id: MessageOption = None,
    offset: OffsetOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show this many, the oldest first.")] = SHOWN_LETTERS,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the dead letters of a topic, or the topics that have any.

    Examples:

    $ stompbroker dead-letters list
    $ stompbroker dead-letters list orders
    $ stompbroker dead-letters list orders --subscription billing/invoices --reason timeout --limit 1000
    $ stompbroker dead-letters list orders --json | jq .letters[].original_message_id
    """
    from stompbroker.cli.outcome import run

    if topic is None:
        given = {"--subscription": subscription, "--reason": reason, "--message-id": message_id, "--offset": offset}
        for option, value in given.items():
            if value is not None:
                raise typer.BadParameter("needs a TOPIC to look in", param_hint=option)
        _print_topics(run(_ask, _directory(data, config), "dead_letter_topics"), as_json)
        return
    selection = _selection(topic, subscription, reason, message_id, offset)
    # One more than is shown tells whether there are more.
    letters = run(_first_letters, _directory(data, config), selection, limit + 1)
    _print_letters(selection, letters[:limit], has_more=len(letters) > limit, as_json=as_json)


def _show(
    topic: TopicArgument,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Which one: as in the first column.")],
    body: Annotated[
        str | None,
        typer.Option("--body", metavar="FILE", help="Write the body, byte by byte, to this file; - is stdout."),
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter: where it comes from, what became of it, its headers and its body.

    With --body the body is written and nothing else is shown.

    Examples:

    $ stompbroker dead-letters show orders 17
    $ stompbroker dead-letters show orders 17 --body order.xml
    $ stompbroker dead-letters show orders 17 --body - | jq .
    """
    from stompbroker.cli.outcome import run

    if as_json and body is not None:
        raise typer.BadParameter("cannot be combined with --json, which has the body", param_hint="--body")
    origin = _selection(topic).topic
    letter = run(_ask, _directory(data, config), "dead_letter", {"topic": origin, "offset": offset})
    content = base64.b64decode(letter["body"])
    if body is not None:
        _write_body(content, body)
    elif as_json:
        say_json(letter)
    else:
        _print_letter(letter, origin, content)


def _redrive(
    topic: TopicArgument,
    subscription: SubscriptionOption = None,
    reason: ReasonOption = None,
    message_id: MessageOption = None,
    offset: OffsetOption = None,
    to: Annotated[
        Target,
        typer.Option(help="subscriber: only to the subscription that failed; topic: to all its topic has by then."),
    ] = Target.SUBSCRIBER,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="At most this many letters a second.", show_default="as fast as possible"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Redrive this many, the oldest first.", show_default="all")
    ] = None,
    yes: YesOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters again as the messages they were, with all attempts before them.

    Each leaves the dead letters as it is sent. What dies meanwhile is left alone.
    Ctrl-C stops it; the exit code is 1 if any could not be redriven.

    Examples:

    $ stompbroker dead-letters redrive orders
    $ stompbroker dead-letters redrive orders --offset 17
    $ stompbroker dead-letters redrive orders --subscription billing/invoices --rate 50 --yes
    $ stompbroker dead-letters redrive orders --to topic --limit 10
    """
    from stompbroker.cli.dead_letter_chunks import Move
    from stompbroker.cli.dead_letter_orders import Order, carry_out
    from stompbroker.visible_text import visible

    selection = _selection(topic, subscription, reason, message_id, offset)
    everybody = f"everybody who subscribes to /topic/{visible(selection.topic)}"
    order = Order(
        move=Move(method="redrive_dead_letters", done="redriven", params={"to": to.value}, rate=rate),
        consequence=f"would be sent to {'the subscriptions that failed' if to is Target.SUBSCRIBER else everybody}",
        doing="redriving",
    )
    carry_out(order, selection, _directory(data, config), limit=limit, is_agreed=yes, as_json=as_json)


def _purge(
    topic: TopicArgument,
    subscription: SubscriptionOption = None,
    reason: ReasonOption = None,
    message_id: MessageOption = None,
    offset: OffsetOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Delete this many, the oldest first.", show_default="all")
    ] = None,
    yes: YesOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete dead letters for good.

    Examples:

    $ stompbroker dead-letters purge orders
    $ stompbroker dead-letters purge orders --reason "no such customer" --yes
    """
    from stompbroker.cli.dead_letter_chunks import Move
    from stompbroker.cli.dead_letter_orders import Order, carry_out

    selection = _selection(topic, subscription, reason, message_id, offset)
    order = Order(
        move=Move(method="purge_dead_letters", done="purged"), consequence="would be gone for good", doing="purging"
    )
    carry_out(order, selection, _directory(data, config), limit=limit, is_agreed=yes, as_json=as_json)


def _directory(data: Path | None, config: Path | None) -> Path:
    from stompbroker.config import load

    return load(config, flags={} if data is None else {"data": data}).data


def _selection(
    topic: str,
    subscription: str | None = None,
    reason: str | None = None,
    message_id: str | None = None,
    offset: int | None = None,
) -> "Selection":
    from stompbroker.cli.dead_letter_chunks import Selection
    from stompbroker.cli.topic_names import read_origin

    for text, parameter in ((subscription, "--subscription"), (reason, "--reason"), (message_id, "--message-id")):
        if text is not None:
            require_utf8(text, parameter)
    return Selection(
        topic=read_origin(topic), subscription=subscription, reason=reason, message_id=message_id, offset=offset
    )


async def _ask(directory: Path, method: str, params: dict[str, Any] | None = None) -> Any:
    from stompbroker.cli.control_client import connect

    async with connect(directory) as control:
        return await control.call(method, **(params or {}))


async def _first_letters(directory: Path, selection: "Selection", number: int) -> list[dict[str, Any]]:
    from stompbroker.cli.dead_letter_chunks import find_letters

    found: list[dict[str, Any]] = []
    async for page in find_letters(directory, selection):
        found += page
        if len(found) >= number:
            break
    return found[:number]


def _print_topics(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say_json(answer)
    elif answer["topics"]:
        from stompbroker.cli.dead_letter_format import topic_table

        _print_table(topic_table, answer["topics"])
    else:
        say("There are no dead letters.")


def _print_letters(selection: "Selection", letters: list[dict[str, Any]], *, has_more: bool, as_json: bool) -> None:
    if as_json:
        say_json({"topic": selection.topic, "letters": letters, "has_more": has_more})
    elif letters:
        from stompbroker.cli.dead_letter_format import letter_table

        _print_table(letter_table, letters)
        if has_more:
            say(f"… and more; --limit shows more than {len(letters):,}.")
    else:
        say(f"There are {selection.of(0)}.")


def _print_table(table_of: Callable[[list[dict[str, Any]], datetime], "Table"], rows: list[dict[str, Any]]) -> None:
    from stompbroker.cli.subscription_table import print_uncut

    print_uncut(table_of(rows, datetime.now(UTC)), open_console())


def _print_letter(letter: dict[str, Any], topic: str, body: bytes) -> None:
    from stompbroker.cli.dead_letter_format import letter_lines

    title, *lines = letter_lines(letter, topic, body, datetime.now(UTC))
    say(title, bold=True)
    say(*lines)


def _write_body(body: bytes, file: str) -> None:
    from stompbroker.cli.outcome import CommandFailed
    from stompbroker.cli.readable_text import counted

    if file == "-":
        typer.get_binary_stream("stdout").write(body)
        return
    try:
        Path(file).write_bytes(body)
    except OSError as error:
        raise CommandFailed(f"The body cannot be written to {file}: {error.strerror}.") from error
    say(f"Wrote the body, {counted(len(body), 'byte')}, to {file}.")
