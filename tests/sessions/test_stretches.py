"""No single step keeps the event loop for long, whatever a client does.

The promise is 5 ms. Calls and loop turns are counted instead of time, because a busy machine cannot change them; one
takes about 0.1 µs, so a step of 5,000 keeps the promise with room to spare.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.counting import LoopGauge
from stompbroker.delivery import appending, sending
from tests.support.broker_under_test import running_broker
from tests.support.work import operations

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest

MANY_TOPICS = 10_000


async def with_many_topics(broker: BrokerUnderTest) -> None:
    """Ten thousand topics, each known to the broker."""
    publisher = await broker.client()
    for first in range(0, MANY_TOPICS, 100):
        frames = [
            publisher.frame("SEND", b"x", destination=f"/topic/many/{number}") for number in range(first, first + 100)
        ]
        await publisher.send_raw(b"".join(frames))
    await publisher.sync()
    assert len(broker.registry.topics) == MANY_TOPICS


async def test_a_wildcard_over_ten_thousand_topics(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """Subscribing, and leaving, costs the same as with one topic: the topics notice by themselves."""
    await with_many_topics(broker)
    client = await broker.client()

    subscribing = operations(
        lambda: client.session.receive(client.frame("SUBSCRIBE", id="0", destination="/topic/many.>"))
    )
    leaving = operations(lambda: client.session.receive(client.frame("UNSUBSCRIBE", id="0")))

    assert subscribing < MANY_TOPICS / 20
    assert leaving < MANY_TOPICS / 20


async def test_a_wildcard_with_backlog_in_ten_thousand_topics(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.subscriber("/topic/many.>", ack="client-individual", prefetch_count="1")
    await with_many_topics(broker)
    (subscription,) = broker.registry.subscriptions
    assert len(subscription.readings) == MANY_TOPICS

    message = await client.next_message()
    answering = operations(lambda: client.session.receive(client.frame("ACK", id=message.headers["ack"])))
    delivering = operations(lambda: sending.deliver_slice(broker.registry.ready.take(), 0))
    leaving = operations(lambda: client.session.receive(client.frame("UNSUBSCRIBE", id="0")))

    assert answering < MANY_TOPICS / 20
    assert delivering < MANY_TOPICS / 20
    assert leaving < MANY_TOPICS / 20


async def test_the_largest_commit(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """1,024 frames, each to a topic of its own."""
    client = await broker.client()
    await client.send("BEGIN", transaction="t")
    for number in range(1024):
        await client.send("SEND", b"x", destination=f"/topic/{number}", transaction="t")
    await wait_all_tasks_blocked()

    work = operations(lambda: client.session.receive(client.frame("COMMIT", transaction="t", receipt="r")))

    await client.expect_receipt("r")
    assert work / 1024 < 40


async def test_the_loss_of_a_connection_with_a_thousand_subscriptions(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """All to one topic, which is the worst case: they share its table of readings."""
    client = await broker.client()
    for number in range(1000):
        await client.send("SUBSCRIBE", id=str(number), destination="/topic/a", ack="client-individual")
    publisher = await broker.client()
    await publisher.publish(b"x")
    await client.next_messages(1000)

    work = operations(client.session.lose)

    assert not broker.registry.subscriptions
    assert work / 1000 < 30


async def test_delivering_to_many_subscribers_of_a_blocked_topic_costs_each_the_same(
    autojump_clock: MockClock,
) -> None:
    """Whether publishers can go on is looked at once per turn, not once per delivery."""

    async def work_for(count: int) -> float:
        async with running_broker(window_messages=3) as broker:
            client = await broker.client()
            for number in range(count):
                await client.send("SUBSCRIBE", id=str(number), destination="/topic/a", ack="client", prefetch_count="1")
            publisher = await broker.client()
            for _ in range(6):
                await publisher.publish(b"x")
            messages = await client.next_messages(count)
            assert broker.registry.topics["a"].gate.is_blocked
            answers = b"".join(client.frame("ACK", id=message.headers["ack"]) for message in messages)
            client.session.receive(answers)
            ready = broker.registry.ready
            assert len(ready) == count

            def deliver_to_all() -> None:
                while len(ready):
                    sending.deliver_slice(ready.take(), 0)
                for topic in ready.take_moved():
                    appending.try_to_unblock(topic, broker.clock.now_ns())

            return operations(deliver_to_all) / count

    assert await work_for(400) < 2 * await work_for(40)


async def test_a_collector_round_over_ten_thousand_topics_is_cut_into_slices(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    await with_many_topics(broker)
    steps = 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += "garbage_collector" in task.name

    instrument = Steps()
    trio.lowlevel.add_instrument(instrument)
    await trio.sleep(2)
    await wait_all_tasks_blocked()
    trio.lowlevel.remove_instrument(instrument)

    assert steps > 3


def test_the_gauge_keeps_the_longest_stretch_and_its_actor() -> None:
    gauge = LoopGauge()

    gauge.note("long", perf_counter() - 5.0)
    gauge.note("short", perf_counter())

    assert gauge.longest_actor == "long"
    assert 5.0 <= gauge.longest_s < 10.0


async def test_actors_note_their_stretches(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    await broker.subscriber()

    assert broker.parts.stretches.longest_s > 0
    assert broker.parts.stretches.longest_actor in ("worker", "distributor", "pacemaker", "garbage collector")
