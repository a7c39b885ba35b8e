"""`stompbroker trace`: what has become of one message.

Law: asks over the control socket and shows the answer; every state is the broker's.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, require_utf8
from stompbroker.cli.terminal import complain, open_console, say, say_json

__all__ = ["trace"]


def trace(
    message_id: Annotated[
        str, typer.Argument(metavar="MESSAGE-ID", help="As in the header message-id of a MESSAGE, or of a dead letter.")
    ],
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a message lies, and for each subscription how far it is with it.

    The exit code is 1 if the message is nowhere.

    Examples:

    $ stompbroker trace 5f0c9a3e-4-1207
    $ stompbroker trace 5f0c9a3e-4-1207 --json | jq .found[].subscriptions
    """
    from stompbroker.cli.outcome import ExitCode, run
    from stompbroker.config import load

    require_utf8(message_id, "MESSAGE-ID")
    settings = load(config, flags={} if data is None else {"data": data})
    answer = run(_ask, settings.data, message_id)
    if as_json:
        say_json(answer)
        if not answer["found"]:
            raise typer.Exit(ExitCode.FAILED)
        return
    _print(answer)


async def _ask(directory: Path, message_id: str) -> Any:
    from stompbroker.cli.control_client import SEARCH_TIMEOUT_S, connect

    async with connect(directory, timeout_s=SEARCH_TIMEOUT_S) as control:
        return await control.call("trace", message_id=message_id)


def _print(answer: dict[str, Any]) -> None:
    from stompbroker.cli.outcome import ExitCode
    from stompbroker.cli.subscription_table import print_uncut
    from stompbroker.cli.trace_format import place, progress_table
    from stompbroker.visible_text import readable

    if answer["note"]:
        complain(readable(answer["note"]))
    if not answer["found"]:
        raise typer.Exit(ExitCode.FAILED)
    now = datetime.now(UTC)
    for number, found in enumerate(answer["found"]):
        title, *lines = place(found, now)
        if number:
            say("")
        say(title, bold=True)
        say(*lines)
        if found["subscriptions"]:
            print_uncut(progress_table(found["subscriptions"], now), open_console())
