"""Time that passes for a broker with a store, as far as a test lets it.

Law: the clock is a `MockClock` that the test moves, and it moves only while the broker has nothing to do. Threads are
waited for in real time, by looking.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, final

from trio.testing import wait_all_tasks_blocked

from stompbroker.actors import upkeep
from tests.support.broker_under_test import A_LOOK_S

if TYPE_CHECKING:
    from typing import Any

    import pytest
    from trio.testing import MockClock

    from stompbroker.storage import Batch
    from tests.support.broker_under_test import BrokerUnderTest

__all__ = ["UpkeepRounds", "let_time_pass", "let_wall_clock_go_on", "watch_batches"]

#: Between two moves: a little more than a round of the collector, and than the idle moment the journal waits for.
A_ROUND_S = 1.01


async def let_time_pass(broker: BrokerUnderTest, clock: MockClock, seconds: int) -> None:
    """Second by second, each time until the broker has nothing to do."""
    for _ in range(seconds):
        await broker.settle()
        clock.jump(A_ROUND_S)
    await broker.settle()


def let_wall_clock_go_on(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is started later finds the wall clock where the mock clock has brought it."""
    monkeypatch.setattr(
        "stompbroker.clock.time",
        SimpleNamespace(time_ns=lambda: 1_800_000_000 * 10**9 + int(clock.current_time() * 1e9)),
    )


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
