"""Headers that would change a delivery, and are not there, are an ERROR that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.conformance.versions import every_version

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.stomp import Version
    from tests.support.broker_under_test import BrokerUnderTest, Client

REFUSED = [
    ("SEND", "AMQ_SCHEDULED_DELAY", "60000", "when it is due"),
    ("SEND", "AMQ_SCHEDULED_TIME", "1795000000000", "when it is due"),
    ("SEND", "AMQ_SCHEDULED_PERIOD", "1000", "when it is due"),
    ("SEND", "AMQ_SCHEDULED_REPEAT", "9", "when it is due"),
    ("SEND", "AMQ_SCHEDULED_CRON", "0 * * * *", "when it is due"),
    ("SEND", "x-delay", "1", "when it is due"),
    ("SEND", "x-message-ttl", "1000", "use ttl"),
    ("SEND", "destination-type", "ANYCAST", "/queue/NAME goes to one"),
    ("SEND", "_AMQ_DUPL_ID", "42", "number your messages"),
    ("SUBSCRIBE", "selector", "price > 10", "filter what you get"),
    ("SUBSCRIBE", "x-stream-filter", "eu", "filter what you get"),
    ("SUBSCRIBE", "browser-end", "false", "cannot follow"),
    ("SUBSCRIBE", "subscription-type", "ANYCAST", "/queue/NAME goes to one"),
    ("SUBSCRIBE", "destination-type", "anycast", "/queue/NAME goes to one"),
    ("SUBSCRIBE", "activemq.retroactive", "true", "from:earliest"),
    ("SUBSCRIBE", "from-seq", "0", "from:offset=NUMBER"),
    ("SUBSCRIBE", "include-seq", "seq", "offset"),
    ("SUBSCRIBE", "x-message-ttl", "1000", "let the publisher send ttl"),
    ("SUBSCRIBE", "x-max-length", "10", "let the publisher send ttl"),
    ("SUBSCRIBE", "x-expires", "1000", "idle_delete_s"),
    ("SUBSCRIBE", "x-dead-letter-exchange", "dlx", "/topic/DLQ.<topic>"),
]
HARMLESS = [
    *[("SEND", header, "0") for header in ("AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_REPEAT", "x-delay")],
    ("SEND", "destination-type", "MULTICAST"),
    ("SEND", "retain", "false"),
    ("SEND", "reply-to", "/topic/answers"),
    ("SEND", "JMSXGroupID", "g"),
    ("SEND", "message_group", "g"),
    ("SEND", "priority", "9"),
    ("SEND", "selector", "price > 10"),
    ("SUBSCRIBE", "selector", ""),
    ("SUBSCRIBE", "browser", "false"),
    ("SUBSCRIBE", "browser-end", "true"),
    ("SUBSCRIBE", "exclusive", "False"),
    ("SUBSCRIBE", "activemq.exclusive", "false"),
    ("SUBSCRIBE", "activemq.retroactive", "false"),
    ("SUBSCRIBE", "subscription-type", "MULTICAST"),
    ("SUBSCRIBE", "from-seq", "-1"),
    ("SUBSCRIBE", "activemq.priority", "5"),
    ("SUBSCRIBE", "x-delay", "1000"),
]


async def send_with(client: Client, command: str, header: str, value: str, **headers: str) -> None:
    named = {"id": "0"} if command == "SUBSCRIBE" else {}
    # Not as keywords of `send`, which reads `_` as `-`.
    pairs = {"destination": "/topic/a", header: value, "receipt": "r"} | named | headers
    lines = "".join(f"{name}:{text}\n" for name, text in pairs.items())
    await client.send_raw(f"{command}\n{lines}\n\0".encode())


@pytest.mark.parametrize(("command", "header", "value", "instead"), REFUSED)
async def test_it_is_an_error_that_says_what_to_do_instead(
    broker: BrokerUnderTest, autojump_clock: MockClock, command: str, header: str, value: str, instead: str
) -> None:
    client = await broker.client()

    await send_with(client, command, header, value)

    error = await client.expect_error(f"unsupported header {header!r}", repr(value), instead)
    assert error.headers["receipt-id"] == "r"
    assert not broker.registry.topics
    assert not broker.registry.subscriptions


@pytest.mark.parametrize(("command", "header", "value"), HARMLESS)
async def test_what_asks_for_nothing_special_is_accepted(
    broker: BrokerUnderTest, autojump_clock: MockClock, command: str, header: str, value: str
) -> None:
    client = await broker.client()

    await send_with(client, command, header, value)

    await client.expect_receipt("r")


@every_version
async def test_a_message_in_a_transaction_is_refused_before_its_commit(
    broker: BrokerUnderTest, autojump_clock: MockClock, version: Version
) -> None:
    client = await broker.client(version)
    await client.send("BEGIN", transaction="t")

    await send_with(client, "SEND", "x-delay", "1000", transaction="t")

    await client.expect_error("unsupported header", "'x-delay'")


async def test_a_word_that_is_neither_true_nor_false_is_malformed(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()

    await send_with(client, "SUBSCRIBE", "browser", "maybe")

    await client.expect_error("malformed header 'browser'", "true or false")


async def test_a_header_block_is_looked_at_once_however_often_it_comes(
    broker: BrokerUnderTest, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def count(_headers: object, _unsupported: object) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr("stompbroker.sessions.publishing.refuse_unsupported", count)
    client = await broker.client()

    await client.publish(*[b"x"] * 1000, priority="9")
    await client.sync()

    assert looks <= 2, "a block is remembered when it comes for the second time"
