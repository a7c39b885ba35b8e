"""What a client must not ask of queues, groups and temporary destinations is an ERROR whose `message` says what was
wrong and what is allowed; and nothing is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client

#: Of each: what the destination is, and what the `message` header says.
DESTINATIONS: Final = [
    ("/queue/*", ("'/queue/*' has a wildcard", "a queue has one name")),
    ("/queue/a.>", ("'/queue/a.>' has a wildcard", "only topics")),
    ("/queue/a.#", ("'/queue/a.#' has a wildcard", "only topics")),
    ("/queue/a.**.b", ("'/queue/a.**.b' has a wildcard", "only topics")),
    ("/queue/", ("names no queue", "use /queue/NAME")),
    ("/queue/" + "q" * 256, ("a queue name may have 255 bytes", "has 256")),
    ("/topic/a,/topic/b", ("means several destinations", "each of them for itself")),
    ("/queue/a,/queue/b", ("means several destinations", "each of them for itself")),
    ("/queue/a,/topic/b", ("means several destinations", "each of them for itself")),
    ("queue/x", ("'queue/x' is not how a queue is written", "use /queue/NAME")),
    ("queue://x", ("'queue://x' is not how a queue is written", "use /queue/NAME")),
    ("/queues/x", ("'/queues/x' is not how a queue is written", "use /queue/NAME")),
    ("/Queue/x", ("'/Queue/x' is not how a queue is written", "use /queue/NAME")),
    ("/topics/x", ("'/topics/x' is not how a topic is written", "use /topic/NAME")),
]
GROUP: Final = {"group": "g", "auto-delete": "true"}
SUBSCRIBES: Final[list[tuple[str, dict[str, str], tuple[str, ...]]]] = [
    ("/topic/a", {"group": ""}, ("'group'", "at least one character")),
    ("/topic/a", {"group": "g" * 256}, ("'group'", "255 bytes are allowed", "256")),
    ("/topic/a", {**GROUP, "no-local": "true"}, ("no-local contradicts sharing", "leave no-local out")),
    ("/topic/a", {**GROUP, "activemq.noLocal": "true"}, ("no-local contradicts sharing", "leave no-local out")),
    ("/topic/a", {"group": "g", "durable-subscription-name": "n"}, ("'durable-subscription-name'", "shared:true")),
    ("/topic/a", {"group": "g", "durable-subscriber-name": "n"}, ("'durable-subscriber-name'", "shared:true")),
    ("/topic/a", {"group": "g", "activemq.subscriptionName": "n"}, ("'activemq.subscriptionName'", "shared:true")),
    ("/topic/a", {"group": "g", "x-queue-name": "n"}, ("'x-queue-name'", "shared:true")),
    ("/topic/a", {"group": "g", "durable": "false"}, ("group contradicts durable:false", "auto-delete:true")),
    ("/topic/a", {"group": "g", "ordering": "strict"}, ("ordering:strict", "ack:client")),
    (
        "/topic/a",
        {"group": "g", "ordering": "strict", "exclusive": "false", "ack": "client"},
        ("ordering:strict contradicts 'exclusive'", "leave exclusive out"),
    ),
    (
        "/queue/a",
        {"ordering": "strict", "single-active": "false", "ack": "client"},
        ("ordering:strict contradicts 'single-active'", "leave single-active out"),
    ),
    (
        "/topic/a",
        {"durable-subscription-name": "n", "auto-delete": "true"},
        ("auto-delete:true contradicts 'durable-subscription-name'", "group:NAME"),
    ),
    (
        "/topic/a",
        {"activemq.subscriptionName": "n", "shared": "true", "auto-delete": "true"},
        ("auto-delete:true contradicts 'activemq.subscriptionName'", "group:NAME"),
    ),
    ("/topic/a", {"shared": "true", "auto-delete": "true"}, ("shared:true", "group:NAME")),
    ("/topic/a", {"exclusive": "true"}, ("exclusive:true", "group:NAME")),
    ("/topic/a", {"selector": "a = 1"}, ("unsupported header 'selector'", "without this header")),
    ("/queue/a", {"selector": "a = 1"}, ("unsupported header 'selector'", "without this header")),
    ("/topic/a", {**GROUP, "selector": "a = 1"}, ("unsupported header 'selector'", "without this header")),
    ("/queue/a", {"group": "g"}, ("'group' is not for queues", "leave the header out")),
    ("/queue/a", {"no-local": "true"}, ("no-local", "leave no-local out")),
]
#: Of a member that joins a group with these headers besides; it is told the group's name, too.
OTHERWISE: Final = [
    ({"exclusive": "true"}, {}, ("group has another exclusive", "has one active member")),
    ({}, {"exclusive": "true"}, ("group has another exclusive", "has not")),
    ({"ordering": "strict"}, {"exclusive": "true"}, ("group has another ordering", "is ordered")),
    ({"max-attempts": "3"}, {}, ("group has another redelivery", "max_attempts")),
    ({"redelivery-delay": "5"}, {"redelivery-delay": "7"}, ("group has another redelivery", "first_delay_ms")),
    ({"auto-delete": "true"}, {}, ("group has another auto-delete", "leave auto-delete out")),
]


async def send(client: Client, command: str, destination: str, headers: dict[str, str]) -> None:
    """`client.send` would read `_` in the names."""
    pairs = {"id": "0"} | {"destination": destination, "receipt": "r"} | headers
    lines = "".join(f"{name}:{value.replace(':', chr(92) + 'c')}\n" for name, value in pairs.items())
    await client.send_raw(f"{command}\n{lines}\n\0".encode())


async def expect_message(client: Client, *words: str) -> None:
    error = await client.expect_error()
    assert error.headers["receipt-id"] == "r"
    for text in words:
        assert text in error.headers["message"]


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize(("destination", "words"), DESTINATIONS)
async def test_a_destination_that_is_none(
    broker: BrokerUnderTest, autojump_clock: MockClock, command: str, destination: str, words: tuple[str, ...]
) -> None:
    client = await broker.client()

    await send(client, command, destination, {})

    await expect_message(client, "invalid destination", *words)
    assert not broker.registry.topics
    assert not broker.registry.subscriptions


@pytest.mark.parametrize(("destination", "headers", "words"), SUBSCRIBES)
async def test_headers_that_contradict_each_other(
    store_directory: Path, destination: str, headers: dict[str, str], words: tuple[str, ...]
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        client = await broker.client(client_id="c")

        await send(client, "SUBSCRIBE", destination, headers)

        await expect_message(client, *words)
        assert not broker.registry.topics
        assert not broker.registry.subscriptions


@pytest.mark.parametrize(("newcomers", "given", "words"), OTHERWISE)
async def test_a_member_that_asks_otherwise_than_its_group(
    store_directory: Path, newcomers: dict[str, str], given: dict[str, str], words: tuple[str, ...]
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        first = await broker.client()
        await send(first, "SUBSCRIBE", "/topic/a", {"group": "g", "ack": "client", **given})
        await first.expect_receipt("r")
        client = await broker.client()

        await send(client, "SUBSCRIBE", "/topic/a", {"group": "g", "ack": "client", **newcomers})

        await expect_message(client, *words, "group:g @ a")
        await first.sync()


async def test_somebody_elses_temporary_destination(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    worker = await broker.subscriber("/queue/requests")
    caller = await broker.client()
    await caller.send("SEND", destination="/queue/requests", reply_to="/temp-queue/mine")
    reply_to = (await worker.next_message()).headers["reply-to"]

    await send(worker, "SUBSCRIBE", reply_to, {})

    await expect_message(worker, "invalid destination", "temporary destination", "only one connection has")
