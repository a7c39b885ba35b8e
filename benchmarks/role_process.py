"""A role in a process of its own, as its measurement sees it.

Every wait has a timeout. While waiting, `watch` is called every few milliseconds: it samples the broker and raises if
it has died. A role that failed raises, too. Leaving the `with` block leaves no process behind.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, final

from benchmarks.broken import Broken
from benchmarks.roles.child_end import ChildEnd, Failed, Progressed, Reached, Stage, Word

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from types import TracebackType

Assignment = TypeVar("Assignment")
Report = TypeVar("Report")

#: Seconds between two samples of the broker: often enough for its peak memory, rarely enough to cost nothing.
_WATCH_INTERVAL_S: Final = 0.05
#: Seconds of silence after which a role counts as hung. Longer than any timeout of the roles themselves, of which the
#: longest is that for a peer (`peers.peer`).
_PATIENCE_S: Final = 150.0
_EXIT_TIMEOUT_S: Final = 5.0

_CONTEXT = multiprocessing.get_context("spawn")  # a fork would inherit the runner's memory and its threads


@final
class RoleProcess(Generic[Assignment, Report]):
    """Enter with `with`, then call `wait_stage`, `tell` and finally `wait_report`."""

    def __init__(
        self,
        role: Callable[[Assignment, ChildEnd], Report],
        assignment: Assignment,
        *,
        watch: Callable[[], None],
        show_progress: Callable[[int], None] = lambda _messages: None,
    ) -> None:
        self._watch = watch
        self._show_progress = show_progress
        self._name = role.__module__.rpartition(".")[2]
        self._pipe, self._child_pipe = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_play, args=(role, assignment, self._child_pipe), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._child_pipe.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        if kind is not None:
            self._process.terminate()
        self._process.join(_EXIT_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def wait_stage(self, stage: Stage) -> None:
        said = self._wait_said()
        if said != Reached(stage):
            raise RuntimeError(f"{self._name} said {said!r} before it reached {stage}")

    def tell(self, word: Word) -> None:
        try:
            self._pipe.send(word)
        except BrokenPipeError:
            self._wait_said()  # raises the reason why it ended
            raise

    def wait_report(self) -> Report:
        said: Report = self._wait_said()
        return said

    def _wait_said(self) -> Any:
        """The next word of the role other than progress."""
        while isinstance(said := self._wait_next(), Progressed):
            self._show_progress(said.messages)
        return said

    def _wait_next(self) -> Any:
        gives_up_at = time.monotonic() + _PATIENCE_S
        while not self._pipe.poll(_WATCH_INTERVAL_S):
            self._watch()
            if time.monotonic() > gives_up_at:
                raise Broken(f"the {self._name} heard nothing from the broker for {_PATIENCE_S:g} s")
        try:
            said = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"the {self._name} process ended without a report") from None
        if isinstance(said, Failed):
            self._watch()  # a dead broker is the better explanation
            raise Broken(f"{self._name}: {said.text}") if said.is_broken else RuntimeError(said.text)
        return said


def _play(role: Callable[[Any, ChildEnd], Any], assignment: Any, pipe: Connection[Any, Any]) -> None:
    """The main function of a role's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner handles Ctrl-C, and we end with it
    gc.disable()  # a collection in the generator would be measured as the broker's latency
    with suppress(EOFError, BrokenPipeError):  # the runner has gone
        try:
            report = role(assignment, ChildEnd(pipe))
        except EOFError:
            raise
        except Broken as broken:
            report = Failed(text=str(broken), is_broken=True)
        except BaseException:
            report = Failed(text=traceback.format_exc(), is_broken=False)
        pipe.send(report)
