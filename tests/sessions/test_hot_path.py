"""The cost of a message, in counts that no busy machine can change.

Speed itself is measured by `make bench`. These tests guard what makes it: work is done per chunk, and little of it per
message. Bounds are tight: one more call or loop turn per message fails.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from stompbroker.changes import Unit
from stompbroker.delivery import answering, sending
from stompbroker.stomp import MAX_FRAMES_PER_CALL
from stompbroker.stomp.frame_reader import BARE_NACK_WEIGHT
from stompbroker.transport import StreamTransport
from tests.support.broker_under_test import Client
from tests.support.work import operations

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest

#: A chunk's worth of frames; the reader returns them in one call.
FRAMES = 512


class CountingStream(trio.abc.Stream):
    """Counts what the broker does to a stream."""

    def __init__(self, stream: trio.StapledStream[Any, Any]) -> None:
        self._stream = stream
        self.writes = 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.writes += 1
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


def sends(client: Client, count: int = FRAMES, **headers: str) -> bytes:
    return client.frame("SEND", b"x" * 256, destination="/topic/a", **headers) * count


async def test_a_repeated_send_costs_few_operations(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """From bytes to the topic's log, headers known: everything else runs in C, or once per chunk."""
    await broker.subscriber()
    publisher = await broker.client()
    publisher.session.receive(sends(publisher))

    work = operations(lambda: publisher.session.receive(sends(publisher)))

    assert work / FRAMES < 4


async def test_a_send_with_a_receipt_of_its_own_costs_few_operations(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher = await broker.client()
    chunk = b"".join(sends(publisher, 1, receipt=f"r-{number}") for number in range(FRAMES))
    publisher.session.receive(chunk)

    work = operations(lambda: publisher.session.receive(chunk))

    assert work / FRAMES < 6


async def test_delivering_costs_one_operation_per_message(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client()
    publisher.session.receive(sends(publisher))
    (consumer,) = [subscription.consumer for subscription in broker.registry.subscriptions]
    assert consumer is not None

    work = operations(lambda: sending.deliver_slice(consumer, 0))

    assert subscriber.session.outbox.size_bytes > FRAMES * 256
    assert work / FRAMES < 2


async def test_a_message_to_each_of_many_topics_costs_no_more_than_its_way_through(
    broker: BrokerUnderTest, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in a row here: each message has a topic, a subscription and a slice of its own. Its head is known, and
    nobody is asked a second time whether there is more."""
    subscriber, publisher = await broker.client(), await broker.client()
    for number in range(FRAMES):
        await subscriber.send("SUBSCRIBE", id=str(number), destination=f"/topic/m.{number}")
    await subscriber.sync()
    chunk = b"".join(publisher.frame("SEND", b"x", destination=f"/topic/m.{number}") for number in range(FRAMES))
    subscriber.session.outbox.send_now = lambda *parts: sum(map(len, parts))

    def publish() -> None:
        with broker.parts.dispatch:
            publisher.session.receive(chunk)
        while len(broker.registry.ready):
            broker.parts.dispatch.take_turn()

    publish()
    # How many turns it takes would be up to the machine.
    monkeypatch.setattr("stompbroker.sessions.outbox.perf_counter", repeat(0.0).__next__)
    before = subscriber.session.outbox.sent_bytes

    work = operations(publish)

    assert subscriber.session.outbox.sent_bytes - before > FRAMES * len("MESSAGE")
    assert work / FRAMES < 54
    subscriber.session.outbox.send_now = None


async def test_acknowledging_in_order_costs_nothing_per_message(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    publisher.session.receive(sends(publisher))
    messages = await subscriber.next_messages(FRAMES)
    acks = b"".join(subscriber.frame("ACK", id=message.headers["ack"]) for message in messages)

    work = operations(lambda: subscriber.session.receive(acks))

    (subscription,) = broker.registry.subscriptions
    assert subscription.counters.acked == FRAMES
    assert work / FRAMES < 1


#: As many NACKs as the reader returns in one call.
NACKS = MAX_FRAMES_PER_CALL // BARE_NACK_WEIGHT


async def test_refusing_in_order_costs_few_operations(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    publisher.session.receive(sends(publisher, NACKS))
    messages = await subscriber.next_messages(NACKS)
    nacks = b"".join(subscriber.frame("NACK", id=message.headers["ack"]) for message in messages)

    work = operations(lambda: subscriber.session.receive(nacks))

    (subscription,) = broker.registry.subscriptions
    assert subscription.counters.nacked == NACKS
    assert broker.registry.redeliveries.count == NACKS
    assert work / NACKS < 13


async def test_delivering_again_costs_few_operations(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """What was refused in one go is one run when it goes again: rendered with one join, remembered as one entry."""
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    publisher.session.receive(sends(publisher, NACKS))
    messages = await subscriber.next_messages(NACKS)
    nacks = [subscriber.frame("NACK", id=message.headers["ack"], delay="0") for message in messages]
    subscriber.session.receive(b"".join(nacks))
    while subscriber.session.receive(b""):
        pass
    for waiting in broker.registry.redeliveries.take_due(broker.clock.now_ns(), NACKS):
        answering.become_due(waiting)
    (consumer,) = [subscription.consumer for subscription in broker.registry.subscriptions]
    assert consumer is not None
    runs = len(list(consumer.sent))

    work = operations(lambda: sending.deliver_slice(consumer, 0))

    assert consumer.in_flight == NACKS
    assert len(list(consumer.sent)) <= runs + 2
    assert work / NACKS < 17


#: So many messages, of which every tenth is refused.
MIXED = 500
REFUSED = MIXED // 10


async def refusing_every_tenth(broker: BrokerUnderTest, *, in_turn: bool) -> tuple[Client, bytes]:
    """A subscriber that was sent messages, and its answers: as the messages came, or those that refuse last."""
    subscriber = await broker.subscriber(ack="client-individual", redelivery_delay="0", redelivery_jitter="0")
    publisher = await broker.client()
    publisher.session.receive(sends(publisher, MIXED))
    acks = [message.headers["ack"] for message in await subscriber.next_messages(MIXED)]
    commands = ["NACK" if number % 10 == 9 else "ACK" for number in range(MIXED)]
    answers = list(zip(commands, acks, strict=True))
    if not in_turn:
        answers.sort(key=lambda answer: answer[0])
    return subscriber, b"".join(subscriber.frame(command, id=ack) for command, ack in answers)


def receive_all(client: Client, chunk: bytes) -> None:
    while client.session.receive(chunk):
        chunk = b""


@pytest.mark.parametrize("in_turn", [False, True])
async def test_refusing_every_tenth_costs_few_operations(
    broker: BrokerUnderTest, autojump_clock: MockClock, in_turn: bool
) -> None:
    """Neighbours that are acknowledged are a range, and the ranges and refusals of a chunk are applied in two steps."""
    subscriber, answers = await refusing_every_tenth(broker, in_turn=in_turn)

    work = operations(lambda: receive_all(subscriber, answers))

    (subscription,) = broker.registry.subscriptions
    counters = subscription.counters
    assert (counters.acked, counters.nacked, counters.late) == (MIXED - REFUSED, REFUSED, 0)
    assert work / MIXED < (13 if in_turn else 9)


async def test_delivering_every_tenth_again_costs_few_operations(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Others lie between them, but they have one history: one header block, and one join."""
    subscriber, answers = await refusing_every_tenth(broker, in_turn=False)
    receive_all(subscriber, answers)
    for waiting in broker.registry.redeliveries.take_due(broker.clock.now_ns(), REFUSED):
        answering.become_due(waiting)
    (consumer,) = [subscription.consumer for subscription in broker.registry.subscriptions]
    assert consumer is not None

    work = operations(lambda: sending.deliver_slice(consumer, 0))

    assert consumer.in_flight == REFUSED
    assert work / REFUSED < 22


async def test_a_chunk_is_one_unit(
    broker: BrokerUnderTest, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = await broker.client()
    completed: list[Unit] = []
    complete = Unit.complete

    def count(unit: Unit, now_ns: int) -> None:
        completed.append(unit)
        complete(unit, now_ns)

    monkeypatch.setattr(Unit, "complete", count)

    publisher.session.receive(sends(publisher, receipt="r"))

    assert len(completed) == 1


async def test_ten_thousand_messages_cost_few_wake_ups_and_writes(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Over real tasks: reader, distributor, writer. Trio varies their order, so the bound has room."""
    ours, theirs = memory_stream_pair()
    counting = CountingStream(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.parts.serve_connection, StreamTransport(counting, "counted"))
        await wait_all_tasks_blocked()
        subscriber = Client(ours, next(reversed(broker.parts.sessions.values())))
        await subscriber.connect()
        await subscriber.subscribe()
        publisher = await broker.client()
        wake_ups_before, writes_before = broker.registry.ready.wake_ups, counting.writes

        async def publish() -> None:
            for _ in range(20):
                await publisher.send_raw(sends(publisher, 500))

        nursery.start_soon(publish)
        await subscriber.next_messages(10_000)

        assert (broker.registry.ready.wake_ups - wake_ups_before) / 10 < 6
        assert (counting.writes - writes_before) / 10 < 6
        nursery.cancel_scope.cancel()


async def test_last_values_cost_nothing_where_none_is_set_and_little_where_each_message_is_one(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    await broker.subscriber()
    publisher = await broker.client()
    single, chunk = sends(publisher, 1), sends(publisher, retain="set")
    publisher.session.receive(single)
    await publisher.sync()  # it is delivered, as those before the next one are
    without = operations(lambda: publisher.session.receive(single))

    for number in range(1_000):
        await publisher.publish(b"x", destination=f"/topic/other.{number}", retain="set")
    await publisher.sync()
    assert len(broker.registry.last_values) == 1_000
    # The 999 others of a chunk would be counted, too.
    assert operations(lambda: publisher.session.receive(single)) <= without

    publisher.session.receive(chunk)
    assert operations(lambda: publisher.session.receive(chunk)) / FRAMES < 4
