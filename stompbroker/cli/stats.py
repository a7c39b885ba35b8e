"""`stompbroker stats`: what a running broker is doing.

Law: asks over the control socket and shows the answer; every number is the broker's, except rates, which are the
difference of two answers.
"""

from pathlib import Path
from typing import Annotated

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption
from stompbroker.cli.terminal import open_console, say_json

__all__ = ["stats"]


def stats(
    data: DataOption = None,
    config: ConfigOption = None,
    interval: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Time over which rates are measured; 0 shows none.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show topics, subscriptions, connections and rates of the broker that runs on this machine.

    Examples:

    $ stompbroker stats
    $ stompbroker stats --data /var/lib/stompbroker
    $ stompbroker stats --json | jq .totals
    """
    from stompbroker.cli.outcome import run
    from stompbroker.config import load

    settings = load(config, flags={} if data is None else {"data": data})
    first, second = run(_ask, settings.data, 0.0 if as_json else interval)
    if as_json:
        say_json(second)
        return

    from stompbroker.cli.overview import overview

    console = open_console()
    for part in overview(first, second):
        console.print(part)


async def _ask(data: Path, interval_s: float) -> tuple[dict[str, object], dict[str, object]]:
    """Two answers that lie an interval apart; without an interval the same one twice."""
    import trio

    from stompbroker.cli.control_client import connect

    async with connect(data) as control:
        first = await control.call("statistics")
        if not interval_s:
            return first, first
        await trio.sleep(interval_s)
        return first, await control.call("statistics")
