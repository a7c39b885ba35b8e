"""What becomes of a message that is not tried again, and what its dead letter is like."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.clock import iso_time
from stompbroker.stomp import Version
from tests.journal.journal_under_test import until
from tests.support.broker_under_test import running_broker
from tests.support.redelivery import (
    MS,
    S,
    begin_from,
    history,
    jump_to,
    letters_of,
    refuse,
    refuse_all,
    subscription_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


AT_ONCE: dict[str, Any] = {"redelivery_delay": "0"}


async def buried(broker: BrokerUnderTest, body: bytes = b"1", **headers: str) -> tuple[Client, Frame]:
    """A subscriber that has refused a message of these headers for good, and what it had got."""
    subscriber = await broker.subscriber(ack="client-individual")
    await (await broker.client()).publish(body, **headers)
    message = await subscriber.next_message()
    await refuse(broker, subscriber, message, requeue="false")
    return subscriber, message


def provenance(letter: Frame) -> dict[str, str]:
    prefix = "dead-letter-"
    return {name.removeprefix(prefix): value for name, value in letter.headers.items() if name.startswith(prefix)}


# The letter ----------------------------------------------------------------------------------------------------------


async def test_a_letter_has_the_body_and_the_headers_of_its_publisher(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    letters = await broker.subscriber("/topic/DLQ.a")
    body = b"line\nzero\0end"
    _, message = await buried(broker, body, content_type="text/plain", order_id="7:a\nb", priority="4")

    letter = await letters.next_message()

    assert letter.body == body
    assert letter.headers["destination"] == "/topic/DLQ.a"
    assert {name: letter.headers[name] for name in ("content-type", "order-id", "priority")} == {
        "content-type": "text/plain",
        "order-id": "7:a\nb",
        "priority": "4",
    }
    assert letter.headers["message-id"] != message.headers["message-id"]
    assert history(letter) == ("false", "1", None)


async def test_a_letter_says_all_about_where_it_comes_from(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    letters = await broker.subscriber("/topic/DLQ.orders.eu")
    subscriber = await broker.subscriber("/topic/orders.*", id="mine", ack="client-individual", max_attempts="2")
    published_ns = broker.clock.now_ns()
    await (await broker.client()).publish(b"1", destination="/topic/orders.eu")
    message = await subscriber.next_message()
    await trio.sleep(1)
    await refuse(broker, subscriber, message, delay="5000", reason="first")
    await subscriber.next_message()
    again_ns = broker.clock.now_ns()
    await trio.sleep(1)

    await subscriber.send("NACK", id="1-2", reason="colon: and\nline")

    assert provenance(await letters.next_message()) == {
        "destination": "/topic/orders.eu",
        "message-id": message.headers["message-id"],
        "subscription": "mine",
        "attempts": "2",
        "cause": "attempts used up",
        "reason": "colon: and\nline",
        "published-at": iso_time(published_ns),
        "first-attempt-at": iso_time(published_ns),
        "last-attempt-at": iso_time(again_ns),
        "died-at": iso_time(again_ns + 1 * S),
    }


async def test_the_letter_of_a_durable_subscription_says_which_one_it_was(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")

    await refuse(durable_broker, subscriber, await subscriber.next_message(), requeue="false")

    (letter,) = await letters_of(durable_broker)
    subscription = subscription_of(durable_broker, subscriber)
    assert provenance(letter)["subscription"] == subscription.key
    assert provenance(letter)["subscription-number"] == str(subscription.store_id)


async def test_a_letter_without_a_reason_has_no_header_for_it(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    letters = await broker.subscriber("/topic/DLQ.a")
    await buried(broker)

    assert "reason" not in provenance(await letters.next_message())


async def test_a_letter_does_not_inherit_the_end_of_its_messages_life(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, message_ttl_ms=60_000) as broker:
        now_ms = broker.clock.now_ns() // 1_000_000
        await buried(broker, b"1", ttl="60000", expiration="50000", expires=str(now_ms + 70_000))
        await jump_to(broker, mock_clock, broker.clock.now_ns() + 3600 * S)

        (letter,) = await letters_of(broker)

        assert letter.body == b"1"
        assert not {"ttl", "expiration", "expires"} & letter.headers.keys()


async def test_a_publisher_cannot_forge_where_a_letter_comes_from(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    forged = {"dead-letter-destination": "/topic/x", "dead-letter-nonsense": "y", "Dead-Letter-Attempts": "99"}
    on_topic = await broker.subscriber("/topic/a")
    letters = await broker.subscriber("/topic/DLQ.a")
    publisher = await broker.client()

    await publisher.publish(b"1", destination="/topic/DLQ.a", **forged)
    assert not any("letter" in name.lower() for name in (await letters.next_message()).headers)
    await buried(broker, b"2", **forged)

    assert not any("letter" in name.lower() for name in (await on_topic.next_message()).headers)
    headers = (await letters.next_message()).headers
    assert headers["dead-letter-destination"] == "/topic/a"
    assert headers["dead-letter-attempts"] == "1"
    assert not {"dead-letter-nonsense", "Dead-Letter-Attempts"} & headers.keys()


async def test_a_letter_can_be_read_in_every_version(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    readers = [await broker.subscriber("/topic/DLQ.a", version=version) for version in Version]
    await buried(broker, b"body", name="a:b")

    for reader in readers:
        letter = await reader.next_message()
        assert letter.body == b"body"
        assert letter.headers["dead-letter-destination"] == "/topic/a"


# Who gets it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [">", "*.*", "**", "#", "*.a", ">.a"])
async def test_who_reads_everything_does_not_get_letters(
    pattern: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    reader = await broker.subscriber(f"/topic/{pattern}")
    letters = await broker.subscriber("/topic/DLQ.a")
    await buried(broker)
    await letters.next_message()

    seen = []
    while await reader.has_more():
        seen.append((await reader.next_message()).headers["destination"])
    assert seen in ([], ["/topic/a"])


@pytest.mark.parametrize("pattern", ["DLQ.>", "DLQ.*", "DLQ.**", "DLQ.a", "DLQ/a"])
async def test_who_asks_for_letters_gets_them(pattern: str, broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    reader = await broker.subscriber(f"/topic/{pattern}")

    await buried(broker)

    assert (await reader.next_message()).headers["destination"] == "/topic/DLQ.a"


async def test_a_letter_is_made_for_each_subscriber_that_gives_up(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    letters = await broker.subscriber("/topic/DLQ.a")
    subscribers = [await broker.subscriber(id=name, ack="client-individual") for name in ("x", "y")]
    await (await broker.client()).publish(b"1")
    for subscriber in subscribers:
        await refuse(broker, subscriber, await subscriber.next_message(), requeue="false")

    headers = [letter.headers for letter in await letters.next_messages(2)]

    assert [each["dead-letter-subscription"] for each in headers] == ["x", "y"]
    assert len({each["dead-letter-message-id"] for each in headers}) == 1


async def test_letters_of_messages_that_die_together_keep_their_order(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    letters = await broker.subscriber("/topic/DLQ.a")
    subscriber = await broker.subscriber(ack="client")
    bodies = [b"%d" % number for number in range(50)]
    await (await broker.client()).publish(*bodies)
    *_, last = await subscriber.next_messages(50)

    await refuse(broker, subscriber, last, requeue="false")

    assert await letters.next_bodies(50) == bodies
    assert subscription_of(broker, subscriber).counters.dead == 50


# Letters that fail ---------------------------------------------------------------------------------------------------


async def test_a_letter_that_fails_again_stays_where_it_is_and_makes_no_new_one(
    durable_broker: BrokerUnderTest,
) -> None:
    await buried(durable_broker)
    await durable_broker.settle()
    reader = await durable_broker.subscriber("/topic/DLQ.a", ack="client-individual", **begin_from("earliest"))
    letter = await reader.next_message()

    await refuse(durable_broker, reader, letter, requeue="false")

    await durable_broker.expect_silence(reader)
    assert subscription_of(durable_broker, reader).counters.discarded == 1
    assert subscription_of(durable_broker, reader).counters.dead == 0
    (still,) = await letters_of(durable_broker)
    assert still.headers["message-id"] == letter.headers["message-id"]
    assert [name for name in durable_broker.registry.topics if "DLQ" in name] == ["DLQ.a"]


async def test_a_letter_whose_attempts_are_used_up_stays_where_it_is(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """It is tried again as any message; then it is left alone, for this subscriber, who goes on with the next."""
    async with running_broker(store_in=store_directory, max_attempts=2, redelivery_jitter=0) as broker:
        await (await broker.durable_subscriber("/topic/DLQ.a")).vanish()
        await buried(broker)
        reader = await broker.durable_subscriber("/topic/DLQ.a")
        refused_ns = await refuse(broker, reader, await reader.next_message())
        await jump_to(broker, mock_clock, refused_ns + 2 * S)
        await refuse(broker, reader, await reader.next_message())
        await broker.expect_silence(reader)

        assert len(await letters_of(broker)) == 1
        await reader.vanish()
        await broker.expect_silence(await broker.durable_subscriber("/topic/DLQ.a"))


# Used up, otherwise --------------------------------------------------------------------------------------------------


async def test_what_is_to_be_discarded_is_counted_and_makes_no_letter(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual", max_attempts="3", when_used_up="discard", **AT_ONCE)
    await (await broker.client()).publish(b"1", b"2")
    first, second = await subscriber.next_messages(2)
    await refuse(broker, subscriber, first)
    await refuse_all(broker, subscriber, 2)

    await trio.sleep(10)

    await subscriber.expect_nothing()
    await subscriber.acknowledge(second)
    subscription = subscription_of(broker, subscriber)
    assert (subscription.counters.discarded, subscription.counters.dead, subscription.waiting) == (1, 0, 0)
    assert "DLQ.a" not in broker.registry.topics


async def test_what_was_discarded_stays_so_after_a_restart(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(max_attempts="1", when_used_up="discard")
        await broker.store_messages(b"1", b"2")
        first, _ = await subscriber.next_messages(2)
        await refuse(broker, subscriber, first)
        await broker.settle()
        assert broker.count("redeliveries") == 0
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        messages = await broker.rest_for(await broker.durable_subscriber())
        assert [message.body for message in messages] == [b"2"]


async def test_a_transient_subscription_that_is_evicted_is_told_so_and_gone(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    letters = await broker.subscriber("/topic/DLQ.a")
    subscriber = await broker.subscriber(ack="client-individual", max_attempts="2", when_used_up="evict", **AT_ONCE)
    await (await broker.client()).publish(b"1", b"2")
    first, _ = await subscriber.next_messages(2)
    await refuse(broker, subscriber, first)

    await subscriber.send("NACK", id=(await subscriber.next_message()).headers["ack"])

    await subscriber.expect_error("subscription evicted", "'a'", "2 times")
    assert [each.pattern.name for each in broker.registry.subscriptions] == ["DLQ.a"]
    await letters.expect_nothing()


async def test_a_durable_subscription_that_is_evicted_is_told_so_and_deleted(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(max_attempts="1", when_used_up="evict")
        await broker.store_messages(b"1", b"2")
        first, _ = await subscriber.next_messages(2)

        await subscriber.send("NACK", id=first.headers["ack"])

        await subscriber.expect_error("subscription evicted", "billing/orders")
        await broker.settle()
        assert broker.registry.durable == {}
        assert broker.count("subscriptions") == 0
        assert broker.count("redeliveries") == 0
        assert await letters_of(broker) == []
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await broker.expect_silence(await broker.durable_subscriber())


async def test_a_durable_subscription_is_evicted_also_while_nobody_is_there(durable_broker: BrokerUnderTest) -> None:
    """The message was lost with its connection once too often."""
    subscriber = await durable_broker.durable_subscriber(max_attempts="1", when_used_up="evict")
    await durable_broker.store_messages(b"1")
    await subscriber.next_message()

    await subscriber.vanish()

    await durable_broker.settle()
    assert durable_broker.registry.durable == {}
    assert durable_broker.count("subscriptions") == 0


async def test_two_messages_that_are_used_up_at_once_evict_once(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber(ack="client", max_attempts="1", when_used_up="evict")
    await durable_broker.store_messages(b"1", b"2", b"3")
    *_, last = await subscriber.next_messages(3)

    await subscriber.send("NACK", id=last.headers["ack"])

    await subscriber.expect_error("subscription evicted")
    await durable_broker.settle()
    durable_broker.check_invariants()
    assert durable_broker.count("subscriptions") == 0


async def test_what_is_refused_for_good_evicts_nobody(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """`evict` is about messages that could not be delivered, not about those that are not wanted."""
    letters = await broker.subscriber("/topic/DLQ.a")
    subscriber = await broker.subscriber(ack="client-individual", when_used_up="evict")
    await (await broker.client()).publish(b"1")

    await refuse(broker, subscriber, await subscriber.next_message(), requeue="false")

    assert await letters.next_bodies(1) == [b"1"]
    await subscriber.sync()


async def test_what_is_refused_for_good_is_discarded_where_the_policy_says_so(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual", when_used_up="discard")
    await (await broker.client()).publish(b"1")

    await refuse(broker, subscriber, await subscriber.next_message(), requeue="false")

    await subscriber.sync()
    assert subscription_of(broker, subscriber).counters.discarded == 1
    assert "DLQ.a" not in broker.registry.topics


# With a store --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [True, False])
async def test_letters_survive_a_restart_and_are_there_for_whoever_comes_later(
    is_killed: bool, store_directory: Path
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", b"2", b"3")
        messages = await subscriber.next_messages(3)
        for message in messages[:2]:
            await refuse(broker, subscriber, message, requeue="false", reason="no paper")
        await broker.settle()
        if is_killed:
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        letters = await letters_of(broker)
        assert [letter.body for letter in letters] == [b"1", b"2"]
        assert {letter.headers["dead-letter-reason"] for letter in letters} == {"no paper"}
        assert [letter.headers["dead-letter-message-id"] for letter in letters] == [
            message.headers["message-id"] for message in messages[:2]
        ]
        rest = await broker.rest_for(await broker.durable_subscriber())
        assert [message.body for message in rest] == [b"3"]


async def test_letters_of_transient_subscriptions_survive_a_kill(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await buried(broker)
        await broker.settle()
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert [letter.body for letter in await letters_of(broker)] == [b"1"]


async def test_a_letter_and_the_end_of_its_message_are_one_step(store_directory: Path) -> None:
    """Killed before that is written, the message is still to die; so it is in the dead letters once, whatever was."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1")
        message = await subscriber.next_message()
        with broker.held_store():
            await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
            await wait_all_tasks_blocked()
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        (message,) = await broker.rest_for(subscriber)
        await refuse(broker, subscriber, message, requeue="false")
        assert [letter.body for letter in await letters_of(broker)] == [b"1"]


async def test_what_died_is_one_letter_however_often_the_broker_starts(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(max_attempts="1")
        await broker.store_messages(b"1")
        await refuse(broker, subscriber, await subscriber.next_message())
        broker.kill()

    for _ in range(3):
        async with running_broker(store_in=store_directory) as broker:
            assert [letter.body for letter in await letters_of(broker)] == [b"1"]
            assert broker.count("redeliveries") == 0
            broker.kill()


async def test_what_has_to_be_read_back_first_dies_as_well(store_directory: Path, mock_clock: MockClock) -> None:
    headers: dict[str, Any] = {"redelivery_delay": "60000", "redelivery_jitter": "0"}
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(**headers)
        await broker.store_messages(*[b"%d" % number for number in range(20)])
        *_, last = await subscriber.next_messages(20)
        for message in range(1, 20):
            await subscriber.send("NACK", id=f"1-{message}")
        refused_ns = await refuse(broker, subscriber, last)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await broker.durable_subscriber(max_attempts="1")
        assert broker.registry.topics["a"].log.message_count == 0

        await jump_to(broker, mock_clock, refused_ns + 61 * S)

        assert [int(letter.body) for letter in await letters_of(broker)] == list(range(20))


async def test_letters_do_not_count_against_how_many_topics_there_may_be(autojump_clock: MockClock) -> None:
    async with running_broker(max_topics=1) as broker:
        letters = await broker.subscriber("/topic/DLQ.>")

        await buried(broker)

        assert await letters.next_bodies(1) == [b"1"]


# While nothing can be written ----------------------------------------------------------------------------------------


@contextmanager
def locked(data: Path) -> Iterator[sqlite3.Connection]:
    """Another process holds the file until it rolls back."""
    with closing(sqlite3.connect(data / "stompbroker.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails is tried again soon: these tests wait for that, and not for time to pass."""
    monkeypatch.setattr("stompbroker.actors.journal.FIRST_RETRY_S", 0.01)
    monkeypatch.setattr("stompbroker.actors.journal.LAST_RETRY_S", 0.02)
    monkeypatch.setattr("stompbroker.changes.dead_letters.RETRY_NS", 20 * MS)
    monkeypatch.setattr("stompbroker.storage.sqlite.file.BUSY_TIMEOUT_MS", 0)


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("is_durable", [True, False])
async def test_what_dies_while_the_gate_is_closed_waits_and_is_buried_later(
    is_durable: bool, durable_broker: BrokerUnderTest
) -> None:
    stored = await durable_broker.durable_subscriber("/topic/stored", "stored")
    if is_durable:
        subscriber = await durable_broker.durable_subscriber(client_id="other")
    else:
        subscriber = await durable_broker.subscriber(ack="client-individual")
    await durable_broker.store_messages(b"1", b"2")
    first, second = await subscriber.next_messages(2)
    subscription = subscription_of(durable_broker, subscriber)
    publisher = await durable_broker.client()
    with locked(durable_broker.parts.settings.data) as other:
        await publisher.publish(b"the first to wait", destination="/topic/stored")
        await until(lambda: durable_broker.journal.gate.is_blocked)

        await subscriber.send("NACK", id=first.headers["ack"], requeue="false")
        await subscriber.send("NACK", id=second.headers["ack"], requeue="false")
        await until(lambda: subscription.waiting == 2)
        # In the meantime it is tried again, several times.
        await trio.sleep(0.1)

        assert (subscription.waiting, subscription.counters.dead) == (2, 0)
        other.execute("ROLLBACK")
        await until(lambda: subscription.counters.dead == 2)
    # Each is tried again by itself, so either may be the first.
    assert sorted(letter.body for letter in await letters_of(durable_broker)) == [b"1", b"2"]
    assert subscription.waiting == 0
    assert await stored.next_bodies(1) == [b"the first to wait"]


@pytest.mark.usefixtures("quick_retries")
async def test_what_is_acknowledged_while_it_waits_to_be_buried_is_not(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await subscriber.next_message()
    subscription = subscription_of(durable_broker, subscriber)
    publisher = await durable_broker.client()
    with locked(durable_broker.parts.settings.data) as other:
        await publisher.publish(b"the first to wait")
        await until(lambda: durable_broker.journal.gate.is_blocked)
        await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
        await until(lambda: subscription.waiting)
        await subscriber.send("ACK", id=message.headers["ack"])
        await until(lambda: subscription.counters.acked)
        other.execute("ROLLBACK")
        await until(lambda: not durable_broker.journal.gate.is_blocked)

    assert await letters_of(durable_broker) == []
    assert (subscription.counters.dead, subscription.counters.acked) == (0, 1)


async def test_an_ack_that_meets_the_burial_of_its_message_leaves_one_letter_and_no_message(
    store_directory: Path,
) -> None:
    """The letter is being written, so it counts, and the ACK is late."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1")
        message = await subscriber.next_message()
        with broker.held_store():
            await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
            await wait_all_tasks_blocked()
            await subscriber.send("ACK", id=message.headers["ack"])
            await wait_all_tasks_blocked()
        await broker.settle()
        broker.check_invariants()
        assert [letter.body for letter in await letters_of(broker)] == [b"1"]
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await broker.expect_silence(await broker.durable_subscriber())
        assert broker.count("redeliveries") == 0
