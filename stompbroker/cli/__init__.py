"""The command line, a file per command.

Law: a command reads its arguments, calls the library and shows the result: on stdout, with notes on stderr. Exit
codes: 0 done, 1 no broker or a refusal, 2 something the operator has to mend, 130 interrupted; `report` has more.

Heavy modules are imported inside functions, so that `stompbroker --help` is quick
(test_help_imports_neither_trio_nor_pydantic).
"""

import sys
from typing import Annotated

import typer

from stompbroker import __version__
from stompbroker.build import BUILD
from stompbroker.cli import dead_letters, gc, last_values, ledger, subscriptions, users
from stompbroker.cli.bridges import bridges
from stompbroker.cli.certificate import certificate
from stompbroker.cli.config import config
from stompbroker.cli.migrate import migrate
from stompbroker.cli.publish import publish
from stompbroker.cli.report import report
from stompbroker.cli.serve import serve
from stompbroker.cli.spotty import spotty
from stompbroker.cli.stats import stats, top
from stompbroker.cli.subscribe import subscribe
from stompbroker.cli.terminal import complain, say
from stompbroker.cli.trace import trace
from stompbroker.errors import OperatorError

__all__ = ["main"]


def main() -> None:
    try:
        _application()(prog_name="stompbroker")
    except OperatorError as error:
        complain(str(error))
        sys.exit(2)


def _application() -> typer.Typer:
    # Tracebacks are for developers, who want the ordinary ones.
    application = typer.Typer(
        add_completion=False, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False
    )
    application.callback()(_about)
    for command in (serve, publish, subscribe, stats, top, bridges, config, migrate, trace, report, certificate):
        application.command()(command)
    # What it does not know is for the broker it starts.
    application.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(spotty)
    application.add_typer(subscriptions.commands, name="subscriptions")
    application.add_typer(dead_letters.commands, name="dead-letters")
    application.add_typer(last_values.commands, name="last-values")
    application.add_typer(gc.commands, name="gc")
    application.add_typer(ledger.commands, name="ledger")
    application.add_typer(users.commands, name="users")
    return application


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        say(f"stompbroker {__version__} ({BUILD})")
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
