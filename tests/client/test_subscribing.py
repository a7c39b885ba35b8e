"""Subscriptions over several connections, and what becomes of messages that came over an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.client import Answered, AnswerLost, Refused, TooSlow, subscription
from tests.client.scripted_broker import PATIENCE_S, ScriptedBroker

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_what_a_subscription_says_in_every_dialect(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(client_id="c") as client:
                async with client.subscribe("/topic/a", durable="n", prefetch=5, headers={"no-local": "true"}):
                    pass
                async with client.subscribe("/topic/a", ack="auto", group="g", prefetch=None):
                    pass

        connection = await broker.accept()
        durable = (await connection.take_subscription()).headers
        assert await connection.next_frame("UNSUBSCRIBE") == ("UNSUBSCRIBE", {"id": "n"}, b"")
        group = (await connection.take_subscription()).headers
        await connection.part("UNSUBSCRIBE")

    assert durable == {
        "id": "n",
        "destination": "/topic/a",
        "ack": "client-individual",
        "durable": "true",
        "auto-delete": "false",
        "activemq.subscriptionName": "n",
        "prefetch-count": "5",
        "activemq.prefetchSize": "5",
        "no-local": "true",
        "receipt": "subscribe-n",
    }
    assert group == {"id": "2", "destination": "/topic/a", "ack": "auto", "group": "g", "receipt": "subscribe-2"}


async def test_a_connection_lost_before_the_receipt_of_subscribe(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a") as messages:
                assert (await anext(messages)).body == b"1"

        first = await broker.accept()
        subscribe = await first.next_frame("SUBSCRIBE")
        await first.cut()
        second = await broker.accept()
        assert await second.take_subscription() == subscribe
        await second.deliver("1", b"1")
        await second.part("UNSUBSCRIBE")


async def test_messages_of_an_earlier_connection_come_again_and_cannot_be_answered(autojump_clock: MockClock) -> None:
    broker, is_back = ScriptedBroker(), trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a") as messages:
                early = await anext(messages)
                await is_back.wait()
                assert early.ack() is Answered.LATE
                assert early.nack() is Answered.LATE
                with pytest.raises(AnswerLost):
                    await early.ack_confirmed()
                # What waited here and was not taken is not given out twice.
                bodies = []
                for message in [await anext(messages) for _ in range(2)]:
                    bodies.append(message.body)
                    assert message.ack() is Answered.SENT
                assert bodies == [b"1", b"2"]
                client.check_invariants()

        first = await broker.accept()
        subscribe = await first.take_subscription()
        await first.deliver("1", b"1", b"2")
        await wait_all_tasks_blocked()
        await first.cut()
        second = await broker.accept()
        assert await second.take_subscription() == subscribe
        is_back.set()
        await second.deliver("1", b"1", b"2")
        assert [(await second.next_frame("ACK")).headers for _ in range(2)] == [{"id": "ack-1"}, {"id": "ack-2"}]
        await second.part("UNSUBSCRIBE")


async def test_what_the_broker_forgot_when_it_sent_it_is_kept(autojump_clock: MockClock) -> None:
    broker, is_back = ScriptedBroker(), trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a", ack="auto") as messages:
                await is_back.wait()
                assert [message.body for message in await messages.take()] == [b"1", b"2"]

        first = await broker.accept()
        await first.take_subscription()
        await first.say("MESSAGE", b"1", subscription="1")
        await first.say("MESSAGE", b"2", subscription="1")
        await wait_all_tasks_blocked()
        await first.cut()
        second = await broker.accept()
        await second.take_subscription()
        is_back.set()
        await second.part("UNSUBSCRIBE")


async def test_an_answer_with_everything(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a") as messages:
                (await anext(messages)).nack(delay=1.5, reason="busy", requeue=False)
                await (await anext(messages)).ack_confirmed()

        connection = await broker.accept()
        await connection.take_subscription()
        await connection.deliver("1", b"1", b"2")
        nack = {"id": "ack-1", "delay": "1500", "reason": "busy", "requeue": "false"}
        assert (await connection.next_frame("NACK")).headers == nack
        ack = await connection.next_frame("ACK")
        await connection.hears_nothing()
        await connection.confirm(ack)
        await connection.part("UNSUBSCRIBE")


async def test_a_confirmed_ack_that_is_lost_says_so(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a") as messages:
                with pytest.raises(AnswerLost, match="if the broker has not got it, the message comes again"):
                    await (await anext(messages)).ack_confirmed()
                await anext(messages)

        first = await broker.accept()
        await first.take_subscription()
        await first.deliver("1", b"1")
        await first.next_frame("ACK")
        await first.cut()
        second = await broker.accept()
        await second.take_subscription()
        await second.deliver("1", b"1")
        await second.part("UNSUBSCRIBE")


async def test_acks_of_one_message_for_two_subscriptions_are_confirmed_each(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with (
                broker.client() as client,
                client.subscribe("/topic/a") as first,
                client.subscribe("/topic/>") as second,
            ):
                messages = [await anext(each) for each in (first, second)]
                with trio.fail_after(PATIENCE_S):
                    async with trio.open_nursery() as inner:
                        for message in messages:
                            inner.start_soon(message.ack_confirmed)

        connection = await broker.accept(version="1.1")
        for _ in range(2):
            await connection.take_subscription()
        for name in ("1", "2"):
            await connection.say("MESSAGE", b"x", subscription=name, message_id="m")
        for said in [await connection.next_frame("ACK") for _ in range(2)]:
            await connection.confirm(said)
        for _ in range(2):
            await connection.next_frame("UNSUBSCRIBE")
        await connection.part()


async def test_a_durable_subscription_may_have_a_number_for_a_name(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with (
                broker.client() as client,
                client.subscribe("/topic/a", durable="2"),
                client.subscribe("/topic/b"),
            ):
                client.check_invariants()

        connection = await broker.accept()
        assert [(await connection.take_subscription()).headers["id"] for _ in range(2)] == ["2", "3"]
        for _ in range(2):
            await connection.next_frame("UNSUBSCRIBE")
        await connection.part()


async def test_version_1_1_names_messages_its_own_way(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a") as messages:
                (await anext(messages)).ack()

        connection = await broker.accept(version="1.1")
        await connection.take_subscription()
        await connection.say("MESSAGE", b"x", subscription="1", message_id="m")
        assert (await connection.next_frame("ACK")).headers == {"message-id": "m", "subscription": "1"}
        await connection.part("UNSUBSCRIBE")


async def test_a_refused_subscription_ends_alone(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a") as messages:
                with pytest.raises(Refused, match="not yours"):
                    async with client.subscribe("/topic/b"):
                        pytest.fail("not subscribed")
                assert (await anext(messages)).body == b"1"

        first = await broker.accept()
        one = await first.take_subscription()
        await first.refuse(await first.next_frame("SUBSCRIBE"), "not yours")
        second = await broker.accept()
        assert await second.take_subscription() == one
        await second.deliver("1", b"1")
        await second.part("UNSUBSCRIBE")


async def test_a_subscription_that_is_refused_later_raises_where_it_is_read(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(Refused, match="taken over"):
                    async with client.subscribe("/topic/a", durable="n") as messages:
                        await anext(messages)
                await client.publish("/topic/a", b"x")

        first = await broker.accept()
        await first.take_subscription()
        await first.cut()
        second = await broker.accept()
        await second.refuse(await second.next_frame("SUBSCRIBE"), "taken over")
        third = await broker.accept()
        await third.confirm(await third.next_frame("SEND"))
        await third.part()


async def test_a_cancelled_subscribe_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with trio.move_on_after(5):
                    async with client.subscribe("/topic/a"):
                        pytest.fail("not subscribed")
                client.check_invariants()

        connection = await broker.accept()
        await connection.next_frame("SUBSCRIBE")
        await connection.part("UNSUBSCRIBE")


# Bounds


async def test_reading_stops_while_nobody_takes_what_has_come_unless_a_receipt_is_awaited(
    autojump_clock: MockClock,
) -> None:
    broker = ScriptedBroker(lockstep=True)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a", ack="auto", prefetch=2) as messages:
                await trio.sleep(100)
                await client.publish("/topic/b", b"x")
                assert len(await messages.take()) == 4

        connection = await broker.accept()
        await connection.take_subscription()
        for _ in range(3):
            await connection.say("MESSAGE", b"x", subscription="1")
        began_at = trio.current_time()
        await connection.say("MESSAGE", b"x", subscription="1")
        assert trio.current_time() - began_at >= 99
        await connection.confirm(await connection.next_frame("SEND"))
        await connection.part("UNSUBSCRIBE")


async def test_a_prefetch_that_nobody_takes_does_not_hold_back_what_comes_for_another_subscription(
    autojump_clock: MockClock,
) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with (
                broker.client() as client,
                client.subscribe("/queue/a", prefetch=2),
                client.subscribe("/queue/b") as others,
            ):
                with trio.fail_after(PATIENCE_S):
                    assert (await anext(others)).body == b"3"

        connection = await broker.accept()
        await connection.take_subscription()
        await connection.deliver("1", b"1", b"2")
        await connection.take_subscription()
        await wait_all_tasks_blocked()
        await connection.deliver("2", b"3")
        for _ in range(2):
            await connection.next_frame("UNSUBSCRIBE")
        await connection.part()


async def test_more_than_can_be_kept_ends_the_subscription(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "MAX_BUFFERED_BYTES", 10)
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a", prefetch=2) as messages:
                client.publish_nowait("/topic/b", b"x")
                await trio.sleep(100)
                assert len(await messages.take()) == 3
                with pytest.raises(TooSlow, match="3 messages wait"):
                    await anext(messages)

        connection = await broker.accept()
        await connection.take_subscription()
        send = await connection.next_frame("SEND")
        for _ in range(5):
            await connection.say("MESSAGE", b"12345", subscription="1")
        await connection.next_frame("UNSUBSCRIBE")
        await connection.confirm(send)
        await connection.part()
