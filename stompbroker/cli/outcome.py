"""How a command's work ends: with its result, or with sentences on stderr and an exit code.

Law: an expected failure is an `OperatorError` and is shown without a traceback; anything else is a bug of ours and
passes through. Trio is imported where it is needed, so that every command can import this file.
"""

from __future__ import annotations

import signal
import sys
from contextlib import asynccontextmanager
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from stompbroker.cli.terminal import ask, complain, say
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

T = TypeVar("T")


class ExitCode(IntEnum):
    FAILED = 1
    OPERATOR = 2
    #: EX_TEMPFAIL of sysexits.h, for who starts us again.
    START_AGAIN = 75
    INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class CommandFailed(OperatorError):
    """The command could not do what it was asked to; the text says why and what to do."""


def run(command: Callable[..., Awaitable[T]], *arguments: Any, code: ExitCode = ExitCode.FAILED) -> T:
    """Run a command's async part. An OperatorError ends the program with its text and `code`, or with START_AGAIN if
    that may be enough; Ctrl-C ends it quietly."""
    import trio

    said: list[str] = []
    try:
        return trio.run(command, *arguments)
    except* OperatorError as group:
        said = sentences(group)
        if group.split(lambda error: isinstance(error, OperatorError) and error.may_pass)[0] is not None:
            code = ExitCode.START_AGAIN
    except* KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    for sentence in said:
        complain(sentence)
    raise typer.Exit(code)


def ask_broker(directory: Path, method: str, **params: object) -> Any:
    """The answer of the broker with this data directory. Without one the program ends, as `run` has it."""
    from stompbroker.cli.control_client import ask

    return run(partial(ask, directory, method, **params))


@asynccontextmanager
async def stopped_by_signal(stop: Callable[[], None]) -> AsyncIterator[None]:
    """In this block the first SIGINT or SIGTERM calls `stop`; a second one ends the program at once."""
    import trio

    async def watch() -> None:
        await anext(signals)
        stop()
        await anext(signals)
        raise KeyboardInterrupt

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield
            nursery.cancel_scope.cancel()


def sentences(group: BaseExceptionGroup[OperatorError]) -> list[str]:
    """What the errors in a group say, each once: two tasks often fail for the same reason."""
    said: list[str] = []
    for error in group.exceptions:
        said += sentences(error) if isinstance(error, BaseExceptionGroup) else [str(error)]
    return list(dict.fromkeys(said))


def require_consent(fact: str, *, to: str, question: str, otherwise: str) -> None:
    """End the program unless a person says yes. `to` says what --yes would allow: it follows the word "to"."""
    if not sys.stdin.isatty():
        raise CommandFailed(f"{fact}; to {to}, say so with --yes.")
    ask(f"{fact}. {question}")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say(otherwise, err=True)
        raise typer.Exit(ExitCode.FAILED)
