"""`stompbroker ledger`: what became of every delivery, on its way to the lake.

Law: a running broker exports; without one, this process does what it would do (`offline_export`).
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from stompbroker.cli.options import ConfigOption, DatabaseOption, DataOption, JsonOption
from stompbroker.cli.outcome import CommandFailed, run
from stompbroker.cli.terminal import say, say_json
from stompbroker.cli.wording import counted, to_the_second

if TYPE_CHECKING:
    from stompbroker.config import Settings

#: How long a broker that holds its directory and does not listen, because it starts or stops, is waited for, and how
#: often we look, in seconds. Stopping takes twice `shutdown_grace_s`, which is 10 by default.
START_OR_STOP_S = 30.0
LOOK_S = 0.2

commands = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)


@commands.callback()
def _about() -> None:
    """What became of every delivery.

    Examples:

    $ stompbroker ledger export
    """


@commands.command("export")
def _export(
    data: DataOption = None,
    database: DatabaseOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export everything that is settled by now to the lake, and wait until it is there.

    A broker does that by itself every hour, at midnight, and when many records have gathered. If none is running, this
    command does it, with the lake and database of the settings.

    Examples:

    $ stompbroker ledger export
    $ stompbroker ledger export --data /var/lib/stompbroker
    $ stompbroker ledger export --json | jq .complete_until
    """
    from stompbroker.config import load

    settings = load(config, flags={"data": data, "database": database})
    answer = run(bring_to_lake, settings, lambda step: say(f"… {step}", err=True))
    if as_json:
        say_json(answer)
        return
    written = f"{counted(answer['records'], 'record')} in {counted(len(answer['files']), 'file')}"
    complete = f"The lake {answer['lake']} is complete until {to_the_second(answer['complete_until'])} UTC."
    say(*answer["files"], f"{written}. {complete}")


async def bring_to_lake(settings: "Settings", show: Callable[[str], None]) -> Any:
    """Export everything that is settled. The answer is a broker's. Raises OperatorError, alone or in a group."""
    import trio

    from stompbroker.cli.control_client import NobodyThere
    from stompbroker.config.data_directory import DirectoryHeld

    gives_up_at = trio.current_time() + START_OR_STOP_S
    is_waiting = False
    while True:
        try:
            return await _ask(settings)
        except NobodyThere:
            pass
        try:
            return await _export_offline(settings, show)
        except DirectoryHeld as error:
            if trio.current_time() > gives_up_at:
                raise CommandFailed(f"{error} It does not listen for questions; try again later.") from error
            if not is_waiting:
                show(f"waiting until {settings.data} is free, or its broker answers")
            is_waiting = True
        await trio.sleep(LOOK_S)


async def _ask(settings: "Settings") -> Any:
    from stompbroker.cli.control_client import connect

    async with connect(settings.data) as control:
        # An export may take an hour, this answer takes milliseconds: so a broker that hangs is noticed.
        await control.call("overview")
        return await control.call("export_ledger")


async def _export_offline(settings: "Settings", show: Callable[[str], None]) -> Any:
    import structlog

    from stompbroker.clock import iso_time
    from stompbroker.offline_export import export_offline

    # What the exporter would log, our sentence says.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    result = await export_offline(settings, show)
    return {
        "lake": settings.lake_place,
        "files": list(result.files),
        "records": result.records,
        "complete_until": iso_time(result.complete_until_ns),
    }
