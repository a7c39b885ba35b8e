"""`stompbroker ledger`: what became of every delivery, on its way to the lake.

Law: asks over the control socket and shows the answer.
"""

from pathlib import Path
from typing import Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory
from stompbroker.cli.terminal import say, say_json
from stompbroker.cli.wording import counted, to_the_second

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

    answer = run(_ask, data_directory(data, config))
    if as_json:
        say_json(answer)
        return
    for file in answer["files"]:
        say(file)
    written = f"{counted(answer['records'], 'record')} in {counted(len(answer['files']), 'file')}"
    say(f"{written}. The lake {answer['lake']} is complete until {to_the_second(answer['complete_until'])} UTC.")


async def _ask(directory: Path) -> dict[str, Any]:
    from stompbroker.cli.control_client import EXPORT_TIMEOUT_S, NoBroker, ask_broker
    from stompbroker.cli.outcome import CommandFailed

    try:
        answer: dict[str, Any] = await ask_broker(directory, "export_ledger", timeout_s=EXPORT_TIMEOUT_S)
        return answer
    except NoBroker as error:
        raise CommandFailed(
            f"{error} Only a running broker exports; what was settled stays in its database until it does."
        ) from error
