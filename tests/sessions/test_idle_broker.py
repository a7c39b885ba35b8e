"""A broker that nobody uses does next to nothing, whatever was done before."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker
from tests.support.passing_time import let_time_pass

if TYPE_CHECKING:
    from pathlib import Path

    from trio.lowlevel import Task
    from trio.testing import MockClock

SECONDS = 10


class Steps(trio.abc.Instrument):
    """How often each task of the broker ran."""

    def __init__(self) -> None:
        self.by_task: Counter[str] = Counter()

    def before_task_step(self, task: Task) -> None:
        self.by_task[task.name] += 1

    @property
    def of_broker(self) -> int:
        return sum(count for name, count in self.by_task.items() if name.startswith("stompbroker."))


async def test_after_it_has_collected(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"one", b"two")
        await subscriber.acknowledge(*await subscriber.next_messages(2))
        await let_time_pass(broker, mock_clock, 3)
        assert broker.count("messages") == 0
        steps = Steps()
        trio.lowlevel.add_instrument(steps)

        for _ in range(SECONDS * 100):
            mock_clock.jump(0.01)
            await wait_all_tasks_blocked()

        trio.lowlevel.remove_instrument(steps)
        assert 0 < steps.by_task["stompbroker.actors.journal.run"] <= SECONDS
        assert steps.of_broker <= 10 * SECONDS
