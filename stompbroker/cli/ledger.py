"""`stompbroker ledger`: what became of every delivery, on its way to the lake."""

from pathlib import Path
from typing import Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory
from stompbroker.cli.outcome import CommandFailed, run
from stompbroker.cli.terminal import say, say_json
from stompbroker.cli.wording import counted, to_the_second

commands = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)


@commands.callback()
def _about() -> None:
    """What became of every delivery.

    Examples:

    $ stompbroker ledger export
    """


@commands.command("export")
def _export(data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Export everything that is settled by now to the lake, and wait until it is there.

    A broker does that by itself every hour, at midnight, and when many records have gathered.

    Examples:

    $ stompbroker ledger export
    $ stompbroker ledger export --data /var/lib/stompbroker
    $ stompbroker ledger export --json | jq .complete_until
    """
    answer = run(_ask, data_directory(data, config))
    if as_json:
        say_json(answer)
        return
    written = f"{counted(answer['records'], 'record')} in {counted(len(answer['files']), 'file')}"
    complete = f"The lake {answer['lake']} is complete until {to_the_second(answer['complete_until'])} UTC."
    say(*answer["files"], f"{written}. {complete}")


async def _ask(directory: Path) -> Any:
    from stompbroker.cli.control_client import NoBroker, ask

    try:
        return await ask(directory, "export_ledger")
    except NoBroker as error:
        raise CommandFailed(
            f"{error} Only a running broker exports; what was settled stays in its database until it does."
        ) from error
