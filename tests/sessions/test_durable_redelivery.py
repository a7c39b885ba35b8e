"""NACK on a durable subscription: how often, and when again, is known whatever happens in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest


EXACTLY_A_SECOND = {"redelivery_first_delay_ms": 1000, "redelivery_jitter": 0}
EXACTLY_A_MINUTE = {"redelivery_first_delay_ms": 60_000, "redelivery_jitter": 0}


async def refuse_all(broker: BrokerUnderTest, count: int) -> None:
    """A subscriber comes, refuses what it gets, has a receipt for that, and is gone."""
    subscriber = await broker.durable_subscriber()
    for message in await subscriber.next_messages(count):
        await subscriber.send("NACK", id=message.headers["ack"], receipt="refused", reason="no paper")
        await subscriber.expect_receipt("refused")
    await subscriber.vanish()


@pytest.mark.parametrize("is_killed", [True, False])
async def test_attempts_survive_a_restart(is_killed: bool, store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(b"1")
        await refuse_all(broker, 1)
        mock_clock.jump(2)
        await refuse_all(broker, 1)
        if is_killed:
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        mock_clock.jump(5)
        subscriber = await broker.durable_subscriber()
        message = await subscriber.next_message()
        assert (message.headers["redelivered"], message.headers["delivery-count"]) == ("true", "3")
        await subscriber.acknowledge(message)
        assert broker.count("redeliveries") == 0


async def test_the_due_time_survives_a_restart_and_the_rest_flows_on(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """The clock of the second broker begins at the wall time, which has hardly moved on."""
    async with running_broker(store_in=store_directory, **EXACTLY_A_MINUTE) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"refused", b"taken")
        refused, taken = await subscriber.next_messages(2)
        await subscriber.send("NACK", id=refused.headers["ack"])
        await subscriber.acknowledge(taken)
        broker.kill()

    async with running_broker(store_in=store_directory, **EXACTLY_A_MINUTE) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"new")
        assert [message.body for message in await broker.rest_for(subscriber)] == [b"new"]
        mock_clock.jump(30)
        await broker.expect_silence(subscriber)
        mock_clock.jump(31)
        again = await subscriber.next_message()
        assert (again.body, again.headers["delivery-count"]) == (b"refused", "2")


async def test_what_became_due_while_nobody_was_there_comes_first_in_order(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **EXACTLY_A_SECOND) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(b"1", b"2", b"3")
        await refuse_all(broker, 3)
        await broker.store_messages(b"4")
        await broker.settle()
        mock_clock.jump(2)
        await broker.settle()

        subscriber = await broker.durable_subscriber()
        messages = await broker.rest_for(subscriber)

        assert [message.body for message in messages] == [b"1", b"2", b"3", b"4"]
        assert [message.headers["delivery-count"] for message in messages] == ["2", "2", "2", "1"]


async def test_what_waits_for_its_time_is_not_sent_to_one_that_comes_back_early(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **EXACTLY_A_SECOND) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(b"1")
        await refuse_all(broker, 1)

        subscriber = await broker.durable_subscriber()
        await broker.expect_silence(subscriber)
        mock_clock.jump(1.5)

        assert (await subscriber.next_message()).headers["delivery-count"] == "2"


async def test_a_lost_connection_marks_what_was_in_flight_as_redelivered(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber(prefetch_count="2")
    await durable_broker.store_messages(b"1", b"2", b"3")
    await subscriber.next_messages(2)

    await subscriber.vanish()

    again = await durable_broker.durable_subscriber()
    messages = await durable_broker.rest_for(again)
    assert [message.body for message in messages] == [b"1", b"2", b"3"]
    assert [message.headers["redelivered"] for message in messages] == ["true", "true", "false"]


async def test_an_orderly_restart_marks_what_was_in_flight_as_redelivered(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="2")
        await broker.store_messages(b"1", b"2", b"3")
        await subscriber.next_messages(2)

    async with running_broker(store_in=store_directory) as broker:
        messages = await broker.rest_for(await broker.durable_subscriber())
        assert [message.body for message in messages] == [b"1", b"2", b"3"]
        assert [message.headers["redelivered"] for message in messages] == ["true", "true", "false"]


async def test_single_acks_out_of_order_survive_a_kill_as_they_are(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*[b"%d" % number for number in range(10)])
        messages = await subscriber.next_messages(10)
        await subscriber.acknowledge(messages[1], messages[4], messages[5], messages[9])
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        messages = await broker.rest_for(await broker.durable_subscriber())
        assert [int(message.body) for message in messages] == [0, 2, 3, 6, 7, 8]
