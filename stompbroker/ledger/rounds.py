"""When the lake is brought up to date, and who waits for that.

Law: synchronous but for waiting; knows times, and no files. A round is due after an interval, when a day has ended,
when enough has gathered, when somebody asks, and a while after one that failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from stompbroker.clock import NANOSECONDS
from stompbroker.errors import BrokerError
from stompbroker.ledger.exports import day_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.clock import Clock
    from stompbroker.ledger.exports import Exports

#: What is there now is complete up to this long ago: a delivery is settled at the time that its step began.
MARGIN_NS: Final = NANOSECONDS
#: How long to wait after a round that failed: at first, and at most.
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 300.0


class RoundFailed(BrokerError):
    """The lake could not be brought up to date; the text says why."""


@final
@dataclass(frozen=True, slots=True)
class RoundResult:
    #: Within the lake.
    files: Sequence[str]
    records: int
    complete_until_ns: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStatistics:
    """Since the start of this process."""

    done: int = 0
    failed: int = 0
    #: When the last one that worked ended, and up to when the lake was complete then; None: there was none.
    last_done_ns: int | None = None
    complete_until_ns: int | None = None
    #: Why the last one failed, and since when they have all failed; None if it worked.
    failure: str | None = None
    failing_since_ns: int | None = None


@final
@dataclass(slots=True)
class _Request:
    """A task waits for a round that begins after this was made."""

    done: trio.Event = field(default_factory=trio.Event)
    result: RoundResult | None = None
    failure: str = ""


class Round(NamedTuple):
    #: Whether to plan everything that has gathered; otherwise only files that were planned before are tried again.
    is_new: bool
    #: Up to when the lake is complete if all planned files are there.
    complete_until_ns: int


@final
class Rounds:
    """
    Invariants:
        everybody who asked is answered by the first round that begins after that
        a failure is known exactly when another try is due
    """

    def __init__(self, exports: Exports, clock: Clock, *, interval_s: float) -> None:
        self._exports = exports
        self._clock = clock
        self._interval_ns = int(interval_s * NANOSECONDS)
        self._asked: list[_Request] = []
        self._answering: list[_Request] = []
        self._changed = exports.filled
        #: When the next round begins, and when a failed one is tried again.
        self._next_ns = clock.now_ns() + self._interval_ns
        self._retry_ns: int | None = None
        self._retry_s = FIRST_RETRY_S
        #: Of the last round that was not a retry.
        self._complete_until_ns = 0
        self._statistics = RoundStatistics()
        self._look_at_what_was_left()

    def _look_at_what_was_left(self) -> None:
        """By an earlier process, which may have ended days ago."""
        exports, now_ns = self._exports, self._clock.now_ns()
        has_ended_day = False
        if exports.oldest is not None:
            oldest_ns, first_day = exports.oldest
            self._next_ns = min(self._next_ns, oldest_ns + self._interval_ns)
            has_ended_day = first_day < day_of(now_ns)
        if exports.ready or exports.has_leftovers or has_ended_day:
            self._next_ns = now_ns

    # For others ------------------------------------------------------------------------------------------------------

    async def export_now(self) -> RoundResult:
        """Until everything that is settled by now is in the lake. Raises RoundFailed."""
        request = _Request()
        self._asked.append(request)
        self._changed.wake()
        await request.done.wait()
        if request.result is None:
            raise RoundFailed(request.failure)
        return request.result

    @property
    def is_failing(self) -> bool:
        """Whether the last round did not work."""
        return self._statistics.failure is not None

    def statistics(self) -> RoundStatistics:
        return self._statistics

    def end_day(self, midnight_ns: int) -> None:
        """A day has ended, and its last snapshot was added."""
        self._next_ns = min(self._next_ns, midnight_ns + MARGIN_NS)
        self._changed.wake()

    # For the exporter ------------------------------------------------------------------------------------------------

    async def wait_due(self) -> None:
        while not self._is_due(self._clock.now_ns()):
            due_ns = self._next_ns if self._retry_ns is None else min(self._next_ns, self._retry_ns)
            await self._changed.wait_until(due_ns, self._clock)
        await trio.lowlevel.checkpoint()

    def _is_due(self, now_ns: int) -> bool:
        return self._is_new_due(now_ns) or (self._retry_ns is not None and now_ns >= self._retry_ns)

    def _is_new_due(self, now_ns: int) -> bool:
        return bool(self._asked) or now_ns >= self._next_ns or self._exports.is_full

    def begin(self) -> Round:
        now_ns = self._clock.now_ns()
        is_new = self._is_new_due(now_ns)
        if is_new:
            self._complete_until_ns = now_ns - MARGIN_NS
            self._next_ns = now_ns + self._interval_ns
        self._answering += self._asked
        self._asked = []
        return Round(is_new, self._complete_until_ns)

    def note_done(self, result: RoundResult) -> None:
        self._retry_s, self._retry_ns = FIRST_RETRY_S, None
        self._statistics = RoundStatistics(
            done=self._statistics.done + 1,
            failed=self._statistics.failed,
            last_done_ns=self._clock.now_ns(),
            complete_until_ns=result.complete_until_ns,
        )
        self._answer(result, "")

    def note_failed(self, reason: str) -> float:
        """Returns the delay of the next try, in seconds."""
        retry_s, self._retry_s = self._retry_s, min(2 * self._retry_s, LAST_RETRY_S)
        now_ns = self._clock.now_ns()
        self._retry_ns = now_ns + int(retry_s * NANOSECONDS)
        before = self._statistics
        self._statistics = replace(
            before, failed=before.failed + 1, failure=reason, failing_since_ns=before.failing_since_ns or now_ns
        )
        self._answer(None, reason)
        return retry_s

    def _answer(self, result: RoundResult | None, failure: str) -> None:
        for request in self._answering:
            request.result, request.failure = result, failure
            request.done.set()
        self._answering = []
