"""Newcomers get the last value of a topic first, and nothing is pinned, owed or counted for that."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from stompbroker.delivery import sending
from stompbroker.stomp import Version
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user
from tests.support.work import operations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client

PRICES = "/topic/prices.eur"


async def keep(client: Client, *bodies: bytes, destination: str = PRICES, **headers: str) -> None:
    """Each becomes the last value, in one write; waits for the receipt of the last."""
    frames = [client.frame("SEND", body, **{"destination": destination, "retain": "set"} | headers) for body in bodies]
    await client.send_raw(b"".join(frames))
    await client.sync()


async def remove(client: Client, destination: str = PRICES) -> None:
    await client.publish(b"", destination=destination, retain="remove")
    await client.sync()


def is_retained(message: Frame) -> bool:
    return message.headers.get("retained") == "true"


async def values_of(client: Client, count: int) -> list[bytes]:
    messages = await client.next_messages(count)
    assert all(map(is_retained, messages))
    return [message.body for message in messages]


# Who gets it ----------------------------------------------------------------------------------------------------------


async def test_a_newcomer_gets_the_last_value_and_then_messages(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher = await broker.client()
    await keep(publisher, b"1.1", b"1.2", unit="USD")

    newcomer = await broker.subscriber(PRICES)
    await publisher.publish(b"1.3", destination=PRICES)

    value, message = await newcomer.next_messages(2)
    assert (value.body, value.headers["retained"], value.headers["unit"]) == (b"1.2", "true", "USD")
    assert value.headers["destination"] == PRICES
    assert (message.body, is_retained(message)) == (b"1.3", False)
    await newcomer.sync()


async def test_who_is_there_gets_it_as_any_other_message(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber(PRICES)

    await keep(await broker.client(), b"1.1")

    message = await subscriber.next_message()
    assert (message.body, is_retained(message)) == (b"1.1", False)
    await subscriber.sync()


@pytest.mark.parametrize("version", [Version.V1_0, Version.V1_1, Version.V1_2])
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
async def test_an_answer_to_it_settles_nothing_and_is_no_mistake(
    broker: BrokerUnderTest, autojump_clock: MockClock, version: Version, ack: str
) -> None:
    await keep(await broker.client(), b"1.1")
    newcomer = await broker.client(version)
    await newcomer.send("SUBSCRIBE", id="0", destination=PRICES, ack=ack)
    value = await newcomer.next_message()
    assert is_retained(value)

    if ack != "auto":
        named = {
            Version.V1_0: {"message_id": value.headers["message-id"]},
            Version.V1_1: {"message_id": value.headers["message-id"], "subscription": "0"},
            Version.V1_2: {"id": value.headers.get("ack", "")},
        }[version]
        if version is not Version.V1_0:
            await newcomer.send("NACK", **named)
        await newcomer.send("ACK", **named)
    await newcomer.sync()

    assert not broker.registry.topics or not any(topic.log.message_count for topic in broker.registry.topics.values())


async def test_real_deliveries_behind_it_are_answered_as_ever(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher = await broker.client()
    await keep(publisher, b"value")
    newcomer = await broker.subscriber(PRICES, ack="client-individual")
    await publisher.publish(b"1", b"2", destination=PRICES)
    _, first, second = await newcomer.next_messages(3)

    await newcomer.acknowledge(first)
    await newcomer.acknowledge(second)

    (subscription,) = broker.registry.subscriptions
    assert subscription.counters.acked == 2


async def test_a_durable_subscription_gets_it_when_it_is_made_and_not_when_it_returns(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await keep(await broker.client(), b"1.1")
        billing = await broker.durable_subscriber(PRICES)
        assert await values_of(billing, 1) == [b"1.1"]
        await billing.vanish()

        again = await broker.durable_subscriber(PRICES)

        await broker.expect_silence(again)


@pytest.mark.parametrize(
    "headers", [{"group": "g", "auto_delete": "true"}, {"no_local": "true"}], ids=["a member of a group", "no-local"]
)
async def test_who_does_not_get_it(broker: BrokerUnderTest, autojump_clock: MockClock, headers: dict[str, str]) -> None:
    client = await broker.client()
    await keep(client, b"1.1")

    await client.subscribe(PRICES, **headers)

    await client.sync()


async def test_who_asks_where_to_begin_reads_messages_and_gets_no_value(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, retain_messages=10) as broker:
        await keep(await broker.client(), b"1.1", b"1.2")
        reader = await broker.client()
        await reader.send("SUBSCRIBE", id="0", destination=PRICES, **{"from": "earliest"})

        messages = await broker.rest_for(reader)

        assert [(message.body, is_retained(message)) for message in messages] == [(b"1.1", False), (b"1.2", False)]


# Wildcards ------------------------------------------------------------------------------------------------------------


async def test_a_wildcard_newcomer_gets_the_values_of_a_thousand_topics(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher = await broker.client()
    for number in range(1_000):
        await publisher.publish(b"%d" % number, destination=f"/topic/prices.{number}", retain="set")
        await publisher.publish(b"other", destination=f"/topic/other.{number}", retain="set")
    await publisher.sync()

    newcomer = await broker.subscriber("/topic/prices.*", ack="client-individual")
    await publisher.publish(b"new", destination="/topic/prices.7")

    assert sorted(map(int, await values_of(newcomer, 1_000))) == list(range(1_000))
    assert await newcomer.next_bodies(1) == [b"new"]
    await newcomer.sync()


async def test_a_newcomer_is_shown_values_in_turns_that_do_not_grow_with_their_number(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Neither with those that it gets, nor with those that its pattern does not match."""
    publisher = await broker.client()

    async def turn_of(values: int, pattern: str) -> int:
        for number in range(values):
            publisher.session.receive(
                publisher.frame("SEND", b"x", destination=f"/topic/prices.{number}", retain="set")
            )
        assert len(broker.registry.last_values) == values
        newcomer = await broker.client()
        newcomer.session.receive(newcomer.frame("SUBSCRIBE", id="0", destination=pattern))
        (consumer,) = newcomer.session.commands.consumers
        return operations(lambda: sending.deliver_slice(consumer, 0))

    few = {pattern: await turn_of(600, pattern) for pattern in ("/topic/prices.*", "/topic/other.*")}

    for pattern, operations_of_few in few.items():
        assert await turn_of(2_000, pattern) < 1.2 * operations_of_few


async def test_values_wait_for_a_client_that_does_not_read(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    publisher = await broker.client()
    for number in range(30):
        await publisher.publish(b"x" * 100_000, destination=f"/topic/prices.{number}", retain="set")
    await publisher.sync()
    newcomer = await broker.client()
    await newcomer.send("SUBSCRIBE", id="0", destination="/topic/prices.*")
    await publisher.sync()
    before_bytes = newcomer.session.outbox.size_bytes

    assert before_bytes < 1_000_000, "not all three million at once"
    assert await values_of(newcomer, 30) == 30 * [b"x" * 100_000]
    await newcomer.sync()


async def test_what_is_set_while_values_are_shown_comes_once_as_a_message(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher = await broker.client()
    for number in range(30):
        await publisher.publish(b"x" * 100_000, destination=f"/topic/prices.{number}", retain="set")
    await publisher.sync()
    newcomer = await broker.client()
    # Without a checkpoint in between, in which it would be shown the others.
    newcomer.session.receive(newcomer.frame("SUBSCRIBE", id="0", destination="/topic/prices.*"))
    (subscription,) = broker.registry.subscriptions
    for consumer in subscription.consumers:
        sending.deliver_slice(consumer, broker.clock.now_ns())
    assert subscription.greeting is not None, "there is more to be shown"
    publisher.session.receive(publisher.frame("SEND", b"later", destination="/topic/prices.29", retain="set"))

    messages = await newcomer.next_messages(30)
    assert [message.body for message in messages if not is_retained(message)] == [b"later"]
    assert messages[-1].body == b"later"
    await newcomer.sync()


# Until when -----------------------------------------------------------------------------------------------------------


async def test_a_removed_value_is_gone_and_the_message_that_says_so_is_published(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher, subscriber = await broker.client(), await broker.subscriber(PRICES)
    await keep(publisher, b"1.1")
    await remove(publisher)

    assert await subscriber.next_bodies(2) == [b"1.1", b""]
    newcomer = await broker.subscriber(PRICES)
    await newcomer.sync()
    assert len(broker.registry.last_values) == 0


async def test_the_last_of_a_chunk_counts(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    publisher = await broker.client()
    chunk = [
        publisher.frame("SEND", b"set", destination=PRICES, retain="set"),
        publisher.frame("SEND", b"", destination=PRICES, retain="remove"),
        publisher.frame("SEND", b"again", destination=PRICES, retain="set"),
        publisher.frame("SEND", b"plain", destination=PRICES),
    ]
    await publisher.send_raw(b"".join(chunk))
    await publisher.sync()

    assert await values_of(await broker.subscriber(PRICES), 1) == [b"again"]


async def test_a_value_expires_with_its_message(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, ledger=False) as broker:
        await keep(await broker.client(), b"1.1", ttl="5000")
        await keep(await broker.client(), b"for ever", destination="/topic/prices.usd")
        assert await values_of(await broker.subscriber("/topic/prices.*"), 2) == [b"1.1", b"for ever"]
        mock_clock.jump(6)

        assert await values_of(await broker.subscriber("/topic/prices.*"), 1) == [b"for ever"]
        mock_clock.jump(60)
        await broker.settle()
        assert broker.look("SELECT name FROM last_values") == [("prices.usd",)]
        assert len(broker.registry.last_values) == 1


async def test_a_value_that_is_set_while_the_one_before_expires_stays(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, ledger=False) as broker:
        publisher = await broker.client()
        await keep(publisher, b"old", ttl="1000")
        await broker.settle()
        with broker.held_store():
            await publisher.publish(b"x", destination="/topic/other", retain="set")
            await wait_all_tasks_blocked()  # a batch is being written
            await publisher.publish(b"new", destination=PRICES, retain="set")
            mock_clock.jump(2)
            await wait_all_tasks_blocked()  # the collector has seen that the old one has expired

        await broker.settle()
        assert [value.message.body for value in broker.registry.last_values] == [b"x", b"new"]
        assert broker.look("SELECT name FROM last_values ORDER BY name") == [("other",), ("prices.eur",)]


async def test_values_outlive_a_kill_and_removals_too(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        publisher = await broker.client()
        await publisher.publish(b"kept", destination=PRICES, retain="set", receipt="1", colour="r\re\td")
        await publisher.expect_receipt("1")
        await publisher.publish(b"gone", destination="/topic/prices.usd", retain="set", receipt="2")
        await publisher.expect_receipt("2")
        await publisher.publish(b"", destination="/topic/prices.usd", retain="remove", receipt="3")
        await publisher.expect_receipt("3")
        with broker.held_store():
            await publisher.publish(b"lost", destination=PRICES, retain="set")
            await publisher.expect_nothing()
            broker.kill()
    async with running_broker(store_in=store_directory) as broker:
        newcomer = await broker.subscriber("/topic/prices.*")
        (value,) = await newcomer.next_messages(1)
        assert (value.body, value.headers["colour"], is_retained(value)) == (b"kept", "r\re\td", True)
        old = await broker.client(Version.V1_1)
        await old.subscribe(PRICES)
        assert (await old.next_message()).headers["colour"] == "r\re\td"


async def test_a_value_is_not_there_before_it_is_stored(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        publisher, newcomer = await broker.client(), await broker.client()
        await publisher.publish(b"first", destination=PRICES, retain="set", receipt="1")
        await publisher.expect_receipt("1")
        with broker.held_store():
            await publisher.publish(b"second", destination=PRICES, retain="set", receipt="2")
            await publisher.expect_nothing()
            await newcomer.subscribe(PRICES)
            assert await values_of(newcomer, 1) == [b"first"]
        await publisher.expect_receipt("2")
        assert await newcomer.next_bodies(1) == [b"second"]


async def test_persistent_false_keeps_it_until_the_broker_ends(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        publisher = await broker.client()
        await keep(publisher, b"stored")
        await keep(publisher, b"in memory", persistent="false")
        assert await values_of(await broker.subscriber(PRICES), 1) == [b"in memory"]
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.subscriber(PRICES)).sync()


async def test_a_value_outlives_its_topic_and_pins_nothing_of_it(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, ledger=False) as broker:
        billing = await broker.durable_subscriber(PRICES)
        publisher = await broker.client()
        await keep(publisher, b"1.1", b"1.2")
        await billing.acknowledge(*await billing.next_messages(2))
        await billing.send("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="u")
        await billing.expect_receipt("u")
        await publisher.vanish()
        for _ in range(4):
            mock_clock.jump(70)
            await broker.settle()

        assert broker.count("messages") == 0
        assert not broker.registry.topics
        assert await values_of(await broker.subscriber(PRICES), 1) == [b"1.2"]


# Transactions, producers ----------------------------------------------------------------------------------------------


async def test_a_value_of_a_transaction_counts_with_its_commit(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        publisher = await broker.client()
        await publisher.send("BEGIN", transaction="t")
        await publisher.publish(b"1.1", destination=PRICES, retain="set", transaction="t")
        await publisher.sync()
        assert len(broker.registry.last_values) == 0
        await publisher.send("COMMIT", transaction="t", receipt="c")
        await publisher.expect_receipt("c")

        assert await values_of(await broker.subscriber(PRICES), 1) == [b"1.1"]


async def test_what_a_producer_repeats_does_not_become_the_value_again(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()
        for number, body in ((1, b"old"), (2, b"new"), (1, b"old")):
            await shop.publish(
                body, destination=PRICES, retain="set", producer="s", producer_epoch="1", producer_seq=str(number)
            )
        await shop.sync()
        await broker.settle()

        assert await values_of(await broker.subscriber(PRICES), 1) == [b"new"]


# Settings, bad input, bounds ------------------------------------------------------------------------------------------


async def test_the_operator_can_have_it_for_all_messages_of_a_pattern(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with running_broker(topics=[{"pattern": "prices.>", "last_value": True}]) as broker:
        publisher = await broker.client()
        await publisher.publish(b"1.1", b"1.2", destination=PRICES)
        await publisher.publish(b"not this", destination=PRICES, retain="false")
        await publisher.publish(b"x", destination="/topic/other")
        await publisher.sync()

        newcomer = await broker.subscriber("/topic/>")

        assert await values_of(newcomer, 1) == [b"1.2"]
        await newcomer.sync()


@pytest.mark.parametrize(
    ("destination", "retain", "said"),
    [
        (PRICES, "forever", ("'retain'", "one of set, remove, false")),
        (PRICES, "true", ("'retain'", "one of set, remove, false")),
        ("/queue/jobs", "set", ("'retain' is for topics", "/topic/NAME")),
        ("/queue/jobs", "forever", ("'retain'", "one of set, remove, false")),
    ],
)
async def test_a_wrong_retain_is_an_error(
    broker: BrokerUnderTest, autojump_clock: MockClock, destination: str, retain: str, said: tuple[str, ...]
) -> None:
    client = await broker.client()

    await client.publish(b"x", destination=destination, retain=retain, receipt="r")

    error = await client.expect_error(*said)
    assert (said[0] in error.headers["message"], error.headers["receipt-id"]) == (True, "r")


async def test_values_have_a_bound_in_bytes(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    async with running_broker(last_values_bytes=10_000) as broker:
        publisher = await broker.client()
        await keep(publisher, b"x" * 6_000)
        await keep(publisher, b"y", destination="/topic/small")

        await publisher.publish(b"x" * 6_000, destination="/topic/another", retain="set", receipt="r")

        await publisher.expect_error("too many last values", "last_values_bytes", "retain:remove")
        assert broker.registry.last_values.size_bytes < 10_000


async def test_of_several_in_a_row_the_last_has_to_fit(autojump_clock: MockClock) -> None:
    async with running_broker(last_values_bytes=1000) as broker:
        publisher = await broker.client()
        send = b"SEND\ndestination:/topic/prices.gold\nretain:set\n\n%b\0"
        for _ in range(3):
            await publisher.send_raw(send % b"")
            await publisher.sync()

        await publisher.send_raw(send % b"" + send % (b"x" * 2000))

        await publisher.expect_error("too many last values")


async def test_values_of_open_transactions_do_not_pass_the_bound_together(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with running_broker(last_values_bytes=10_000) as broker:
        publisher = await broker.client()
        for name in "abc":
            await publisher.send("BEGIN", transaction=name)
            headers = {"destination": f"/topic/{name}", "retain": "set", "transaction": name, "receipt": "sent"}
            await publisher.publish(b"x" * 6_000, **headers)
            await publisher.expect_receipt("sent")
        for name in "abc":
            await publisher.send("COMMIT", transaction=name, receipt=name)

        await publisher.expect_receipt("a")
        error = await publisher.expect_error("too many last values", "last_values_bytes")
        assert error.headers["receipt-id"] == "b"
        assert [value.destination.name for value in broker.registry.last_values] == ["a"]


async def test_values_of_one_transaction_have_to_fit_together(autojump_clock: MockClock) -> None:
    async with running_broker(last_values_bytes=10_000) as broker:
        publisher = await broker.client()
        await publisher.send("BEGIN", transaction="a")
        for name, size in (("a", 9_000), ("a", 6_000), ("b", 6_000)):
            headers = {"destination": f"/topic/{name}", "retain": "set", "transaction": "a", "receipt": "sent"}
            await publisher.publish(b"x" * size, **headers)
            await publisher.expect_receipt("sent")

        await publisher.send("COMMIT", transaction="a", receipt="a")

        assert (await publisher.expect_error("too many last values")).headers["receipt-id"] == "a"


async def test_retained_cannot_be_forged(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber(PRICES)

    await (await broker.client()).publish(b"x", destination=PRICES, retained="true")

    assert "retained" not in (await subscriber.next_message()).headers


async def test_the_newest_value_replaces_a_larger_one_at_the_bound(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with running_broker(last_values_bytes=10_000) as broker:
        publisher = await broker.client()
        for body in (b"x" * 6_000, b"y" * 6_000, b"z" * 6_000):
            await keep(publisher, body)

        assert await values_of(await broker.subscriber(PRICES), 1) == [b"z" * 6_000]


# Permissions ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def guarded(directory: Path, **values: bytes) -> AsyncIterator[tuple[BrokerUnderTest, Path]]:
    """With `rita`, who may read `prices.*`, and values that somebody has set of prices and of a secret."""
    users = directory / "users.toml"
    add_user(users, "app", read=[">"], write=[">"])
    add_user(users, "rita", read=["prices.*"])
    async with running_broker(users_file=str(users)) as broker:
        publisher = await broker.client(login="app", passcode=PASSWORD)
        for name, body in values.items():
            await keep(publisher, body, destination=f"/topic/{name.replace('_', '.')}")
        await publisher.vanish()
        yield broker, users


@pytest.mark.parametrize("pattern", ["/topic/>", "/topic/prices.>", "/topic/secret", "/topic/**"])
async def test_a_pattern_that_one_may_not_read_shows_nothing(tmp_path: Path, pattern: str) -> None:
    async with guarded(tmp_path, prices_eur=b"1", secret=b"2") as (broker, _):
        reader = await broker.client(login="rita", passcode=PASSWORD)
        await reader.send("SUBSCRIBE", id="0", destination=pattern)
        await reader.expect_error("no permission to read", pattern)


async def test_with_a_pattern_that_one_may_read_one_sees_only_what_is_in_it(tmp_path: Path) -> None:
    async with guarded(tmp_path, prices_eur=b"1", prices_eur_tomorrow=b"2", secret=b"3") as (broker, _):
        reader = await broker.client(login="rita", passcode=PASSWORD)
        await reader.subscribe("/topic/prices.*")
        assert await values_of(reader, 1) == [b"1"]
        await reader.sync()


async def test_who_loses_the_permission_while_values_are_shown_gets_no_more_of_them(tmp_path: Path) -> None:
    values = {f"prices_{number}": b"x" * 100_000 for number in range(30)}
    async with guarded(tmp_path, **values) as (broker, users):
        reader = await broker.client(login="rita", passcode=PASSWORD)
        # Without a checkpoint in between, in which it would be shown the others.
        reader.session.receive(reader.frame("SUBSCRIBE", id="0", destination="/topic/prices.*"))
        (subscription,) = broker.registry.subscriptions
        for consumer in subscription.consumers:
            sending.deliver_slice(consumer, broker.clock.now_ns())
        assert subscription.greeting is not None, "there is more to be shown"
        users.write_text(users.read_text().replace("prices.*", "elsewhere"))
        broker.parts.authenticator.reload()
        # As the watcher of users does it, a moment later.
        reader.session.renew(broker.parts.authenticator.renewed(reader.session.client.grant))

        assert await values_of(reader, 6) == 6 * [b"x" * 100_000]
        await reader.expect_error("no permission to read", "/topic/prices.*")
