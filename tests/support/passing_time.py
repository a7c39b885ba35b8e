"""Time that passes for a broker in a test's own process, as far as the test lets it.

Law: every test begins on the same day at the same hour. A clock that is moved is a `MockClock`, and it moves only while
the broker has nothing to do. Threads are waited for in real time, by looking.
"""

from __future__ import annotations

from time import monotonic_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, final

from trio.testing import wait_all_tasks_blocked

from stompbroker.actors import upkeep
from stompbroker.clock import NANOSECONDS
from tests.support.broker_under_test import A_LOOK_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import pytest
    from trio.testing import MockClock

    from stompbroker.storage import Batch
    from tests.support.broker_under_test import BrokerUnderTest

#: When tests begin: 2027-01-15 08:10 UTC. Whatever a broker does on the hour or at midnight, it does in those tests
#: that have it so late, and in no other because of the time at which somebody runs it.
MORNING_NS: Final = 1_800_000_600 * NANOSECONDS

#: Between two moves: a little more than a round of the collector, and than the idle moment the journal waits for.
A_ROUND_S = 1.01


async def let_time_pass(broker: BrokerUnderTest, clock: MockClock, seconds: int) -> None:
    """Second by second, each time until the broker has nothing to do."""
    for _ in range(seconds):
        await broker.settle()
        clock.jump(A_ROUND_S)
    await broker.settle()


def set_wall_clock(monkeypatch: pytest.MonkeyPatch, now_ns: Callable[[], int]) -> None:
    """What a broker that is started in this process takes for the time of day."""
    monkeypatch.setattr("stompbroker.clock.time", SimpleNamespace(time_ns=now_ns))


def begin_in_the_morning(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the morning at which tests begin, and later as time goes by."""
    began_ns = monotonic_ns()
    set_wall_clock(monkeypatch, lambda: MORNING_NS + monotonic_ns() - began_ns)


def let_wall_clock_go_on(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is started later finds the wall clock where the mock clock has brought it."""
    set_wall_clock(monkeypatch, lambda: MORNING_NS + int(clock.current_time() * NANOSECONDS))


def watch_batches(broker: BrokerUnderTest) -> list[Batch]:
    """Every batch that is written from now on."""
    assert broker.parts.opened is not None
    store, written = broker.parts.opened.store, []
    commit = store.commit

    def commit_and_note(batch: Batch) -> None:
        commit(batch)
        written.append(batch)

    store.commit = commit_and_note  # type: ignore[method-assign]
    return written


@final
class UpkeepRounds:
    """Counts how often upkeep has looked for what has expired, purging included, or has tried to. Made before the
    broker is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.finished = 0
        look = upkeep._expire

        async def look_and_count(*args: Any) -> None:
            try:
                await look(*args)
            finally:
                self.finished += 1

        monkeypatch.setattr(upkeep, "_expire", look_and_count)

    async def wait_until(self, broker: BrokerUnderTest, finished: int) -> None:
        while self.finished < finished:
            await wait_all_tasks_blocked(A_LOOK_S)
        await broker.settle()

    async def run_one(self, broker: BrokerUnderTest, clock: MockClock) -> None:
        """Let as much time pass as brings about one more look; it is over when this returns."""
        # Upkeep sleeps from the end of one round to the next, so it has to be asleep before the clock moves.
        await self.wait_until(broker, max(1, self.finished))
        before = self.finished
        clock.jump(upkeep.ROUND_S + 0.01)
        await self.wait_until(broker, before + 1)
