"""How far behind durable subscriptions are, as it is written down for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.clock import NANOSECONDS
from stompbroker.control import KeptMessages, Unavailable

if TYPE_CHECKING:
    import pytest

    from stompbroker.ledger import Behind
    from tests.support.broker_under_test import BrokerUnderTest


async def look(broker: BrokerUnderTest) -> dict[str, Behind]:
    await broker.settle()
    return {one.subscription: one for one in await broker.parts.control.kept.backlog()}


async def test_who_has_settled_everything_is_not_behind(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"one")
    await subscriber.acknowledge(await subscriber.next_message())

    (behind,) = (await look(durable_broker)).values()

    assert behind == ("a", "billing/orders", "billing", "orders", 0, None, 0, 0, 0, "topic")


async def test_what_is_unsent_in_flight_and_waiting_is_unsettled(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber(prefetch_count="2")
    before_ns = durable_broker.clock.now_ns()
    await durable_broker.store_messages(*[b"x"] * 5)
    after_ns = durable_broker.clock.now_ns()
    _, second = await subscriber.next_messages(2)
    await subscriber.send("NACK", id=second.headers["ack"], delay="3600000")

    behind = (await look(durable_broker))["billing/orders"]

    assert behind.lag_messages == 5
    assert (behind.in_flight, behind.waiting) == (2, 1)
    assert behind.oldest_published_ns is not None
    assert before_ns <= behind.oldest_published_ns <= after_ns
    ((stored_bytes,),) = durable_broker.look("SELECT sum(length(tail)) FROM messages")
    assert behind.pinned_bytes == stored_bytes


async def test_each_is_told_what_is_kept_from_its_own_place_on(durable_broker: BrokerUnderTest) -> None:
    for name in ("first", "second", "third"):
        subscriber = await durable_broker.durable_subscriber(name=name, client_id=name)
        await durable_broker.store_messages(b"published when one more had come")
        await subscriber.vanish()

    found = await look(durable_broker)

    sizes = [size for (size,) in durable_broker.look('SELECT length(tail) FROM messages ORDER BY "offset"')]
    times = [time for (time,) in durable_broker.look('SELECT published_at_ns FROM messages ORDER BY "offset"')]
    for place, name in enumerate(("first", "second", "third")):
        behind = found[f"{name}/{name}"]
        assert behind.lag_messages == 3 - place
        assert behind.pinned_bytes == sum(sizes[place:])
        assert behind.oldest_published_ns == times[place]
        assert (behind.in_flight, behind.waiting) == (0, 0)


async def test_a_wildcard_is_told_of_once_for_each_topic(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber("/topic/a.*")
    await durable_broker.store_messages(b"one", destination="/topic/a.b")
    await durable_broker.store_messages(b"one", b"two", destination="/topic/a.c")
    await subscriber.next_messages(3)

    await durable_broker.settle()
    found = await durable_broker.parts.control.kept.backlog()

    assert sorted((one.topic, one.lag_messages) for one in found) == [("a.b", 1), ("a.c", 2)]


async def test_transient_subscriptions_are_not_told_of(durable_broker: BrokerUnderTest) -> None:
    await durable_broker.subscriber(ack="client")

    assert await look(durable_broker) == {}


async def test_a_store_that_cannot_be_read_leaves_out_what_only_it_knows(
    durable_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"one")
    await subscriber.vanish()

    async def fail(*_: object) -> None:
        raise Unavailable("the store cannot be read")

    monkeypatch.setattr(KeptMessages, "extent", fail)
    (behind,) = (await look(durable_broker)).values()

    assert (behind.lag_messages, behind.pinned_bytes) == (1, None)
    if behind.oldest_published_ns is not None:  # the log had it
        assert durable_broker.clock.now_ns() - behind.oldest_published_ns < 60 * NANOSECONDS
