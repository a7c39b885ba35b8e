"""Which SUBSCRIBEs mean the same durable subscription, and what is said about those that mean none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest


async def test_one_name_under_two_client_ids_is_two_subscriptions(durable_broker: BrokerUnderTest) -> None:
    mine = await durable_broker.durable_subscriber(client_id="mine", ack="auto")
    yours = await durable_broker.durable_subscriber(client_id="yours", ack="auto")

    await durable_broker.store_messages(b"1")

    assert await mine.next_bodies(1) == await yours.next_bodies(1) == [b"1"]
    assert durable_broker.count("subscriptions") == 2


async def test_a_queue_name_is_the_same_for_every_client(durable_broker: BrokerUnderTest) -> None:
    mine = await durable_broker.client(client_id="mine")
    await mine.subscribe(x_queue_name="orders")
    await mine.vanish()
    await durable_broker.store_messages(b"1")

    yours = await durable_broker.client(client_id="yours")
    await yours.subscribe(x_queue_name="orders")

    assert await yours.next_bodies(1) == [b"1"]


async def test_a_queue_name_and_a_subscription_name_are_two(durable_broker: BrokerUnderTest) -> None:
    await durable_broker.durable_subscriber(name="orders")
    client = await durable_broker.client(client_id="billing")

    await client.subscribe(x_queue_name="orders")

    assert durable_broker.count("subscriptions") == 2


@pytest.mark.parametrize("how", [{"durable_subscription_name": "orders"}, {"x_queue_name": "orders"}], ids=str)
async def test_a_named_one_with_another_destination_is_an_error_that_says_how_to_delete_it(
    how: dict[str, str], durable_broker: BrokerUnderTest
) -> None:
    first = await durable_broker.client(client_id="billing")
    await first.subscribe("/topic/a", **how)
    await first.vanish()

    second = await durable_broker.client(client_id="billing")
    await second.send("SUBSCRIBE", id="0", destination="/topic/b", receipt="there", **how)

    error = await second.expect_error("another destination", "/topic/a", "/topic/b", "UNSUBSCRIBE", "delete")
    assert error.headers["receipt-id"] == "there"
    assert durable_broker.look("SELECT pattern FROM subscriptions") == [("a",)]
    # As it was told.
    third = await durable_broker.client(client_id="billing")
    await third.send("UNSUBSCRIBE", id="0", destination="/topic/a", **how)
    await third.subscribe("/topic/b", **how)
    assert durable_broker.look("SELECT pattern FROM subscriptions") == [("b",)]


async def test_another_spelling_of_the_destination_is_the_same_destination(durable_broker: BrokerUnderTest) -> None:
    first = await durable_broker.durable_subscriber("/topic/a.#")
    await first.vanish()
    await durable_broker.store_messages(b"1", destination="/topic/a.b")

    again = await durable_broker.durable_subscriber("a/**")

    assert await again.next_bodies(1) == [b"1"]
    assert durable_broker.count("subscriptions") == 1


@pytest.mark.parametrize("header", ["durable", "persistent"])
async def test_without_client_id_another_destination_is_another_subscription(
    header: str, durable_broker: BrokerUnderTest
) -> None:
    client = await durable_broker.client()
    await client.subscribe("/topic/a", id="orders", **{header: "true"})
    await client.vanish()
    other = await durable_broker.client()
    await other.subscribe("/topic/b", id="orders", **{header: "true"})
    await other.vanish()
    await durable_broker.store_messages(b"for a", destination="/topic/a")
    await durable_broker.store_messages(b"for b", destination="/topic/b")

    assert durable_broker.count("subscriptions") == 2
    client = await durable_broker.client()
    await client.subscribe("/topic/b", id="orders", **{header: "true"})
    assert await client.next_bodies(1) == [b"for b"]
    await durable_broker.expect_silence(client)


async def test_durable_and_persistent_with_one_id_are_one_subscription(durable_broker: BrokerUnderTest) -> None:
    client = await durable_broker.client()
    await client.subscribe(id="orders", durable="true")
    await client.vanish()

    other = await durable_broker.client()
    await other.subscribe(id="orders", persistent="true")

    assert durable_broker.count("subscriptions") == 1


@pytest.mark.parametrize(
    "header", ["activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name"]
)
async def test_a_name_without_client_id_is_an_error_that_says_what_is_missing(
    header: str, durable_broker: BrokerUnderTest
) -> None:
    client = await durable_broker.client()

    await client.send("SUBSCRIBE", id="0", destination="/topic/a", **{header: "orders"})

    await client.expect_error("client-id", header)


@pytest.mark.parametrize(
    ("header", "others"),
    [
        ("activemq.subscriptionName", {"id": "0"}),
        ("durable-subscription-name", {"id": "0"}),
        ("durable-subscriber-name", {"id": "0"}),
        ("x-queue-name", {"id": "0"}),
        ("id", {"durable": "true"}),
        ("id", {"persistent": "true"}),
    ],
)
@pytest.mark.parametrize(("value", "what"), [("", "empty"), ("é" * 128, "too long")], ids=["empty", "too long"])
async def test_an_empty_or_too_long_name_is_an_error_that_names_the_header(
    header: str, others: dict[str, str], value: str, what: str, durable_broker: BrokerUnderTest
) -> None:
    client = await durable_broker.client(client_id="billing")

    await client.send("SUBSCRIBE", destination="/topic/a", **{header: value}, **others)

    await client.expect_error(repr(header), what)
    assert durable_broker.count("subscriptions") == 0


async def test_a_name_of_255_bytes_is_kept(durable_broker: BrokerUnderTest) -> None:
    name = "é" * 127 + "x"

    subscriber = await durable_broker.durable_subscriber(name=name, client_id=name)

    assert durable_broker.look("SELECT scope, name FROM subscriptions") == [(name, name)]
    await durable_broker.expect_silence(subscriber)


@pytest.mark.parametrize(("value", "what"), [("", "empty"), ("x" * 256, "too long")], ids=["empty", "too long"])
async def test_an_empty_or_too_long_client_id_is_an_error_that_names_the_header(
    value: str, what: str, durable_broker: BrokerUnderTest
) -> None:
    client = await durable_broker.open()

    await client.send("CONNECT", accept_version="1.2", host="test", client_id=value)

    await client.expect_error("'client-id'", what)


async def test_a_durable_one_without_id_is_an_error_that_says_so(durable_broker: BrokerUnderTest) -> None:
    """Only 1.0 lets a SUBSCRIBE have none."""
    client = await durable_broker.open()
    await client.send_raw(b"CONNECT\n\n\0")
    await client.next_frame()

    await client.send("SUBSCRIBE", destination="/topic/a", durable="true")

    await client.expect_error("'id'", "missing")


@pytest.mark.parametrize("header", ["durable", "persistent", "auto-delete"])
async def test_a_header_that_is_neither_true_nor_false_is_an_error_that_names_it(
    header: str, durable_broker: BrokerUnderTest
) -> None:
    client = await durable_broker.client()

    await client.send("SUBSCRIBE", id="0", destination="/topic/a", **{"durable": "true", header: "yes"})

    await client.expect_error(repr(header), "'yes'")


@pytest.mark.parametrize("destination", ["/dsub/nobody", "/dsub/"])
async def test_an_unknown_dsub_is_an_error(destination: str, durable_broker: BrokerUnderTest) -> None:
    client = await durable_broker.client()

    await client.send("SUBSCRIBE", id="0", destination=destination)

    await client.expect_error("unknown durable subscription")


async def test_an_ambiguous_dsub_is_an_error_that_lists_what_could_be_meant(durable_broker: BrokerUnderTest) -> None:
    await durable_broker.durable_subscriber(client_id="mine")
    await durable_broker.durable_subscriber(client_id="yours")
    client = await durable_broker.client(client_id="theirs")

    await client.send("SUBSCRIBE", id="0", destination="/dsub/orders")

    await client.expect_error("ambiguous durable subscription", "mine", "yours")


async def test_a_dsub_that_several_have_is_the_clients_own(durable_broker: BrokerUnderTest) -> None:
    for client_id in ("mine", "yours"):
        await (await durable_broker.durable_subscriber(f"/topic/{client_id}", client_id=client_id)).vanish()
    await durable_broker.store_messages(b"1", destination="/topic/mine")
    await durable_broker.store_messages(b"2", destination="/topic/yours")

    client = await durable_broker.client(client_id="mine")
    await client.subscribe("/dsub/orders")

    assert await client.next_bodies(1) == [b"1"]


async def test_nobody_can_publish_to_a_dsub(durable_broker: BrokerUnderTest) -> None:
    await durable_broker.durable_subscriber()
    client = await durable_broker.client()

    await client.send("SEND", b"x", destination="/dsub/orders")

    await client.expect_error("invalid destination", "/dsub/")


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("name", ["durable-subscription-name", "x-queue-name"])
async def test_an_unsubscribe_that_names_what_is_not_there_deletes_nothing(
    name: str, is_open: bool, durable_broker: BrokerUnderTest
) -> None:
    """Also when its id is that of another durable subscription, open on the same connection: the name says which one
    is to be deleted, and a slip of the pen must not cost a backlog."""
    subscriber = await durable_broker.durable_subscriber()
    client = subscriber if is_open else await durable_broker.client(client_id="billing")

    await client.send("UNSUBSCRIBE", id="0", receipt="gone", **{name: "odrers"})

    error = await client.expect_error("unknown durable subscription", "odrers")
    assert error.headers["receipt-id"] == "gone"
    assert durable_broker.count("subscriptions") == 1


async def test_a_deleted_identity_can_be_made_again_in_the_same_chunk(store_directory: Path) -> None:
    """And is a new one: what the old one had not settled is not for it."""
    async with running_broker(store_in=store_directory) as broker:
        client = await broker.durable_subscriber()
        await broker.store_messages(b"old")
        await client.next_message()
        subscribe = client.frame("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders")
        unsubscribe = client.frame("UNSUBSCRIBE", id="0", durable_subscription_name="orders")

        await client.send_raw(unsubscribe + subscribe + unsubscribe + subscribe)
        await client.sync()

        assert broker.count("subscriptions") == 1
        await broker.store_messages(b"new")
        assert await client.next_bodies(1) == [b"new"]
        await client.vanish()
        await broker.store_messages(b"newer")
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        again = await broker.durable_subscriber()
        assert (await broker.rest_for(again))[-1].body == b"newer"


async def test_a_resumed_one_takes_the_ack_mode_of_its_latest_subscribe(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber(ack="client-individual")).vanish()
        await (await broker.durable_subscriber(ack="auto")).vanish()
        await broker.store_messages(b"1", b"2")
        again = await broker.durable_subscriber(ack="client")
        _, second = await again.next_messages(2)
        await again.acknowledge(second)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert broker.look("SELECT ack_mode FROM subscriptions") == [("client",)]
        await broker.expect_silence(await broker.durable_subscriber())


async def test_there_may_be_only_so_many(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, max_durable_subscriptions=1) as broker:
        first = await broker.durable_subscriber(name="first")
        await first.vanish()
        second = await broker.client(client_id="billing")
        await second.send("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="second")
        await second.expect_error("too many durable subscriptions", "max_durable_subscriptions")

        again = await broker.durable_subscriber(name="first")
        await again.send("UNSUBSCRIBE", id="0", durable_subscription_name="first", receipt="deleted")
        await again.expect_receipt("deleted")

        await broker.durable_subscriber(name="second")
