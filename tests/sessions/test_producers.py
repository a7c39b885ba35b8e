"""A producer numbers its messages, and each number is published once, whatever is repeated, refused or killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompbroker.changes.producers import DONE_S, MAX_RANGES
from stompbroker.clock import NANOSECONDS
from tests.journal.poison import POISON, refuse_messages
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user
from tests.support.work import operations

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client

JOBS = "/queue/jobs"


async def send(client: Client, *numbers: int | str, epoch: int | None = 1, **headers: str) -> None:
    """SENDs with these numbers, which are their bodies and receipts too, in one write; 0 has no body."""
    epochs = {} if epoch is None else {"producer_epoch": str(epoch)}
    frames = [
        client.frame(
            "SEND",
            b"" if number == 0 else str(number).encode(),
            **{"destination": JOBS, "producer": "shop", "producer_seq": str(number), "receipt": str(number)}
            | epochs
            | headers,
        )
        for number in numbers
    ]
    await client.send_raw(b"".join(frames))


async def told(client: Client, number: int | str) -> dict[str, str]:
    """What the RECEIPT of that number says beside it."""
    frame = await client.next_frame()
    assert frame.command == "RECEIPT", frame.headers
    assert frame.headers.pop("receipt-id") == str(number)
    return frame.headers


async def expect_receipts(client: Client, *numbers: int) -> None:
    for number in numbers:
        assert await told(client, number) == {}


async def kept(broker: BrokerUnderTest) -> list[bytes]:
    """What a consumer of the queue finds."""
    await broker.settle()
    consumer = await broker.subscriber(JOBS, ack="client-individual", prefetch_count="1000")
    bodies = [frame.body for frame in await broker.rest_for(consumer)]
    await consumer.vanish()
    return bodies


# Once -----------------------------------------------------------------------------------------------------------------


async def test_a_repeated_number_is_published_once_and_its_receipt_says_so(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()
        await send(shop, 1, 2)
        await expect_receipts(shop, 1, 2)

        await send(shop, 2, 3, 1)

        assert await told(shop, 2) == {"duplicate": "true"}
        assert await told(shop, 3) == {}
        assert await told(shop, 1) == {"duplicate": "true"}
        assert await kept(broker) == [b"1", b"2", b"3"]


async def test_it_does_not_matter_where_a_repeated_number_is_sent_and_by_which_connection(
    store_directory: Path,
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        first, second = await broker.client(), await broker.client()
        await send(first, 1)
        await expect_receipts(first, 1)

        await send(second, 1, destination="/queue/other")

        assert await told(second, 1) == {"duplicate": "true"}
        assert await kept(broker) == [b"1"]


async def test_a_repeat_waits_until_what_it_repeats_is_on_disk(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        first, second = await broker.client(), await broker.client()
        await send(first, 1)
        await expect_receipts(first, 1)
        with broker.held_store():
            await send(first, 2)
            await send(second, 2, 2)
            await second.expect_nothing()

        assert await told(second, 2) == {"duplicate": "true"}
        assert await told(second, 2) == {"duplicate": "true"}
        assert await told(first, 2) == {}
        assert await kept(broker) == [b"1", b"2"]


async def test_what_a_kill_left_unanswered_is_repeated_and_published_once(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()
        await send(shop, 1, 2)
        await expect_receipts(shop, 1, 2)
        with broker.held_store():
            await send(shop, 3, 4)
            await shop.expect_nothing()
            broker.kill()
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()

        await send(shop, 2, 3, 4)

        assert await told(shop, 2) == {"duplicate": "true"}
        await expect_receipts(shop, 3, 4)
        assert await kept(broker) == [b"1", b"2", b"3", b"4"]


async def test_the_number_is_in_the_batch_of_its_message(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()
        await send(shop, 1)
        await expect_receipts(shop, 1)
        before = broker.journal.batches

        await send(shop, *range(2, 20))
        await expect_receipts(shop, *range(2, 20))

        assert broker.journal.batches == before + 1
        assert broker.look("SELECT owner, name, epoch, length(taken) FROM producers") == [("", "shop", 1, 16)]


async def test_a_number_whose_message_the_store_refuses_is_free_again(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop, other = await broker.client(), await broker.client()
        await send(shop, 1)
        await expect_receipts(shop, 1)
        refuse_messages(store_directory)
        with broker.held_store():
            await send(other, 2)
            await other.expect_nothing()  # its batch is being written
            poisoned = shop.frame(
                "SEND", POISON, destination=JOBS, producer="shop", producer_epoch="1", producer_seq="3", receipt="3"
            )
            await shop.send_raw(poisoned)
            await shop.expect_nothing()
            await send(other, 3)
            await other.expect_nothing()

        await expect_receipts(other, 2, 3)
        await shop.expect_error("cannot be stored")
        assert await kept(broker) == [b"1", b"2", b"3"]


async def test_it_works_in_memory_too(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber()
    shop = await broker.client()

    await send(shop, 1, 1, 2, destination="/topic/a")

    assert await told(shop, 1) == {}
    assert await told(shop, 1) == {"duplicate": "true"}
    assert await told(shop, 2) == {}
    assert await subscriber.next_bodies(2) == [b"1", b"2"]
    await subscriber.sync()


async def test_the_headers_do_not_reach_subscribers(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber()
    await send(await broker.client(), 1, destination="/topic/a", colour="red")

    message = await subscriber.next_message()

    assert message.headers["colour"] == "red"
    assert not [name for name in message.headers if name.startswith("producer")]


async def test_a_report_counts_what_is_published_and_a_repeat_only_says_that_it_is_one(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    await broker.subscriber()
    shop = await broker.client()

    await send(shop, 1, 1, 2, destination="/topic/a", report="true")

    said = {"matched": "0", "matched-transient": "1", "stored": "false"}
    assert await told(shop, 1) == said | {"offset": "0"}
    assert await told(shop, 1) == {"duplicate": "true"}
    assert await told(shop, 2) == said | {"offset": "1"}


# Transactions ---------------------------------------------------------------------------------------------------------


async def test_a_transaction_may_hold_a_number_while_higher_ones_pass(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()
        await shop.send("BEGIN", transaction="t")
        await send(shop, 1, 3, transaction="t")
        await expect_receipts(shop, 1, 3)
        await send(shop, 2, 4)
        await expect_receipts(shop, 2, 4)
        await shop.send("COMMIT", transaction="t", receipt="c")
        await shop.expect_receipt("c")

        await send(shop, 1, 2, 3, 4)

        assert [await told(shop, number) for number in (1, 2, 3, 4)] == 4 * [{"duplicate": "true"}]
        assert await kept(broker) == [b"2", b"4", b"1", b"3"]


async def test_the_number_of_an_aborted_message_can_be_sent_again(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()
        await shop.send("BEGIN", transaction="t")
        await send(shop, 1, transaction="t")
        await expect_receipts(shop, 1)
        await shop.send("ABORT", transaction="t")

        await send(shop, 1)

        await expect_receipts(shop, 1)
        assert await kept(broker) == [b"1"]


async def test_a_repeated_transaction_publishes_nothing_twice_and_keeps_its_order(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()
        for name in ("first", "again"):
            await shop.send("BEGIN", transaction=name)
            await send(shop, 1, transaction=name)
            await shop.publish(b"plain " + name.encode(), destination=JOBS, transaction=name)
            await send(shop, 2, transaction=name)
            await expect_receipts(shop, 1, 2)
            await shop.send("COMMIT", transaction=name, receipt=name)
            await shop.expect_receipt(name)

        assert await kept(broker) == [b"1", b"plain first", b"2", b"plain again"]


# Epochs ---------------------------------------------------------------------------------------------------------------


async def test_0_begins_an_epoch_and_tells_the_last_number(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()
        await send(shop, 0, epoch=None)
        assert await told(shop, 0) == {"producer-epoch": "1", "producer-last": "0"}
        await send(shop, 1, 2, 4)
        await expect_receipts(shop, 1, 2, 4)
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()

        await send(shop, 0, epoch=None)

        assert await told(shop, 0) == {"producer-epoch": "2", "producer-last": "2"}
        await send(shop, 3, 4, 5, epoch=2)
        assert [await told(shop, number) for number in (3, 4, 5)] == [{}, {"duplicate": "true"}, {}]
        assert await kept(broker) == [b"1", b"2", b"4", b"3", b"5"]


async def test_the_last_number_is_told_when_everything_before_is_decided(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        old, new = await broker.client(), await broker.client()
        await send(old, 1)
        await expect_receipts(old, 1)
        with broker.held_store():
            await send(old, 2)
            await send(new, 0, epoch=None)
            await new.expect_nothing()

        assert await told(new, 0) == {"producer-epoch": "2", "producer-last": "2"}


async def test_a_higher_epoch_ends_the_lower_ones_also_over_a_kill(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        old, new = await broker.client(), await broker.client()
        await send(old, 1)
        await expect_receipts(old, 1)
        await send(new, 0, epoch=7)
        assert await told(new, 0) == {"producer-epoch": "7", "producer-last": "1"}

        await send(old, 2)
        await old.expect_error("producer has been replaced", "epoch 7", "of epoch 1")
        broker.kill()
    async with running_broker(store_in=store_directory) as broker:
        old = await broker.client()
        await send(old, 2)
        await old.expect_error("producer has been replaced")
        assert await kept(broker) == [b"1"]


async def test_a_commit_of_a_replaced_producer_does_nothing(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber()
    old, new = await broker.client(), await broker.client()
    await old.send("BEGIN", transaction="t")
    await send(old, 1, transaction="t", destination="/topic/a")
    await expect_receipts(old, 1)
    await send(new, 0, epoch=2)
    await told(new, 0)

    await old.send("COMMIT", transaction="t", receipt="c")

    await old.expect_error("producer has been replaced")
    await subscriber.sync()


# Bad input, bounds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"producer": "p"}, ("missing header 'producer-seq'", "producer-epoch")),
        ({"producer_seq": "1"}, ("missing header 'producer'", "producer-epoch")),
        ({"producer_epoch": "1"}, ("missing header 'producer'",)),
        ({"producer": "p", "producer_seq": "1"}, ("missing header 'producer-epoch'", "producer-seq:0")),
        ({"producer": "", "producer_seq": "1", "producer_epoch": "1"}, ("empty header 'producer'",)),
        ({"producer": "p" * 256, "producer_seq": "1", "producer_epoch": "1"}, ("header 'producer' too long", "255")),
        ({"producer": "p", "producer_seq": "x", "producer_epoch": "1"}, ("'producer-seq'", "a whole number")),
        ({"producer": "p", "producer_seq": "", "producer_epoch": "1"}, ("'producer-seq'", "a whole number")),
        ({"producer": "p", "producer_seq": "-1", "producer_epoch": "1"}, ("'producer-seq'", "from 0")),
        ({"producer": "p", "producer_seq": "9" * 19, "producer_epoch": "1"}, ("'producer-seq'", "to 9999")),
        ({"producer": "p", "producer_seq": "1", "producer_epoch": "0"}, ("'producer-epoch'", "from 1")),
        ({"producer": "p", "producer_seq": "0"}, ("a body with producer-seq:0",)),
    ],
    ids=str,
)
async def test_a_wrong_header_is_named(
    broker: BrokerUnderTest, autojump_clock: MockClock, headers: dict[str, str], said: tuple[str, ...]
) -> None:
    client = await broker.client()

    await client.publish(b"x", receipt="r", **headers)

    error = await client.expect_error(*said)
    assert error.headers["receipt-id"] == "r"
    assert said[0] in error.headers["message"]


@pytest.mark.parametrize("epoch", [None, 7])
async def test_a_0_with_a_body_begins_no_epoch(
    broker: BrokerUnderTest, autojump_clock: MockClock, epoch: int | None
) -> None:
    """Whoever numbers from 0 on by mistake does not end the one that does it right."""
    right, wrong = await broker.client(), await broker.client()
    await send(right, 1)
    await expect_receipts(right, 1)

    epochs = {} if epoch is None else {"producer_epoch": str(epoch)}
    await wrong.publish(b"x", destination=JOBS, producer="shop", producer_seq="0", **epochs)
    await wrong.expect_error("a body with producer-seq:0")

    await send(right, 2)
    await expect_receipts(right, 2)


async def test_what_was_sent_before_a_wrong_number_is_published(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber()
    client = await broker.client()

    await send(client, 1, 2, "three", 4, destination="/topic/a")

    await expect_receipts(client, 1, 2)
    error = await client.expect_error("'producer-seq'")
    assert error.headers["receipt-id"] == "three"
    assert await subscriber.next_bodies(2) == [b"1", b"2"]
    await subscriber.sync()


async def test_0_is_refused_in_a_transaction(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await broker.client()
    await client.send("BEGIN", transaction="t")

    await send(client, 0, transaction="t")

    await client.expect_error("producer-seq:0 in a transaction")


async def test_only_so_many_numbers_may_be_left_out(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await broker.client()
    numbers = [2 * number for number in range(1, MAX_RANGES + 1)]
    await send(client, *numbers)
    await expect_receipts(client, *numbers)

    await send(client, 2 * MAX_RANGES + 2)

    await client.expect_error("too many numbers left out", "from 1 on")
    again = await broker.client()
    await send(again, 1, 3, 2 * MAX_RANGES + 2)
    await expect_receipts(again, 1, 3)  # what is missing may still be sent, and makes room
    assert await told(again, 2 * MAX_RANGES + 2) == {}


async def test_as_many_numbers_may_be_left_out_behind_the_first(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()
    numbers = [1 + 2 * number for number in range(MAX_RANGES + 1)]
    await send(client, *numbers)
    await expect_receipts(client, *numbers)

    await send(client, numbers[-1] + 2)

    await client.expect_error("too many numbers left out", f"{MAX_RANGES + 1} ranges", f"leave out {MAX_RANGES}")


async def test_each_user_has_producers_of_its_own_and_only_so_many(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    for name in ("anna", "olga"):
        add_user(users, name, write=[">"])
    async with running_broker(users_file=str(users), max_producers=1) as broker:
        anna = await broker.client(login="anna", passcode=PASSWORD)
        olga = await broker.client(login="olga", passcode=PASSWORD)
        for each in (anna, olga):
            await send(each, 1, destination="/topic/a")
            await expect_receipts(each, 1)

        await send(anna, 1, destination="/topic/a", producer="another")

        await anna.expect_error("too many producers", "max_producers", "producer_idle_s")
        await send(olga, 2, destination="/topic/a")
        await expect_receipts(olga, 2)


async def test_idle_producers_are_forgotten_and_others_are_not(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, producer_idle_s=60.0, ledger=False) as broker:
        shop = await broker.client()
        await send(shop, 1)
        await send(shop, 1, producer="busy")
        await expect_receipts(shop, 1, 1)
        mock_clock.jump(50)
        await broker.settle()
        await send(shop, 2, producer="busy")
        await expect_receipts(shop, 2)
        mock_clock.jump(15)
        await broker.settle()

        assert [producer.name for producer in broker.parts.producers] == ["busy"]
        assert broker.look("SELECT name FROM producers") == [("busy",)]
        await send(shop, 1)
        await expect_receipts(shop, 1)


async def test_a_producer_that_sends_while_it_is_being_forgotten_stays(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        shop = await broker.client()
        await send(shop, 1)
        await expect_receipts(shop, 1)
        with broker.held_store():
            await send(shop, 2)
            await shop.expect_nothing()  # this batch is stuck
            later_ns = broker.clock.now_ns() + 2 * 86_400 * NANOSECONDS
            broker.parts.producers.forget_idle(broker.journal, later_ns)
            await send(shop, 3)
            await shop.expect_nothing()

        await expect_receipts(shop, 2, 3)
        await send(shop, 1, 2, 3)
        assert [await told(shop, number) for number in (1, 2, 3)] == 3 * [{"duplicate": "true"}]
        await broker.settle()
        assert broker.look("SELECT name, length(taken) FROM producers") == [("shop", 16)]


async def test_a_producer_that_is_done_is_forgotten_soon_and_one_that_sends_again_is_not(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        for name, epoch in (("done", 1), ("again", 1), ("other epoch", 2), ("silent", None)):
            shop = await broker.client()
            await send(shop, 1, producer=name)
            await expect_receipts(shop, 1)
            done = {} if epoch is None else {"producer": name, "producer_epoch": str(epoch)}
            await shop.send("DISCONNECT", receipt="bye", **done)
            await shop.expect_receipt("bye")
        shop = await broker.client()
        await send(shop, 1, 2, producer="again")
        assert await told(shop, 1) == {"duplicate": "true"}
        await expect_receipts(shop, 2)

        for later_s, expected in ((DONE_S - 1, 4), (DONE_S + 1, 3)):
            broker.parts.producers.forget_idle(broker.journal, broker.clock.now_ns() + later_s * NANOSECONDS)
            await broker.settle()
            assert len(broker.parts.producers) == expected
        names = [("again",), ("other epoch",), ("silent",)]
        assert broker.look("SELECT name FROM producers ORDER BY name") == names


async def test_who_is_done_says_in_which_epoch(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    shop = await broker.client()

    await shop.send("DISCONNECT", producer="shop")

    await shop.expect_error("producer-epoch")


# All together, and cost -----------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=6), st.data())
async def test_every_number_is_published_once_in_whatever_order_they_come(
    runs: list[list[int]], data: st.DataObject
) -> None:
    async with running_broker() as broker:
        subscriber = await broker.subscriber()
        clients = [await broker.client() for _ in range(2)]
        expected: list[bytes] = []
        for run in runs:
            client = data.draw(st.sampled_from(clients))
            await send(client, *run, destination="/topic/a")
            for number in run:
                is_new = b"%d" % number not in expected
                assert await told(client, number) == ({} if is_new else {"duplicate": "true"})
                if is_new:
                    expected.append(b"%d" % number)
            broker.check_invariants()

        assert await subscriber.next_bodies(len(expected)) == expected
        await subscriber.sync()


async def test_a_number_costs_few_operations(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """Reading and remembering it; everything else is done once per chunk."""
    await broker.subscriber()
    shop = await broker.client()

    def chunk(first: int) -> bytes:
        return b"".join(
            shop.frame(
                "SEND", b"x", destination="/topic/a", producer="shop", producer_epoch="1", producer_seq=str(number)
            )
            for number in range(first, first + 500)
        )

    for first in (1, 501):
        shop.session.receive(chunk(first))
    third = chunk(1001)

    work = operations(lambda: shop.session.receive(third))

    assert work / 500 < 20
