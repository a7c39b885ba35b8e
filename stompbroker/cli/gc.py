"""`stompbroker gc`: what is kept, why, and what could go.

Law: asks over the control socket and shows the answer; every number and every reason is the broker's.
"""

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption
from stompbroker.cli.terminal import say, say_json

__all__ = ["make_gc"]

#: Topics in one answer. The broker counts what the store has of each, and all of that has to be done in good time.
PAGE = 20


def make_gc() -> typer.Typer:
    """The command and what is below it."""
    application = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)
    application.callback()(_about)
    application.command("explain")(_explain)
    return application


def _about() -> None:
    """What the garbage collector keeps, and why.

    Examples:

    $ stompbroker gc explain
    $ stompbroker gc explain orders
    """


def _explain(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="One topic, as orders or /topic/orders.", show_default="all")
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say for each topic what is kept, who pins it since when, and what a run would collect.

    The topics with most bytes in the store come first.

    Examples:

    $ stompbroker gc explain
    $ stompbroker gc explain orders
    $ stompbroker gc explain DLQ.orders --json | jq .topics[0].why
    """
    from stompbroker.cli.collection_format import biggest_first, explanation
    from stompbroker.cli.outcome import run
    from stompbroker.config import load

    name = _read_topic(topic)
    settings = load(config, flags={} if data is None else {"data": data})
    found = biggest_first(run(_ask, settings.data, name))
    if as_json:
        say_json({"total": len(found), "topics": found})
        return
    # Elsewhere than on a terminal one line for each fact, however long.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in explanation(found, datetime.now(UTC), is_about_one=name is not None, width=width):
        is_title = line.endswith(":") and not line.startswith(" ")
        say(line, bold=is_title)


def _read_topic(given: str | None) -> str | None:
    if given is None:
        return None
    from stompbroker.cli.topic_names import read_topic

    return read_topic(given)


async def _ask(directory: Path, topic: str | None) -> list[dict[str, Any]]:
    from stompbroker.cli.control_client import SEARCH_TIMEOUT_S, connect

    found: list[dict[str, Any]] = []
    async with connect(directory, timeout_s=SEARCH_TIMEOUT_S) as control:
        if topic is not None:
            answer = await control.call("explain_collection", topic=topic)
            return list(answer["topics"])
        while True:
            after = found[-1]["topic"] if found else ""
            answer = await control.call("explain_collection", after=after, limit=PAGE)
            found += answer["topics"]
            # Some may have gone since the first answer, so an answer without any is an end, too.
            if not answer["topics"] or len(found) >= answer["total"]:
                return found
