"""Operators look at dead letters, send them once more, or let them go."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

import pytest

from stompbroker.control import ControlError
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


@pytest.fixture
async def broker(store_directory: Path) -> AsyncIterator[BrokerUnderTest]:
    async with running_broker(store_in=store_directory) as broker:
        yield broker


async def kill(broker: BrokerUnderTest, subscriber: Client, *bodies: bytes, reason: str = "no") -> list[Frame]:
    """Publish these, and have the subscriber refuse them for good."""
    await broker.store_messages(*bodies, tenant="acme", ttl="3600000")
    messages = await subscriber.next_messages(len(bodies))
    for message in messages:
        await subscriber.send("NACK", id=message.headers["ack"], reason=reason, requeue="false")
    await subscriber.sync()
    await broker.settle()
    return messages


async def test_topics_with_dead_letters_are_listed(broker: BrokerUnderTest) -> None:
    subscriber = await broker.durable_subscriber()
    assert await broker.parts.control.call("dead_letter_topics", {}) == {"topics": []}

    await kill(broker, subscriber, b"one", b"two")

    (found,) = (await broker.parts.control.call("dead_letter_topics", {}))["topics"]
    assert (found["topic"], found["destination"], found["letters"]) == ("a", "/topic/DLQ.a", 2)
    assert found["bytes"] > 0
    assert found["oldest_died_at"]


async def test_letters_are_listed_filtered_and_in_pieces(broker: BrokerUnderTest) -> None:
    subscriber = await broker.durable_subscriber()
    other = await broker.durable_subscriber(client_id="audit")
    messages = await kill(broker, subscriber, b"one", b"two", b"three", reason="no paper")
    await other.acknowledge(*await other.next_messages(3))
    call = broker.parts.control.call

    first = await call("dead_letters", {"topic": "a", "limit": 2})
    second = await call("dead_letters", {"topic": "DLQ.a", "after": first["after"], "limit": 2})

    assert [letter["offset"] for letter in first["letters"] + second["letters"]] == [0, 1, 2]
    assert (first["is_complete"], second["is_complete"]) == (False, True)
    letter = first["letters"][0]
    assert letter["original_message_id"] == messages[0].headers["message-id"]
    assert (letter["subscription"], letter["reason"], letter["attempts"]) == ("billing/orders", "no paper", 1)
    assert letter["cause"] == "refused"
    assert letter["last_attempt_at"]
    for wanted, count in (
        ({"subscription": "billing/orders"}, 3),
        ({"subscription": "audit/orders"}, 0),
        ({"reason": "PAPER"}, 3),
        ({"reason": "ink"}, 0),
        ({"message_id": messages[1].headers["message-id"]}, 1),
        ({"offset": 2}, 1),
    ):
        assert len((await call("dead_letters", {"topic": "/topic/a", **wanted}))["letters"]) == count, wanted


async def test_a_letter_is_shown_whole(broker: BrokerUnderTest) -> None:
    subscriber = await broker.durable_subscriber()
    await kill(broker, subscriber, b"one\0two")

    shown = await broker.parts.control.call("dead_letter", {"topic": "a", "offset": 0})

    assert b64decode(shown["body"]) == b"one\0two"
    headers = dict(shown["headers"])
    assert headers["tenant"] == "acme"
    assert headers["destination"] == "/topic/DLQ.a"
    assert "ttl" not in headers
    assert shown["destination"] == "/topic/a"


async def test_a_message_that_dies_again_names_only_the_message_it_was_last_redriven_from(
    broker: BrokerUnderTest,
) -> None:
    subscriber = await broker.durable_subscriber()
    (message,) = await kill(broker, subscriber, b"one")

    for _ in range(3):
        await broker.parts.control.call("redrive_dead_letters", {"topic": "a"})
        again = await subscriber.next_message()
        assert again.headers["redrive-of"] == message.headers["message-id"]
        assert subscriber.received.split(b"MESSAGE\n")[-1].count(b"\nredrive-of:") == 1
        await subscriber.send("NACK", id=again.headers["ack"], requeue="false")
        await broker.settle()
        message = again


async def test_redrive_goes_to_the_one_subscriber_that_failed_and_takes_the_letter_away(
    broker: BrokerUnderTest,
) -> None:
    subscriber = await broker.durable_subscriber()
    other = await broker.durable_subscriber(client_id="audit")
    transient = await broker.subscriber()
    (message,) = await kill(broker, subscriber, b"one")
    await other.acknowledge(await other.next_message())
    assert (await transient.next_message()).body == b"one"

    answer = await broker.parts.control.call("redrive_dead_letters", {"topic": "a"})

    assert (answer["redriven"], answer["skipped"], answer["is_complete"]) == (1, [], True)
    again = await subscriber.next_message()
    assert again.body == b"one"
    assert again.headers["destination"] == "/topic/a"
    assert again.headers["tenant"] == "acme"
    assert again.headers["redrive-of"] == message.headers["message-id"]
    assert (again.headers["redelivered"], again.headers["delivery-count"]) == ("false", "1")
    assert not [name for name in again.headers if name.startswith("dead-letter-")]
    await subscriber.acknowledge(again)
    await broker.expect_silence(other, transient, subscriber)
    assert (await broker.parts.control.call("dead_letter_topics", {}))["topics"] == []


async def test_redrive_to_the_topic_reaches_everybody(broker: BrokerUnderTest) -> None:
    subscriber = await broker.durable_subscriber()
    await kill(broker, subscriber, b"one")
    other = await broker.subscriber()

    answer = await broker.parts.control.call("redrive_dead_letters", {"topic": "a", "to": "topic"})

    assert answer["redriven"] == 1
    assert (await subscriber.next_message()).body == b"one"
    assert (await other.next_message()).body == b"one"


async def test_a_letter_whose_subscription_is_gone_stays_and_says_why(broker: BrokerUnderTest) -> None:
    subscriber = await broker.durable_subscriber()
    await kill(broker, subscriber, b"one")
    await subscriber.vanish()
    await broker.delete_subscription("billing/orders")
    again = await broker.durable_subscriber()  # of the same name, but another

    answer = await broker.parts.control.call("redrive_dead_letters", {"topic": "a"})

    assert answer["redriven"] == 0
    ((offset, why),) = [(skipped["offset"], skipped["why"]) for skipped in answer["skipped"]]
    assert offset == 0
    assert "is gone" in why
    assert (await broker.parts.control.call("dead_letter_topics", {}))["topics"][0]["letters"] == 1
    await broker.expect_silence(again)


async def test_redriven_and_lost_before_it_is_acknowledged_it_comes_after_a_restart(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        other = await broker.durable_subscriber(client_id="audit")
        await kill(broker, subscriber, b"one")
        await other.acknowledge(await other.next_message())
        await broker.parts.control.call("redrive_dead_letters", {"topic": "a"})
        broker.kill()
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        other = await broker.durable_subscriber(client_id="audit")
        assert (await subscriber.next_message()).body == b"one"
        await broker.expect_silence(other)
        assert broker.look("SELECT count(*) FROM messages") == [(1,)]


async def test_purged_letters_are_gone(broker: BrokerUnderTest) -> None:
    subscriber = await broker.durable_subscriber()
    await kill(broker, subscriber, b"one", b"two", b"three")

    answer = await broker.parts.control.call("purge_dead_letters", {"topic": "a", "limit": 2})

    assert (answer["purged"], answer["is_complete"]) == (2, False)
    assert [letter["offset"] for letter in (await letters(broker))] == [2]
    reader = await broker.client()
    await reader.subscribe("/topic/DLQ.a", **{"from": "earliest"})
    assert (await reader.next_message()).body == b"three"
    await broker.expect_silence(reader)


@pytest.mark.parametrize(
    ("method", "params", "said"),
    [
        ("dead_letters", {"topic": "b"}, "there are no dead letters of 'b'"),
        ("dead_letters", {"topic": "a.*"}, "is a pattern"),
        ("dead_letters", {}, "missing: topic"),
        ("dead_letters", {"topic": "a", "limit": 0}, "limit is a whole number from 1 to 1000"),
        ("dead_letters", {"topic": "a", "reason": 7}, "reason is a text"),
        ("dead_letter", {"topic": "a", "offset": 99}, "there is no dead letter at offset 99"),
        ("redrive_dead_letters", {"topic": "a", "to": "all"}, "to is one of subscriber, topic"),
    ],
)
async def test_what_cannot_be_done_is_said(
    broker: BrokerUnderTest, method: str, params: dict[str, object], said: str
) -> None:
    subscriber = await broker.durable_subscriber()
    await kill(broker, subscriber, b"one")
    with pytest.raises(ControlError, match=said):
        await broker.parts.control.call(method, params)


async def letters(broker: BrokerUnderTest) -> list[dict[str, object]]:
    found: list[dict[str, object]] = (await broker.parts.control.call("dead_letters", {"topic": "a"}))["letters"]
    return found
