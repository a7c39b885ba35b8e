"""What is repeated has the number it had, no number is left out, and only who knows numbers is sent any."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.changes.producers import MAX_RANGES
from stompbroker.client import (
    BackOff,
    ClientError,
    GaveUp,
    OutcomeUnknown,
    ProducerReplaced,
    Refused,
    Unconfirmed,
    connect,
)
from stompbroker.client.numbering import MAX_LINKS, NOWHERE
from tests.client.scripted_broker import ScriptedBroker
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.client import Client
    from stompbroker.transport import Endpoint
    from tests.client.scripted_broker import Connection, Said
    from tests.support.broker_under_test import BrokerUnderTest

OURS = {"server": "stompbroker/9"}


def client_of(broker: BrokerUnderTest) -> Client:
    async def open_stream(_: Endpoint, __: ssl.SSLContext | None) -> trio.abc.Stream:
        return (await broker.open()).stream

    return connect("stomp://broker", heart_beat=0, open_with=open_stream, back_off=BackOff(longest_s=0.001))


def number_of(said: Said) -> int:
    assert said.headers["producer"].startswith("client-")
    assert said.headers["producer-epoch"] == "1"
    return int(said.headers["producer-seq"])


async def next_numbers(connection: Connection, *commands: str) -> list[int]:
    """Of the SENDs among these."""
    said = [await connection.next_frame(command) for command in commands]
    return [number_of(each) for each in said if each.command == "SEND"]


@pytest.mark.parametrize(
    ("server", "numbers", "is_numbered"),
    [
        ("stompbroker/1.0", None, True),
        ("RabbitMQ/4.1.0", None, False),
        ("", None, False),
        ("message-hub", True, True),
        ("stompbroker/1.0", False, False),
    ],
)
async def test_who_is_sent_numbers(
    autojump_clock: MockClock, server: str, numbers: bool | None, is_numbered: bool
) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(numbers=numbers) as client:
                client.publish_nowait("/queue/a", b"1")
                client.publish_nowait("/queue/a", b"2", confirm=False)
                client.publish_nowait("/queue/a", b"3")

        connection = await broker.accept(server=server)
        first, unconfirmed, third = [await connection.next_frame("SEND") for _ in range(3)]
        assert "producer" not in unconfirmed.headers, "it is never repeated"
        assert ("producer" in first.headers) == is_numbered
        if is_numbered:
            assert [number_of(first), number_of(third)] == [1, 2]
        await connection.confirm(first)
        await connection.confirm(third)
        await connection.part()


async def test_a_repeat_has_its_number_and_what_was_never_sent_gets_the_next(autojump_clock: MockClock) -> None:
    broker, is_lost = ScriptedBroker(), trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                sent = [client.publish_nowait("/queue/a", b"1"), client.publish_nowait("/queue/a", b"2")]
                await is_lost.wait()
                sent.append(client.publish_nowait("/queue/a", b"3"))
                async with client.transaction() as transaction:
                    transaction.publish("/queue/a", b"4")
                    transaction.publish("/queue/a", b"5")
                assert [(await each.wait()).get("duplicate") for each in sent] == [None, "true", None]

        first = await broker.accept(**OURS)
        said = await first.next_frame("SEND")
        assert await next_numbers(first, "SEND") == [2]
        await first.confirm(said)
        await first.cut()
        is_lost.set()
        second = await broker.accept(**OURS)
        repeat = await second.next_frame("SEND")
        assert (repeat.body, repeat.headers["producer"]) == (b"2", said.headers["producer"])
        assert number_of(repeat) == 2
        await second.confirm(repeat, duplicate="true")
        third = await second.next_frame("SEND")
        assert number_of(third) == 3
        await second.confirm(third)
        assert await next_numbers(second, "BEGIN", "SEND", "SEND") == [4, 5]
        await second.confirm(await second.next_frame("COMMIT"))
        await second.part()


@pytest.mark.parametrize("way", ["refused", "cancelled"])
async def test_the_number_of_what_is_not_repeated_is_used_up(autojump_clock: MockClock, way: str) -> None:
    broker, is_given_up = ScriptedBroker(), trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                client.publish_nowait("/queue/a", b"1")
                with trio.move_on_after(10), suppress(Refused):
                    await client.publish("/queue/a", b"2")
                is_given_up.set()
                client.check_invariants()
                await client.publish("/queue/a", b"3")
                client.check_invariants()

        first = await broker.accept(**OURS)
        assert await next_numbers(first, "SEND", "SEND") == [1, 2]
        if way == "refused":
            await first.say("ERROR", message="no", receipt_id="2")
        await is_given_up.wait()
        await first.cut()
        second = await broker.accept(**OURS)
        said = [await second.next_frame("SEND") for _ in range(3)]
        assert [(number_of(each), each.headers["destination"], each.body) for each in said] == [
            (1, "/queue/a", b"1"),
            (2, NOWHERE, b""),
            (3, "/queue/a", b"3"),
        ]
        for each in said:
            await second.confirm(each)
        await second.part()


async def test_so_it_is_if_it_waits_for_its_turn_to_be_repeated(autojump_clock: MockClock) -> None:
    broker, scope = ScriptedBroker(), trio.CancelScope()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                client.publish_nowait("/queue/a", b"1")
                with scope:
                    await client.publish("/queue/a", b"2")
                client.check_invariants()
                await client.publish("/queue/a", b"3")

        first = await broker.accept(**OURS)
        assert await next_numbers(first, "SEND", "SEND") == [1, 2]
        await first.refuse()  # nobody knows what, so they are repeated one by one
        second = await broker.accept(**OURS)
        one = await second.next_frame("SEND")
        scope.cancel()
        await wait_all_tasks_blocked()
        await second.confirm(one)
        two = await second.next_frame("SEND")
        assert (number_of(two), two.headers["destination"]) == (2, NOWHERE)
        await second.confirm(two)
        three = await second.next_frame("SEND")
        assert (number_of(three), three.body) == (3, b"3")
        await second.confirm(three)
        await second.part()


async def test_a_transaction_with_numbers_alone_is_repeated_as_a_whole(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                async with client.transaction() as transaction:
                    transaction.publish("/queue/a", b"1")
                    transaction.publish("/queue/a", b"2")

        for _ in range(2):
            connection = await broker.accept(**OURS)
            assert await next_numbers(connection, "BEGIN", "SEND", "SEND") == [1, 2]
            commit = await connection.next_frame("COMMIT")
            if _ == 0:
                await connection.cut()
        await connection.confirm(commit)
        await connection.part()


async def test_nobody_knows_what_became_of_it_if_the_next_broker_does_not_know_numbers(
    autojump_clock: MockClock,
) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(OutcomeUnknown):
                    async with client.transaction() as transaction:
                        transaction.publish("/queue/a", b"1")
                client.check_invariants()
                await client.publish("/queue/a", b"2")

        first = await broker.accept(**OURS)
        await next_numbers(first, "BEGIN", "SEND")
        await first.next_frame("COMMIT")
        await first.cut()
        second = await broker.accept(server="RabbitMQ/4")
        said = await second.next_frame("SEND")
        assert (said.body, "producer" in said.headers) == (b"2", False)
        await second.confirm(said)
        await second.part()


async def test_nor_if_the_client_ends_before_it_is_confirmed(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            client = broker.client(give_up_after=1)
            await client.__aenter__()
            with pytest.raises(OutcomeUnknown):
                async with client.transaction() as transaction:
                    transaction.publish("/queue/a", b"1")
            client.check_invariants()
            with pytest.raises(GaveUp):
                await client.__aexit__(None)

        first = await broker.accept(**OURS)
        await next_numbers(first, "BEGIN", "SEND")
        await first.next_frame("COMMIT")
        broker.dead.add("broker")
        await first.cut()


async def test_a_question_has_no_number_since_it_must_be_asked_again_on_each_connection(
    autojump_clock: MockClock,
) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                await client.publish("/topic/a", b"?", headers={"reply-to": "/temp-queue/mine"})
                await client.call("/topic/a", b"?", timeout=60)

        connection = await broker.accept(**OURS)
        said = await connection.next_frame("SEND")
        assert "producer" not in said.headers
        await connection.confirm(said)
        said = await connection.next_frame("SEND")
        assert "producer" not in said.headers
        await connection.confirm(said)
        await connection.say(
            "MESSAGE",
            b"!",
            subscription="/temp-queue/replies",
            message_id="m",
            correlation_id=said.headers["correlation-id"],
        )
        await connection.part()


async def test_a_producer_that_was_replaced_has_ended(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            client = broker.client()
            await client.__aenter__()
            one, other = client.publish_nowait("/queue/a", b"1"), client.publish_nowait("/queue/a", b"2")
            with pytest.raises(ProducerReplaced):
                await one.wait()
            with pytest.raises(Unconfirmed, match="replaced"):
                await other.wait()
            with pytest.raises(ProducerReplaced):
                client.publish_nowait("/queue/a", b"3")
            with pytest.raises(ProducerReplaced):
                await client.__aexit__(None)

        first = await broker.accept(**OURS)
        await first.refuse(await first.next_frame("SEND"), "producer has been replaced - epoch 2")
        await wait_all_tasks_blocked()
    assert len(broker.attempts) == 1


async def test_without_a_place_for_one_more_producer_messages_have_no_numbers(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                client.publish_nowait("/queue/a", b"1")
                client.publish_nowait("/queue/a", b"2")
                await client.flush()
                client.check_invariants()

        first = await broker.accept(**OURS)
        await first.refuse(await first.next_frame("SEND"), "too many producers - 1000")
        second = await broker.accept(**OURS)
        for body in (b"1", b"2"):
            said = await second.next_frame("SEND")
            assert (said.body, "producer" in said.headers) == (body, False)
            await second.confirm(said)
        await second.part()


async def test_on_many_links_names_change(autojump_clock: MockClock) -> None:
    broker, names = ScriptedBroker(), list[str]()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                for _ in range(MAX_LINKS + 2):
                    await client.publish("/queue/a", b"x")

        for _ in range(MAX_LINKS + 2):
            connection = await broker.accept(**OURS)
            said = await connection.next_frame("SEND")
            names.append(said.headers["producer"])
            await connection.confirm(said)
            if len(names) < MAX_LINKS + 2:
                await connection.cut()
        await connection.part()
    first, second = dict.fromkeys(names)
    assert names == sorted(names, key=[first, second].index)
    assert names.count(first) in (MAX_LINKS - 1, MAX_LINKS)


async def test_a_client_that_never_connects_again_takes_no_producer_away(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(give_up_after=0) as client:
                client.publish_nowait("/queue/a", b"1")
                shop = await client.begin_producer("shop", "/queue/a")
                await client.publish("/queue/a", b"2", producer=shop)

        connection = await broker.accept(**OURS)
        said = await connection.next_frame("SEND")
        assert "producer" not in said.headers
        await connection.confirm(said)
        await connection.confirm(await connection.next_frame("SEND"), producer_epoch="7", producer_last="41")
        said = await connection.next_frame("SEND")
        assert (said.headers["producer-epoch"], said.headers["producer-seq"]) == ("7", "42")
        await connection.confirm(said)
        await connection.part()


# With the broker itself -----------------------------------------------------------------------------------------------


async def test_however_many_messages_are_refused_no_number_is_left_out(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    """All of them are numbered before the first is refused, and every second one is."""
    witness = await broker.subscriber("/topic/a")
    async with client_of(broker) as client:
        sent = [
            (client.publish_nowait("/topic/*", b"a pattern"), client.publish_nowait("/topic/a", b"%d" % number))
            for number in range(MAX_RANGES + 20)
        ]
        for wrong, right in sent:
            with pytest.raises(Refused, match="pattern"):
                await wrong.wait()
            await right.wait()

    assert await witness.next_bodies(MAX_RANGES + 20) == [b"%d" % number for number in range(MAX_RANGES + 20)]
    assert {len(each.taken) for each in broker.parts.producers} == {1}


async def test_a_user_who_has_all_producers_publishes_without_numbers(autojump_clock: MockClock) -> None:
    async with running_broker(max_producers=1) as broker:
        witness = await broker.subscriber("/topic/a")
        async with client_of(broker) as first, client_of(broker) as second:
            for number in range(3):
                await first.publish("/topic/a", b"first %d" % number)
                await second.publish("/topic/a", b"second %d" % number)
            with pytest.raises(Refused, match="too many producers"):
                await second.begin_producer("shop", "/topic/a")
            assert len(broker.parts.producers) == 1
        assert len(await witness.next_bodies(6)) == 6
        assert not await witness.has_more()


async def test_a_program_goes_on_numbering_where_it_was_and_ends_the_one_before(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        before = client_of(broker)
        await before.__aenter__()
        shop = await before.begin_producer("shop", "/queue/jobs")
        assert (shop.epoch, shop.last) == (1, 0)
        await before.publish("/queue/jobs", b"1", producer=shop)
        await before.publish("/queue/jobs", b"of nobody")
        async with before.transaction(producer=shop) as transaction:
            transaction.publish("/queue/jobs", b"2")
            transaction.publish("/queue/jobs", b"3")
        with pytest.raises(ValueError, match="must not be lost"):
            before.publish_nowait("/queue/jobs", b"4", producer=shop, confirm=False)

        async with client_of(broker) as client:
            shop_again = await client.begin_producer("shop", "/queue/jobs")
            assert (shop_again.epoch, shop_again.last) == (2, 3)
            await client.publish("/queue/jobs", b"4", producer=shop_again)
            with pytest.raises(ProducerReplaced):
                await before.publish("/queue/jobs", b"4", producer=shop)
            async with client.subscribe("/queue/jobs") as messages:
                found = [(await anext(messages)).body for _ in range(5)]

        with pytest.raises(ProducerReplaced):
            await before.__aexit__(None)
        assert found == [b"1", b"of nobody", b"2", b"3", b"4"]


async def test_other_brokers_have_no_producers(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(ClientError, match="does not number messages"):
                    await client.begin_producer("shop", "/queue/jobs")

        await (await broker.accept(server="RabbitMQ/4")).part()


async def test_a_client_that_leaves_says_that_its_own_name_is_done(autojump_clock: MockClock) -> None:
    async with running_broker() as broker:
        async with client_of(broker) as client:
            await client.publish("/queue/a", b"1")
            shop = await client.begin_producer("shop", "/queue/a")
            await client.publish("/queue/a", b"2", producer=shop)
        async with client_of(broker):
            pass  # it has sent nothing

        # The name that its user chose will go on.
        assert [(each.name == "shop", each.done_at_ns is None) for each in broker.parts.producers] == [
            (False, False),
            (True, True),
        ]
