"""What somebody publishes leaves before he lets go of the loop, within a written time, and what is left is told to
those who see to it."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.clock import Clock
from stompbroker.counting import Totals
from stompbroker.delivery import (
    AckMode,
    Consumer,
    Credit,
    Registry,
    Subscription,
    TopicPolicies,
    TopicPolicy,
    appending,
    parse_pattern,
    parse_topic_name,
    sending,
)
from stompbroker.memory_budget import MemoryBudget
from stompbroker.sessions import Dispatch, FlushQueue, Outbox
from stompbroker.sessions import outbox as turns
from stompbroker.sessions.outbox import MAX_OUTBOX_BYTES
from stompbroker.signals import Signal
from tests.support.messages import make_message
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.sinks import frame_sink
from tests.support.small_kernel import SmallKernel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(autouse=True)
def time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn ends when all is done, however busy the machine is; for who does not say otherwise."""
    monkeypatch.setattr(turns, "perf_counter", lambda: 0.0)


@final
class Scene:
    """A topic, its subscribers, and whoever delivers to them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.budget = MemoryBudget(1 << 30)
        self.registry = Registry(TopicPolicies(TopicPolicy()), self.budget, Totals(), max_topics=10)
        self.ready = self.registry.ready
        self.flush_queue = FlushQueue()
        self.dispatch = Dispatch(self.ready, self.flush_queue, self.clock)
        self.consumers: list[Consumer] = []
        self.outboxes: dict[Consumer, Outbox] = {}

    def subscribe(self, kernel: SmallKernel, ack_mode: AckMode = AckMode.AUTO) -> Consumer:
        subscription = Subscription(
            name=f"{len(self.consumers)}",
            destination="a",
            pattern=parse_pattern("a"),
            ack_mode=ack_mode,
            is_no_local=False,
        )
        sink, outbox = frame_sink(subscription, self.budget, flush_queue=self.flush_queue)
        outbox.send_now = kernel.send
        consumer = Consumer(
            subscription,
            ordinal=1,
            sink=sink,
            credit=Credit(1_000_000, max_waiting=1000),
            queue=self.ready,
        )
        self.registry.claim(consumer, self.clock.now_ns())
        self.registry.open(consumer, self.clock.now_ns())
        self.consumers.append(consumer)
        self.outboxes[consumer] = outbox
        return consumer

    def publish(self, *bodies: bytes) -> None:
        topic = self.registry.topic(parse_topic_name("a"), self.clock.now_ns())
        appending.append(topic, [make_message(body) for body in bodies], self.clock.now_ns())

    def check_left(self) -> None:
        """Nobody attends any more, and nothing waits for somebody who does."""
        assert not self.ready.is_attended
        assert not self.flush_queue.is_attended
        assert not self.flush_queue._waiting


@asynccontextmanager
async def watched_distributor(scene: Scene) -> AsyncIterator[list[int]]:
    """How many were ready each time that a distributor would have been woken."""
    found: list[int] = []

    async def wait() -> None:
        while True:
            await scene.ready.wait()
            found.append(len(scene.ready))
            await wait_all_tasks_blocked()
            while len(scene.ready):
                scene.ready.take()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        yield found
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_what_is_published_in_a_block_has_left_when_it_ends() -> None:
    scene, kernels = Scene(), [SmallKernel() for _ in range(5)]
    for kernel in kernels:
        scene.subscribe(kernel)

    async with watched_distributor(scene) as woken:
        with scene.dispatch:
            scene.publish(b"one", b"two")
            assert not any(kernel.calls for kernel in kernels)

        assert all(b"one" in kernel.taken and b"two" in kernel.taken for kernel in kernels)
        assert [kernel.calls for kernel in kernels] == [1] * 5
    assert woken == []
    scene.check_left()


async def test_what_is_published_outside_of_a_block_is_the_distributors() -> None:
    scene, kernel = Scene(), SmallKernel()
    scene.subscribe(kernel)

    async with watched_distributor(scene) as woken:
        scene.publish(b"one")

    assert (woken, kernel.calls) == ([1], 0)


async def test_a_turn_ends_with_its_time_and_leaves_the_rest_to_the_distributor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each look at the time finds it a third of a turn later; the first is the beginning.
    looks = (number * turns.TURN_S / 3 for number in itertools.count())
    monkeypatch.setattr(turns, "perf_counter", looks.__next__)
    scene, kernels = Scene(), [SmallKernel() for _ in range(10)]
    for kernel in kernels:
        scene.subscribe(kernel)

    async with watched_distributor(scene) as woken:
        with scene.dispatch:
            scene.publish(b"x")

    assert [kernel.calls for kernel in kernels] == [1] * 4 + [0] * 6
    # Those who were served have nothing more to get, and stand in no line.
    assert woken == [6]
    scene.check_left()


async def test_what_being_sent_settles_makes_room_for_more_in_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "perf_counter", lambda: 0.0)
    scene, kernel = Scene(), SmallKernel()
    consumer = scene.subscribe(kernel)
    count = 5 * MAX_OUTBOX_BYTES // 10_000

    with scene.dispatch:
        scene.publish(*[b"x" * 10_000] * count)

    assert kernel.taken.count(b"MESSAGE\n") == consumer.subscription.counters.acked == count
    assert kernel.calls > 2
    assert scene.outboxes[consumer].size_bytes == 0


async def test_a_client_that_does_not_read_holds_up_nobody_else() -> None:
    scene, slow, quick = Scene(), SmallKernel(room_bytes=0), SmallKernel()
    stuck = scene.subscribe(slow)
    scene.subscribe(quick)

    for _ in range(3):
        with scene.dispatch:
            scene.publish(b"x")

    assert quick.calls == 3
    assert slow.calls == 1
    assert scene.outboxes[stuck].sent_bytes == 0


async def test_who_publishes_behind_others_leaves_delivering_to_the_distributor_and_gets_his_answers() -> None:
    """Otherwise everybody who publishes a little would first work a millisecond at somebody's long backlog."""
    scene, kernels, receipts = Scene(), [SmallKernel() for _ in range(5)], SmallKernel()
    for kernel in kernels:
        scene.subscribe(kernel)
    publisher = Outbox(scene.budget, Signal(), scene.flush_queue)
    publisher.send_now = receipts.send
    scene.publish(b"a backlog")

    for number in range(1, 101):
        with scene.dispatch:
            scene.publish(b"a little")
            publisher.put(b"receipt")

        assert not any(kernel.calls for kernel in kernels)
        assert receipts.calls == number
        scene.check_left()

    scene.dispatch.take_turn()
    assert all(kernel.calls for kernel in kernels)
    with scene.dispatch:
        scene.publish(b"at once again")
    assert all(b"at once again" in kernel.taken for kernel in kernels)


async def test_with_acknowledgements_nothing_is_settled_by_being_sent() -> None:
    scene, kernel = Scene(), SmallKernel()
    consumer = scene.subscribe(kernel, AckMode.INDIVIDUAL)

    with scene.dispatch:
        scene.publish(b"x")

    assert (kernel.calls, consumer.in_flight, consumer.subscription.counters.acked) == (1, 1, 0)


# When something goes wrong -------------------------------------------------------------------------------------------


async def test_a_mistake_in_the_block_leaves_nobody_attended_and_what_was_done_is_delivered() -> None:
    scene, kernel = Scene(), SmallKernel()
    scene.subscribe(kernel)

    def publish_and_fail() -> None:
        with scene.dispatch:
            scene.publish(b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        publish_and_fail()

    assert kernel.calls == 1
    scene.check_left()


async def test_a_mistake_in_a_turn_leaves_what_is_filled_to_writers_and_who_is_ready_to_the_distributor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, kernels = Scene(), [SmallKernel() for _ in range(3)]
    first, second, _ = [scene.subscribe(kernel) for kernel in kernels]
    deliver_slice = sending.deliver_slice

    def fail(consumer: Consumer, now_ns: int) -> None:
        if consumer is second:
            raise ZeroDivisionError
        deliver_slice(consumer, now_ns)

    monkeypatch.setattr(sending, "deliver_slice", fail)
    async with watched_distributor(scene) as woken, trio.open_nursery() as nursery:
        nursery.start_soon(scene.outboxes[first].wait_filled)
        await wait_all_tasks_blocked()

        with pytest.raises(ZeroDivisionError), scene.dispatch:
            scene.publish(b"x")

    assert woken == [1], "the one behind"
    assert scene.outboxes[first].size_bytes > 0
    scene.check_left()


async def test_a_mistake_about_one_connection_leaves_what_the_others_are_owed_to_their_writers() -> None:
    scene, kernels = Scene(), [SmallKernel() for _ in range(3)]
    first, _, last = [scene.subscribe(kernel) for kernel in kernels]

    def fail(*parts: bytes) -> int:
        kernels[0].send(*parts)
        raise ZeroDivisionError

    scene.outboxes[first].send_now = fail
    with trio.fail_after(HARD_TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.outboxes[last].wait_filled)
            await wait_all_tasks_blocked()

            with pytest.raises(ZeroDivisionError), scene.dispatch:
                scene.publish(b"x")

    assert [kernel.calls for kernel in kernels] == [1, 0, 0]
    scene.check_left()


async def test_a_connection_that_is_closed_in_the_block_is_owed_nothing() -> None:
    scene, gone, kernel = Scene(), SmallKernel(), SmallKernel()
    leaving = scene.subscribe(gone)
    scene.subscribe(kernel)

    with scene.dispatch:
        scene.publish(b"x")
        scene.outboxes[leaving].put(b"last words")
        scene.registry.leave([leaving], scene.clock.now_ns())
        scene.outboxes[leaving].close()

    assert (gone.calls, kernel.calls) == (0, 1)
    scene.check_left()


async def test_a_turn_within_a_block_is_harmless() -> None:
    scene, kernel = Scene(), SmallKernel()
    scene.subscribe(kernel)

    async with watched_distributor(scene) as woken:
        with scene.dispatch:
            scene.publish(b"one")
            scene.dispatch.take_turn()
            scene.publish(b"two")

    assert (b"one" in kernel.taken, b"two" in kernel.taken) == (True, True)
    # Behind the inner turn nobody attends, so it is woken, and finds nothing.
    assert woken == []
    scene.check_left()
