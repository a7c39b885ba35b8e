"""What each policy does to a subscriber that cannot keep up, and only to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.delivery import Counters
    from tests.support.broker_under_test import BrokerUnderTest, Client

WINDOW = 20


async def flood_beside_a_slow_subscriber(broker: BrokerUnderTest, count: int) -> tuple[Client, Client, Client]:
    """A slow subscriber with one message in flight, a quick one, and a publisher that has sent `count` messages."""
    slow = await broker.subscriber(ack="client-individual", prefetch_count="1")
    quick = await broker.subscriber()
    publisher = await broker.client()
    for number in range(count):
        await publisher.publish(b"%d" % number)
        await wait_all_tasks_blocked()
    return slow, quick, publisher


def counters_of(broker: BrokerUnderTest, client: Client) -> Counters:
    (subscription,) = [
        subscription
        for subscription in broker.registry.subscriptions
        if subscription.connection_id == client.session.connection_id
    ]
    return subscription.counters


async def bodies_until_silence(client: Client) -> list[int]:
    """Everything it can still be sent, each acknowledged."""
    bodies = []
    while await client.has_more():
        message = await client.next_message()
        bodies.append(int(message.body))
        await client.send("ACK", id=message.headers["ack"])
    return bodies


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
async def test_a_quick_subscriber_gets_everything_beside_a_slow_one(policy: str, autojump_clock: MockClock) -> None:
    async with running_broker(slow_subscriber=policy, window_messages=WINDOW) as broker:
        _, quick, publisher = await flood_beside_a_slow_subscriber(broker, 100)

        assert [int(message.body) for message in await quick.next_messages(100)] == list(range(100))
        assert not publisher.session.is_held_back


async def test_drop_oldest_keeps_the_newest(autojump_clock: MockClock) -> None:
    async with running_broker(slow_subscriber="drop-oldest", window_messages=WINDOW) as broker:
        slow, _, _ = await flood_beside_a_slow_subscriber(broker, 100)
        dropped = counters_of(broker, slow).dropped

        bodies = await bodies_until_silence(slow)

        assert bodies[0] == 0  # it was in flight before anything had to be dropped
        assert bodies[1:] == list(range(1 + dropped, 100))
        assert WINDOW // 2 <= len(bodies) - 1 <= WINDOW


async def test_drop_newest_keeps_the_oldest(autojump_clock: MockClock) -> None:
    async with running_broker(slow_subscriber="drop-newest", window_messages=WINDOW) as broker:
        slow, _, publisher = await flood_beside_a_slow_subscriber(broker, 100)
        dropped = counters_of(broker, slow).dropped

        bodies = await bodies_until_silence(slow)

        assert bodies == list(range(len(bodies)))
        assert WINDOW - 1 <= len(bodies) <= WINDOW + 1
        assert dropped == 100 - len(bodies)
        # Caught up, it gets what is published from now on.
        await publisher.publish(b"100")
        assert (await slow.next_message()).body == b"100"


async def test_drop_newest_does_not_let_the_log_grow(autojump_clock: MockClock) -> None:
    """What passes by the slow subscriber is not kept for its sake."""
    async with running_broker(slow_subscriber="drop-newest", window_messages=WINDOW) as broker:
        await flood_beside_a_slow_subscriber(broker, 300)

        assert broker.registry.topics["a"].log.message_count <= 2 * WINDOW


async def test_disconnect_removes_the_slow_subscriber(autojump_clock: MockClock) -> None:
    async with running_broker(slow_subscriber="disconnect", window_messages=WINDOW) as broker:
        slow, quick, publisher = await flood_beside_a_slow_subscriber(broker, 100)

        assert [int(message.body) for message in await quick.next_messages(100)] == list(range(100))
        assert not publisher.session.is_held_back
        await slow.next_message()
        await slow.expect_error("subscriber too slow", "'0'", "did not keep up")


async def test_a_policy_counts_for_the_topics_it_names(autojump_clock: MockClock) -> None:
    topics = [{"pattern": "lossy.>", "slow_subscriber": "drop-oldest"}]
    async with running_broker(window_messages=WINDOW, topics=topics) as broker:
        await broker.subscriber("/topic/lossy/x", ack="client-individual", prefetch_count="1")
        await broker.subscriber("/topic/strict", ack="client-individual", prefetch_count="1")
        lossy, strict = await broker.client(), await broker.client()
        for _ in range(60):
            await lossy.publish(b"x", destination="/topic/lossy/x")
            await strict.publish(b"x", destination="/topic/strict")
            await wait_all_tasks_blocked()

        assert not lossy.session.is_held_back
        assert strict.session.is_held_back


async def test_in_flight_messages_survive_their_topics_window(autojump_clock: MockClock) -> None:
    """What was sent and not answered can still be sent again when the log has long moved on."""
    async with running_broker(
        slow_subscriber="drop-oldest", window_messages=WINDOW, redelivery_first_delay_ms=10
    ) as broker:
        slow, _, _ = await flood_beside_a_slow_subscriber(broker, 100)
        first = await slow.next_message()
        assert first.body == b"0"

        await slow.send("NACK", id=first.headers["ack"])
        while (message := await slow.next_message()).body != b"0":
            await slow.send("ACK", id=message.headers["ack"])

        assert message.headers["redelivered"] == "true"
        assert message.headers["delivery-count"] == "2"
