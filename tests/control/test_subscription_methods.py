"""Subscriptions, as an operator asks for them and changes them; what the HTTP tests do not see."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import trio

from stompbroker.control import ControlError, NotFound, Unavailable
from stompbroker.storage import StoreFailing
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest


async def only_id(broker: BrokerUnderTest) -> str:
    (found,) = (await broker.parts.control.call("subscriptions", {}))["subscriptions"]
    public_id = found["id"]
    assert isinstance(public_id, str)
    return public_id


async def test_somebody_who_attaches_while_it_is_moved_to_a_time_wins(store_directory: Path) -> None:
    """To find the offset of a time the store is asked, and meanwhile others run."""
    async with running_broker(store_in=store_directory, topics=[{"pattern": "a", "retain_s": 3600}]) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(b"1", b"2")
        public_id = await only_id(broker)
        outcomes: list[str] = []

        async def move() -> None:
            with pytest.raises(ControlError, match="try again"):
                await broker.parts.control.call("move_subscription", {"id": public_id, "to": "1h"})
            outcomes.append("refused")

        assert broker.parts.opened is not None
        store = broker.parts.opened.store
        read_page, is_asked, may_go_on = store.read_page, trio.Event(), threading.Event()
        token = trio.lowlevel.current_trio_token()

        def read_slowly(*args: object, **options: object) -> object:
            trio.from_thread.run_sync(is_asked.set, trio_token=token)
            assert may_go_on.wait(10)
            return read_page(*args, **options)  # type: ignore[arg-type]

        store.read_page = read_slowly  # type: ignore[method-assign, assignment]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(move)
            await is_asked.wait()
            store.read_page = read_page  # type: ignore[method-assign]
            subscriber = await broker.durable_subscriber()
            may_go_on.set()
        assert outcomes == ["refused"]
        assert await subscriber.next_bodies(2) == [b"1", b"2"]


async def test_one_that_is_only_just_being_made_cannot_be_moved(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    client = await broker.client(client_id="billing")
    with broker.held_store():
        await client.send(
            "SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", receipt="subscribed"
        )
        while not broker.registry.subscriptions:
            await trio.lowlevel.checkpoint()
        public_id = await only_id(broker)
        with pytest.raises(ControlError, match="only just being made"):
            await broker.parts.control.call("move_subscription", {"id": public_id, "to": "latest"})
    await client.expect_receipt("subscribed")
    await broker.settle()


async def test_while_the_store_fails_nobody_is_disconnected_for_nothing(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    subscriber = await broker.durable_subscriber()
    public_id = await only_id(broker)
    broker.journal.health.note_failing("no such disk")
    for method, params in (
        ("remove_subscription", {"id": public_id}),
        ("move_subscription", {"id": public_id, "to": "earliest"}),
    ):
        with pytest.raises(Unavailable, match="no such disk"):
            await broker.parts.control.call(method, params)
    broker.journal.health.note_room(None)
    await broker.expect_silence(subscriber)


async def test_where_room_is_low_a_subscription_can_be_deleted_since_that_makes_some(
    store_directory: Path,
) -> None:
    async with running_broker(store_in=store_directory, min_free_bytes=1024) as broker:
        await (await broker.durable_subscriber()).vanish()
        public_id = await only_id(broker)
        broker.journal.health.note_room(10)
        await broker.parts.control.call("remove_subscription", {"id": public_id})
        assert not broker.registry.subscriptions


async def test_those_that_read_a_topic_are_found_however_it_is_spelt(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    await broker.subscriber("/topic/x.y")
    wild = await broker.subscriber("/topic/x.*", id="wild")
    await broker.subscriber("/topic/other", id="other")
    await broker.store_messages(b"1", destination="/topic/x.y")
    await wild.next_message()
    for name in ("x.y", "/topic/x.y", "x/y", "/topic/x/y"):
        listed = await broker.parts.control.call("subscriptions", {"topic": name})
        assert {each["destination"] for each in listed["subscriptions"]} == {"/topic/x.y", "/topic/x.*"}, name
    assert (await broker.parts.control.call("subscriptions", {"topic": "nowhere"}))["total"] == 0
    with pytest.raises(ControlError, match="is a pattern"):
        await broker.parts.control.call("subscriptions", {"topic": "x.*"})


async def test_no_more_than_a_hundred_unsettled_messages_are_listed(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    subscriber = await broker.durable_subscriber()
    await broker.store_messages(*[b"x"] * 250)
    messages = await subscriber.next_messages(250)
    await subscriber.acknowledge(messages[1])
    shown = await broker.parts.control.call("subscription", {"id": await only_id(broker)})
    assert [entry["offset"] for entry in shown["unsettled"]] == [0, *range(2, 101)]
    assert shown["in_flight"] == 249


async def test_oldest_unacknowledged_is_the_oldest_that_is_still_not(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    subscriber = await broker.durable_subscriber()
    await broker.store_messages(b"1")
    first = await subscriber.next_message()
    before = await broker.parts.control.call("subscription", {"id": await only_id(broker)})
    await trio.sleep(0.005)  # times are told to the millisecond
    await broker.store_messages(b"2")
    second = await subscriber.next_message()
    both = await broker.parts.control.call("subscription", {"id": await only_id(broker)})
    await subscriber.acknowledge(first)
    after = await broker.parts.control.call("subscription", {"id": await only_id(broker)})
    await subscriber.acknowledge(second)
    at_last = await broker.parts.control.call("subscription", {"id": await only_id(broker)})

    assert before["oldest_unacknowledged_at"] == both["oldest_unacknowledged_at"]
    assert after["oldest_unacknowledged_at"] > both["oldest_unacknowledged_at"]
    assert at_last["oldest_unacknowledged_at"] is None


async def test_what_is_not_there_is_not_found(durable_broker: BrokerUnderTest) -> None:
    for method in ("subscription", "pause_subscription", "resume_subscription", "remove_subscription"):
        for public_id in ("d1", "t1-1", ""):
            with pytest.raises(NotFound, match="there is no subscription"):
                await durable_broker.parts.control.call(method, {"id": public_id})
        for params, said in (({"id": 1}, "id is a text"), ({"id": None}, "id is a text"), ({}, "missing: id")):
            with pytest.raises(ControlError, match=said):
                await durable_broker.parts.control.call(method, params)


async def test_nobody_is_told_the_connection_of_one_that_is_away(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    (attached,) = (await durable_broker.parts.control.call("subscriptions", {}))["subscriptions"]
    await subscriber.vanish()
    await durable_broker.settle()
    (away,) = (await durable_broker.parts.control.call("subscriptions", {}))["subscriptions"]

    assert (attached["key"], away["key"]) == ("billing/orders", "billing/orders")
    assert attached["connection"] is not None
    assert away["connection"] is None


@pytest.mark.parametrize("is_known_to_fail", [True, False])
async def test_subscriptions_are_listed_without_their_lag_while_the_store_cannot_be_read(
    store_directory: Path, is_known_to_fail: bool
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(b"1")

    async with running_broker(store_in=store_directory) as broker:
        assert broker.parts.opened is not None
        (before,) = (await broker.parts.control.call("subscriptions", {}))["subscriptions"]
        is_asked = False

        def fail(*_: object, **__: object) -> None:
            nonlocal is_asked
            is_asked = True
            raise StoreFailing("no such disk")

        broker.parts.opened.store.read_page = fail  # type: ignore[method-assign, assignment]
        if is_known_to_fail:
            broker.journal.health.note_failing("no such disk")
        (shown,) = (await broker.parts.control.call("subscriptions", {}))["subscriptions"]
        broker.journal.health.note_room(None)

    assert before["lag_s"] is not None
    assert (shown["lag_s"], shown["backlog"]) == (None, 1)
    assert is_asked is not is_known_to_fail, "a store that hangs is not asked"
