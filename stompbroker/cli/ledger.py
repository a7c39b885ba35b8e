"""`stompbroker ledger`: what became of every delivery, on its way to the lake.

Law: asks over the control socket and shows the answer.
"""

from pathlib import Path
from typing import Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption
from stompbroker.cli.terminal import say, say_json

__all__ = ["make_ledger"]


def make_ledger() -> typer.Typer:
    """The command and what is below it."""
    application = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)
    application.callback()(_about)
    application.command("export")(_export)
    return application


def _about() -> None:
    """What became of every delivery.

    Examples:

    $ stompbroker ledger export
    """


def _export(
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring everything that is settled by now to the lake, and come back when it is there.

    A broker does that by itself every hour, at midnight, and when much has gathered.

    Examples:

    $ stompbroker ledger export
    $ stompbroker ledger export --data /var/lib/stompbroker
    $ stompbroker ledger export --json | jq .complete_until
    """
    from stompbroker.cli.outcome import run
    from stompbroker.config import load

    settings = load(config, flags={} if data is None else {"data": data})
    answer = run(_ask, settings.data)
    if as_json:
        say_json(answer)
        return
    from datetime import datetime

    from stompbroker.cli.readable_text import counted

    for file in answer["files"]:
        say(file)
    complete_until = datetime.fromisoformat(answer["complete_until"]).strftime("%Y-%m-%d %H:%M:%S UTC")
    written = f"{counted(answer['records'], 'record')} in {counted(len(answer['files']), 'file')}"
    say(f"{written}. The lake {answer['lake']} is complete until {complete_until}.")


async def _ask(directory: Path) -> dict[str, Any]:
    from stompbroker.cli.control_client import EXPORT_TIMEOUT_S, NoBroker, connect
    from stompbroker.cli.outcome import CommandFailed

    try:
        async with connect(directory, timeout_s=EXPORT_TIMEOUT_S) as control:
            answer: dict[str, Any] = await control.call("export_ledger")
            return answer
    except NoBroker as error:
        raise CommandFailed(
            f"{error} Only a running broker exports; what was settled stays in its database until it does."
        ) from error
