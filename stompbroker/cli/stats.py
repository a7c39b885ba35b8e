"""`stompbroker stats` and `stompbroker top`: what a running broker is doing, once or live in the terminal.

Every number is the broker's answer, except the rates of `stats`: they are the difference of two answers.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory
from stompbroker.cli.outcome import run
from stompbroker.cli.terminal import open_console, print_uncut, say_json

if TYPE_CHECKING:
    from stompbroker.cli.control_client import ControlClient

__all__ = ["ask_for_statistics", "stats", "top"]

#: Entries of each kind with --json: the most the broker gives in one answer.
MAX_ENTRIES = 1_000


def stats(
    data: DataOption = None,
    config: ConfigOption = None,
    interval: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Measure rates over this time; 0 shows none.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show topics, subscriptions, connections and rates of the broker that runs on this machine.

    Examples:

    $ stompbroker stats
    $ stompbroker stats --data /var/lib/stompbroker
    $ stompbroker stats --json | jq .totals
    """
    from stompbroker.cli.overview import MAX_ROWS, overview

    directory = data_directory(data, config)
    if as_json:
        (answer,) = run(_ask, directory, MAX_ENTRIES, None)
        say_json(answer)
        return
    answers = run(_ask, directory, MAX_ROWS, interval or None)
    print_uncut(*overview(answers[0], answers[-1]))


async def _ask(directory: Path, limit: int, interval_s: float | None) -> list[dict[str, Any]]:
    """Two answers, an interval apart, or one without an interval."""
    import trio

    from stompbroker.cli.control_client import connect

    async with connect(directory) as control:
        answers = [await ask_for_statistics(control, limit)]
        if interval_s is not None:
            await trio.sleep(interval_s)
            answers.append(await ask_for_statistics(control, limit))
        return answers


async def ask_for_statistics(control: "ControlClient", limit: int) -> dict[str, Any]:
    """The overview, with exact sums, and the busiest topics, subscriptions and connections: at most `limit` of each."""
    answer: dict[str, Any] = await control.call("overview", exact=True)
    for kind, (sorts, busy) in _BUSIEST.items():
        found: dict[object, Any] = {}
        for sort in sorts:
            page = await control.call(kind, sort=sort, limit=limit)
            found |= {one["destination" if kind == "topics" else "id"]: one for one in page[kind]}
            answer[f"{kind}_total"] = page["total"]
            if page["total"] <= limit:
                break
        answer[kind] = sorted(found.values(), key=busy, reverse=True)[:limit]
    return answer


#: How the busiest are found: the broker's sort orders to ask for, and the key by which the answers are merged.
_BUSIEST: Any = {
    "topics": (("-published",), lambda one: one["published"]),
    "subscriptions": (("-backlog", "-delivered"), lambda one: (one["backlog"], one["delivered"])),
    "connections": (("-bytes_out", "-bytes_in"), lambda one: one["bytes_in"] + one["bytes_out"]),
}


def top(
    data: DataOption = None,
    config: ConfigOption = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, metavar="SECONDS", help="Time between two updates.")
    ] = 1.0,
    rows: Annotated[int, typer.Option(min=1, max=100, help="Rows of each table.")] = 12,
    sort: Annotated[
        str,
        typer.Option(
            help="Sort subscriptions by backlog, in_flight, waiting, delivered, rate, redelivered, dead or key."
        ),
    ] = "backlog",
    once: Annotated[bool, typer.Option("--once", help="Show it once and end, for a script or a log.")] = False,
) -> None:
    """Watch rates, topics and subscriptions of the broker that runs on this machine, until Ctrl-C.

    Examples:

    $ stompbroker top
    $ stompbroker top --sort waiting --rows 30
    $ stompbroker top --once
    """
    run(_watch, data_directory(data, config), interval, rows, sort if sort == "key" else f"-{sort}", once)


async def _watch(directory: Path, interval_s: float, rows: int, sort: str, is_once: bool) -> None:
    import trio
    from rich.live import Live

    from stompbroker.cli.control_client import ControlClient, connect
    from stompbroker.cli.overview import screen_of

    async def look(control: ControlClient) -> dict[str, Any]:
        topics = await control.call("topics", sort="-rate", limit=rows)
        subscriptions = await control.call("subscriptions", sort=sort, limit=rows)
        return {**await control.call("overview"), **topics, **subscriptions}

    console = open_console()
    async with connect(directory) as control:
        if is_once or not console.is_terminal:
            console.print(screen_of(await look(control)))
            return
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(screen_of(await look(control)), refresh=True)
                await trio.sleep(interval_s)
