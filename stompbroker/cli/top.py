"""`stompbroker top`: what a running broker is doing, live in the terminal.

Law: asks over the control socket and shows the answers; every number is the broker's.
"""

from pathlib import Path
from typing import Annotated

import typer

from stompbroker.cli.options import ConfigOption, DataOption

__all__ = ["top"]


def top(
    data: DataOption = None,
    config: ConfigOption = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, metavar="SECONDS", help="Time between two looks.")
    ] = 1.0,
    rows: Annotated[int, typer.Option(min=1, max=100, help="Rows of each table.")] = 12,
    sort: Annotated[
        str,
        typer.Option(help="Subscriptions by: backlog, in_flight, waiting, delivered, rate, redelivered, dead, key."),
    ] = "backlog",
    once: Annotated[bool, typer.Option("--once", help="Show it once and end, as for a script or a log.")] = False,
) -> None:
    """Watch rates, topics and subscriptions of the broker that runs on this machine, until Ctrl-C.

    Examples:

    $ stompbroker top
    $ stompbroker top --sort waiting --rows 30
    $ stompbroker top --once
    """
    from stompbroker.cli.outcome import run
    from stompbroker.config import load

    settings = load(config, flags={} if data is None else {"data": data})
    run(_watch, settings.data, interval, rows, sort if sort == "key" else f"-{sort}", once)


async def _watch(directory: Path, interval_s: float, rows: int, sort: str, is_once: bool) -> None:
    import trio
    from rich.live import Live

    from stompbroker.cli.control_client import ControlClient, connect
    from stompbroker.cli.terminal import open_console
    from stompbroker.cli.top_screen import screen_of

    async def look(control: ControlClient) -> dict[str, object]:
        return {
            "overview": await control.call("overview"),
            "topics": await control.call("topics", sort="-rate", limit=rows),
            "subscriptions": await control.call("subscriptions", sort=sort, limit=rows),
        }

    console = open_console()
    async with connect(directory) as control:
        if is_once or not console.is_terminal:
            console.print(screen_of(await look(control)))
            return
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(screen_of(await look(control)), refresh=True)
                await trio.sleep(interval_s)
