"""The command line: a file per command, and beside it what is more than a command's own.

Law: a command reads its arguments, calls the library and says what came of it; it decides nothing a library could
decide. What commands print goes to stdout, what they say about themselves to stderr. Exit codes: 0 done, 1 the
broker could not be reached or refused, 2 something the operator has to mend (arguments, settings, files, ports),
130 interrupted; `report` has some of its own.

Everything but Typer is imported inside the commands, so that `stompbroker --help` is quick
(test_help_imports_neither_trio_nor_pydantic).
"""

import sys
from typing import Annotated

import typer

from stompbroker import __version__
from stompbroker.cli.config import config
from stompbroker.cli.dead_letters import make_dead_letters
from stompbroker.cli.gc import make_gc
from stompbroker.cli.ledger import make_ledger
from stompbroker.cli.migrate import migrate
from stompbroker.cli.publish import publish
from stompbroker.cli.report import report
from stompbroker.cli.serve import serve
from stompbroker.cli.stats import stats, top
from stompbroker.cli.subscribe import subscribe
from stompbroker.cli.subscriptions import make_subscriptions
from stompbroker.cli.terminal import complain, say
from stompbroker.cli.trace import trace
from stompbroker.errors import OperatorError

__all__ = ["main"]


def main() -> None:
    """Entry point of the `stompbroker` program."""
    try:
        _application()(prog_name="stompbroker")
    except OperatorError as error:
        complain(str(error))
        sys.exit(2)


def _application() -> typer.Typer:
    # A traceback is for the people who mend the broker, and they want the ordinary one, not a framed one with locals.
    application = typer.Typer(
        add_completion=False, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False
    )
    application.callback()(_about)
    for command in (serve, publish, subscribe, stats, top, config, migrate, trace, report):
        application.command()(command)
    application.add_typer(make_subscriptions(), name="subscriptions")
    application.add_typer(make_dead_letters(), name="dead-letters")
    application.add_typer(make_gc(), name="gc")
    application.add_typer(make_ledger(), name="ledger")
    return application


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        say(f"stompbroker {__version__}")
        raise typer.Exit


def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A STOMP message broker, and a client to try it with.

    Examples, each in a terminal of its own:

    $ stompbroker serve
    $ stompbroker subscribe /topic/greetings
    $ stompbroker publish /topic/greetings "Hello, world"
    """
