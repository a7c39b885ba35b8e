"""Bounds the rate of log lines that clients can cause.

Law: the first line of a kind is logged at once. Repeats within INTERVAL_S are counted and become one line, with the
latest details, when the interval ends. The caller says what makes two lines the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

import structlog
import trio

from stompbroker.signals import Signal

Level: TypeAlias = Literal["info", "warning", "error"]

#: How long repeats are counted before they are logged.
INTERVAL_S: Final = 60.0
#: Kinds that are remembered; beyond that, all lines with the same event are one kind. That bounds memory to about
#: 400 KiB, and output to 512 lines a minute: a first line and a summary for each.
MAX_KINDS: Final = 256

log = structlog.get_logger()


@dataclass(slots=True)
class _Kind:
    level: Level
    event: str
    #: Of the latest line.
    details: dict[str, Any]
    ends_at_s: float
    repeats: int = 0

    def log_repeats(self) -> None:
        if self.repeats:
            getattr(log, self.level)(self.event, **self.details, repeats=self.repeats, within_s=INTERVAL_S)


@final
class LogThrottle:
    """
    Invariants:
        kinds are in the order in which their intervals end
        there are at most MAX_KINDS of them, and one for each event beside these
    """

    __slots__ = ("_kinds", "_noted")

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, ...], _Kind] = {}
        self._noted = Signal()

    def log(
        self, level: Level, event: str, kind: tuple[str, ...], /, *, exc_info: bool = False, **details: Any
    ) -> None:
        """Log this line, or count it. `exc_info` adds the current traceback to a line that is logged at once."""
        key = (event, *kind)
        if key not in self._kinds and len(self._kinds) >= MAX_KINDS:
            key = (event,)
        found = self._kinds.get(key)
        if found is not None:
            found.repeats += 1
            found.details = details
            return
        getattr(log, level)(event, **details, **({"exc_info": True} if exc_info else {}))
        self._kinds[key] = _Kind(level, event, details, trio.current_time() + INTERVAL_S)
        self._noted.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Log repeats when their interval ends, until cancelled; then log those that are still counted."""
        task_status.started()
        try:
            while True:
                while not self._kinds:
                    await self._noted.wait()
                await trio.sleep_until(next(iter(self._kinds.values())).ends_at_s)
                self._end_intervals(trio.current_time())
        finally:
            for kind in self._kinds.values():
                kind.log_repeats()
            self._kinds.clear()

    def _end_intervals(self, now_s: float) -> None:
        for key, kind in list(self._kinds.items()):
            if kind.ends_at_s > now_s:
                return
            del self._kinds[key]
            if kind.repeats:
                kind.log_repeats()
                kind.repeats, kind.ends_at_s = 0, now_s + INTERVAL_S
                self._kinds[key] = kind

    def check_invariants(self) -> None:
        ends = [kind.ends_at_s for kind in self._kinds.values()]
        assert ends == sorted(ends)
        assert sum(len(key) > 1 for key in self._kinds) <= MAX_KINDS
