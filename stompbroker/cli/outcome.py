"""From what happened in trio to what a person reads and a script gets.

Law: an expected failure becomes its own sentence on stderr and an exit code, without a traceback; anything else is a
bug of ours and passes through.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import trio
import typer

from stompbroker.cli.terminal import ask, complain, say
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["CommandFailed", "ExitCode", "require_consent", "run", "sentences"]

T = TypeVar("T")


class ExitCode(IntEnum):
    FAILED = 1
    OPERATOR = 2
    INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class CommandFailed(OperatorError):
    """The command could not do what it was asked to; the text says why and what to do."""


def run(command: Callable[..., Awaitable[T]], *arguments: Any, code: ExitCode = ExitCode.FAILED) -> T:
    """Run a command's async part. An OperatorError ends the program with its text and `code`, Ctrl-C quietly."""
    said: list[str] = []
    try:
        return trio.run(command, *arguments)
    except* OperatorError as group:
        said = sentences(group)
    except* KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    for sentence in said:
        complain(sentence)
    raise typer.Exit(code)


def sentences(group: BaseExceptionGroup[OperatorError]) -> list[str]:
    """What the errors in a group say, each once: two tasks often stumble over the same thing."""
    said: list[str] = []
    for error in group.exceptions:
        said += sentences(error) if isinstance(error, BaseExceptionGroup) else [str(error)]
    return list(dict.fromkeys(said))


def require_consent(fact: str, *, to: str, question: str, otherwise: str) -> None:
    """End the program unless a person says yes. `to` is what --yes would be for, to be put behind "to"."""
    if not sys.stdin.isatty():
        raise CommandFailed(f"{fact}; to {to}, say so with --yes.")
    ask(f"{fact}. {question}")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say(otherwise, err=True)
        raise typer.Exit(ExitCode.FAILED)
