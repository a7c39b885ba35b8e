"""All commands, as Typer has them.

Of the commands only the one that is called is imported and described to Typer, unless help has to list them: that takes
30 ms.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Final

import typer

from stompbroker import __version__
from stompbroker.build import BUILD
from stompbroker.cli.terminal import say

#: Commands, in the order of the help, and those that have commands of their own. Each is a module here, but for `top`.
_COMMANDS: Final = (
    "serve", "publish", "subscribe", "stats", "top", "bridges", "config", "migrate", "trace", "report", "certificate",
    "spotty",
)  # fmt: skip
_GROUPS: Final = ("subscriptions", "dead-letters", "last-values", "gc", "ledger", "users")
ALL: Final = (*_COMMANDS, *_GROUPS)
_MODULES: Final = {"top": "stats"}
#: What they do not know is for the broker they start.
_PASSING_ON: Final = {"spotty": {"allow_extra_args": True, "ignore_unknown_options": True}}


def make_application(names: Iterable[str] = ALL) -> typer.Typer:
    # Tracebacks are for developers, who want the ordinary ones.
    application = typer.Typer(
        add_completion=False, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False
    )
    application.callback()(_about)
    for name in names:
        module = import_module(f"stompbroker.cli.{_MODULES.get(name, name).replace('-', '_')}")
        if name in _GROUPS:
            application.add_typer(module.commands, name=name)
        else:
            application.command(context_settings=_PASSING_ON.get(name))(getattr(module, name))
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
