"""A durable subscription in every broker's dialect: made, resumed, kept over a restart, and deleted.

Law: each dialect is a table row; every behaviour is shown for every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from stompbroker.stomp import Version
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest, Client


NAME_HEADERS = ("activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name")


class Dialect(NamedTuple):
    connect: dict[str, str]
    subscribe: dict[str, str]

    def __str__(self) -> str:
        return "+".join(f"{name}:{value}" for name, value in (*self.connect.items(), *self.subscribe.items()))

    async def client(self, broker: BrokerUnderTest, version: Version = Version.V1_2) -> Client:
        return await broker.client(version, **self.connect)

    async def subscriber(self, broker: BrokerUnderTest, version: Version = Version.V1_2) -> Client:
        client = await self.client(broker, version)
        await client.subscribe(id="orders", **self.subscribe)
        return client


def _dialects() -> list[Dialect]:
    known = {"client-id": "billing"}
    dialects = [Dialect(known, {header: "orders"}) for header in NAME_HEADERS]
    for who in (known, {}):
        dialects += [Dialect(who, {header: "true"}) for header in ("durable", "persistent")]
        dialects.append(Dialect(who, {"x-queue-name": "orders"}))
    return dialects


def _spelt_out(dialect: Dialect) -> Dialect:
    """RabbitMQ's clients also say that it is to stay."""
    return Dialect(dialect.connect, dialect.subscribe | {"auto-delete": "false"})


each_dialect = pytest.mark.parametrize("dialect", _dialects(), ids=str)
every_dialect = pytest.mark.parametrize("dialect", [*_dialects(), *map(_spelt_out, _dialects())], ids=str)


@every_dialect
async def test_it_gets_what_was_published_while_it_was_away(dialect: Dialect, durable_broker: BrokerUnderTest) -> None:
    subscriber = await dialect.subscriber(durable_broker)
    await subscriber.vanish()
    await durable_broker.store_messages(b"1", b"2")

    again = await dialect.subscriber(durable_broker)

    assert await again.next_bodies(2) == [b"1", b"2"]
    await durable_broker.expect_silence(again)


@every_dialect
async def test_it_is_there_after_a_restart_and_then_can_be_deleted(dialect: Dialect, store_directory: Path) -> None:
    """Deleted by an UNSUBSCRIBE with the same headers, without having subscribed."""
    async with running_broker(store_in=store_directory) as broker:
        await dialect.subscriber(broker)
        await broker.settle()
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await broker.store_messages(b"1")
        subscriber = await dialect.subscriber(broker)
        assert await subscriber.next_bodies(1) == [b"1"]
        await subscriber.vanish()
        assert broker.count("subscriptions") == 1

        client = await dialect.client(broker)
        await client.send("UNSUBSCRIBE", id="orders", destination="/topic/a", receipt="gone", **dialect.subscribe)
        await client.expect_receipt("gone")

        assert broker.count("subscriptions") == 0
        assert not broker.registry.durable
        await broker.store_messages(b"2")
        again = await dialect.subscriber(broker)
        await broker.expect_silence(again)


@every_dialect
async def test_unsubscribe_with_the_same_headers_deletes_an_open_one(
    dialect: Dialect, durable_broker: BrokerUnderTest
) -> None:
    """Without its destination, as RabbitMQ's and ActiveMQ's clients do it."""
    subscriber = await dialect.subscriber(durable_broker)

    await subscriber.send("UNSUBSCRIBE", id="orders", receipt="gone", **dialect.subscribe)
    await subscriber.expect_receipt("gone")

    assert durable_broker.count("subscriptions") == 0
    await durable_broker.store_messages(b"1")
    await durable_broker.expect_silence(subscriber)
    assert durable_broker.count("messages") == 0


@each_dialect
async def test_unsubscribe_without_destination_deletes_one_that_is_not_open(
    dialect: Dialect, durable_broker: BrokerUnderTest
) -> None:
    subscriber = await dialect.subscriber(durable_broker)
    await subscriber.vanish()

    client = await dialect.client(durable_broker)
    await client.send("UNSUBSCRIBE", id="orders", receipt="gone", **dialect.subscribe)
    await client.expect_receipt("gone")

    assert durable_broker.count("subscriptions") == 0


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("header", NAME_HEADERS)
async def test_a_named_one_in_every_version(header: str, version: Version, durable_broker: BrokerUnderTest) -> None:
    """Resumed in another version than the one it was made in; in 1.0 it needs no id."""
    made = await durable_broker.client(Version.V1_2, client_id="billing")
    await made.subscribe(**{header: "orders"})
    await made.vanish()
    await durable_broker.store_messages(b"1")

    client = await durable_broker.client(version, client_id="billing")
    headers = {header: "orders"} | ({} if version is Version.V1_0 else {"id": "7"})
    await client.send("SUBSCRIBE", destination="/topic/a", receipt="subscribed", **headers)
    await client.expect_receipt("subscribed")
    message = await client.next_message()

    assert message.body == b"1"
    assert message.headers.get("subscription") == (None if version is Version.V1_0 else "7")
    await client.send("UNSUBSCRIBE", destination="/topic/a", receipt="gone", **headers)
    await client.expect_receipt("gone")
    assert durable_broker.count("subscriptions") == 0


@pytest.mark.parametrize("version", [Version.V1_0, Version.V1_1])
async def test_answers_of_the_older_versions_count_over_a_restart(version: Version, store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(version=version, ack="client")
        await broker.store_messages(b"1", b"2", b"3")
        _, second, _ = await subscriber.next_messages(3)
        headers = {"message_id": second.headers["message-id"], "receipt": "acknowledged"}
        await subscriber.send("ACK", **headers, **({} if version is Version.V1_0 else {"subscription": "0"}))
        await subscriber.expect_receipt("acknowledged")
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(version=version, ack="client")
        assert await subscriber.next_bodies(1) == [b"3"]
        await broker.expect_silence(subscriber)


@pytest.mark.parametrize("headers", [{"durable": "true"}, {"persistent": "true"}, {"x-queue-name": "orders"}], ids=str)
async def test_auto_delete_makes_it_transient(headers: dict[str, Any], durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.subscriber(id="orders", auto_delete="true", **headers)
    await durable_broker.store_messages(b"1")
    assert await subscriber.next_bodies(1) == [b"1"]
    await subscriber.vanish()
    await durable_broker.store_messages(b"2")

    again = await durable_broker.subscriber(id="orders", auto_delete="true", **headers)

    await durable_broker.expect_silence(again)
    assert durable_broker.count("subscriptions") == 0
    assert durable_broker.count("messages") == 0


@pytest.mark.parametrize("headers", [{"durable": "false"}, {"persistent": "false"}], ids=str)
async def test_what_says_that_it_is_not_durable_is_not(
    headers: dict[str, Any], durable_broker: BrokerUnderTest
) -> None:
    await durable_broker.subscriber(id="orders", **headers)

    assert durable_broker.count("subscriptions") == 0


@each_dialect
async def test_dsub_finds_it_and_deletes_it(dialect: Dialect, durable_broker: BrokerUnderTest) -> None:
    subscriber = await dialect.subscriber(durable_broker)
    await subscriber.vanish()
    await durable_broker.store_messages(b"1")

    client = await durable_broker.client()
    await client.subscribe("/dsub/orders", id="7", ack="client")
    message = await client.next_message()

    assert (message.body, message.headers["destination"]) == (b"1", "/topic/a")
    await client.send("UNSUBSCRIBE", id="7", destination="/dsub/orders", persistent="true", receipt="gone")
    await client.expect_receipt("gone")
    assert durable_broker.count("subscriptions") == 0


async def test_dsub_is_detached_by_a_plain_unsubscribe(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await subscriber.vanish()
    client = await durable_broker.client()
    await client.subscribe("/dsub/orders", id="7")

    await client.send("UNSUBSCRIBE", id="7", receipt="left")
    await client.expect_receipt("left")
    await durable_broker.store_messages(b"1")

    await durable_broker.expect_silence(client)
    again = await durable_broker.durable_subscriber()
    assert await again.next_bodies(1) == [b"1"]


async def test_dsub_without_an_id_is_unsubscribed_from_by_its_destination(durable_broker: BrokerUnderTest) -> None:
    """STOMP 1.0: a subscription without id is known by the destination that its SUBSCRIBE gave."""
    subscriber = await durable_broker.durable_subscriber()
    await subscriber.vanish()
    client = await durable_broker.client(Version.V1_0)
    await client.send("SUBSCRIBE", destination="/dsub/orders", receipt="subscribed")
    await client.expect_receipt("subscribed")

    await client.send("UNSUBSCRIBE", destination="/dsub/orders", receipt="left")

    await client.expect_receipt("left")
    assert durable_broker.count("subscriptions") == 1


async def test_in_1_0_another_spelling_of_the_destination_is_what_it_is_known_by(
    durable_broker: BrokerUnderTest,
) -> None:
    """It was made as /topic/a; the client that resumes it spells it a, and unsubscribes in its own spelling."""
    made = await durable_broker.durable_subscriber("/topic/a")
    await made.vanish()
    client = await durable_broker.client(Version.V1_0, client_id="billing")
    await client.send("SUBSCRIBE", destination="a", durable_subscription_name="orders", receipt="subscribed")
    await client.expect_receipt("subscribed")

    await client.send("UNSUBSCRIBE", destination="a", receipt="left")

    await client.expect_receipt("left")
    assert durable_broker.count("subscriptions") == 1


async def test_without_a_store_a_durable_subscribe_is_an_error_that_says_so() -> None:
    async with running_broker() as broker:
        client = await broker.client(client_id="billing")

        await client.send("SUBSCRIBE", id="0", destination="/topic/a", durable="true", receipt="subscribed")

        error = await client.expect_error("no durable subscriptions", 'database = "memory"')
        assert error.headers["receipt-id"] == "subscribed"
