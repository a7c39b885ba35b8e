"""Who may say that a message comes over a bridge, what that does, and what a bridge is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker.changes import OF_BRIDGES
from stompbroker.changes.producers import MAX_RANGES
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client

OF_SEND = {"bridge_path": "s1", "bridge_origin": "s1/2/3", "origin_message_id": "s1-1-1"}


async def send(client: Client, number: int, topic: str = "s1/2", path: str = "s1", **headers: str) -> dict[str, str]:
    """What the RECEIPT says."""
    numbered = {"producer": topic, "producer_epoch": "1", "producer_seq": str(number), "bridge_path": path}
    await client.publish(b"%d" % number, receipt=str(number), **numbered, **headers)
    frame = await client.next_frame()
    assert (frame.command, frame.headers.pop("receipt-id")) == ("RECEIPT", str(number)), frame
    return dict(frame.headers)


@pytest.mark.parametrize("header", OF_SEND)
async def test_an_ordinary_user_cannot_write_what_bridges_write(tmp_path: Path, header: str) -> None:
    add_user(tmp_path / "users.toml", "alice", read=[">"], write=[">"])
    async with running_broker(store_in=tmp_path) as broker:
        client = await broker.client(login="alice", passcode=PASSWORD)

        await client.publish(b"forged", **{header: OF_SEND[header]})

        await client.expect_error("not allowed", repr(header.replace("_", "-")), "'alice'", "role bridge")


async def test_an_ordinary_user_cannot_subscribe_as_a_bridge(tmp_path: Path) -> None:
    add_user(tmp_path / "users.toml", "alice", read=[">"], write=[">"])
    async with running_broker(store_in=tmp_path) as broker:
        client = await broker.client(login="alice", passcode=PASSWORD)

        await client.send("SUBSCRIBE", id="0", destination="/topic/a", bridge="true")

        await client.expect_error("not allowed", "'bridge'", "role bridge")


async def test_a_user_with_the_role_is_a_bridge_within_its_patterns(tmp_path: Path) -> None:
    add_user(tmp_path / "users.toml", "london", write=["a"], roles=["bridge"])
    async with running_broker(store_in=tmp_path) as broker:
        client = await broker.client(login="london", passcode=PASSWORD)

        assert await send(client, 1) == {}
        await client.publish(b"elsewhere", destination="/topic/b", bridge_path="s1")

        await client.expect_error("not allowed", "no permission to write '/topic/b'")


async def test_nobody_is_a_bridge_where_anybody_gets_in(autojump_clock: MockClock) -> None:
    async with running_broker(anonymous=True) as broker:
        client = await broker.client()

        await client.publish(b"forged", bridge_path="s1")

        await client.expect_error("not allowed", "'bridge-path'", "anonymous = true")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"bridge_path": ""}, "'bridge-path'"),
        ({"bridge_path": "s1,,s2"}, "'bridge-path'"),
        ({"bridge_path": ",".join(["s"] * 33)}, "1 to 32"),
        ({"bridge_path": "s1", "bridge_origin": "s1/2"}, "STORE/TOPIC/OFFSET"),
        ({"bridge_path": "s1", "transaction": "t"}, "bridge-path in a transaction"),
    ],
)
async def test_what_is_wrong_is_said(
    autojump_clock: MockClock, broker: BrokerUnderTest, headers: Mapping[str, str], said: str
) -> None:
    client = await broker.client()
    await client.send("BEGIN", transaction="t")

    await client.publish(b"x", **headers)

    await client.expect_error(said)


async def test_a_message_that_was_here_is_dropped_and_confirmed(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    subscriber, client = await broker.subscriber(), await broker.client()
    own = broker.parts.message_ids.store_id

    assert await send(client, 1, path=f"s1,{own}") == {"circle": "true"}
    # It has taken no number.
    assert await send(client, 1, path="s1,s2") == {}

    assert await subscriber.next_bodies(1) == [b"1"]
    await subscriber.sync()


async def test_two_ways_to_here_meet_although_their_users_differ(tmp_path: Path) -> None:
    for name in ("over-b", "over-c"):
        add_user(tmp_path / "users.toml", name, write=[">"], roles=["bridge"])
    async with running_broker(store_in=tmp_path) as broker:
        one, other = [await broker.client(login=name, passcode=PASSWORD) for name in ("over-b", "over-c")]

        assert await send(one, 1, path="s1,b") == {}
        assert await send(other, 1, path="s1,c") == {"duplicate": "true"}
        assert await send(other, 1, topic="s1/9", path="s1,c") == {}


async def test_numbers_that_never_come_do_not_stop_a_bridge(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await broker.client()

    for number in range(1, 2 * MAX_RANGES + 20, 2):
        assert await send(client, number) == {}

    (producer,) = broker.parts.producers
    assert (producer.owner, len(producer.taken) <= MAX_RANGES) == (OF_BRIDGES, True)
    assert await send(client, 2 * MAX_RANGES + 19) == {"duplicate": "true"}


async def test_a_bridge_is_told_where_messages_are_and_when_they_end(tmp_path: Path) -> None:
    async with running_broker(store_in=tmp_path) as broker:
        bridge = await broker.durable_subscriber(bridge="true", prefetch_count="2")
        await broker.store_messages(b"0", b"1")
        await broker.store_messages(b"2", expires="4102444800000")

        messages = await bridge.next_messages(2)
        await bridge.send("ACK", id=messages[0].headers["ack"])
        messages += await bridge.next_messages(1)
        await bridge.send("NACK", id=messages[1].headers["ack"], delay="0")
        messages += await bridge.next_messages(1)

        own, number = broker.parts.message_ids.store_id, broker.registry.topics["a"].store_id
        assert [each.headers["bridge-offset"] for each in messages] == [f"{own}/{number}/{i}" for i in (0, 1, 2, 1)]
        assert [each.headers.get("bridge-expires") for each in messages] == [None, None, "4102444800000", None]
        assert all(each.headers["bridge-published"].isdecimal() for each in messages)
        assert messages[3].headers["redelivered"] == "true"


async def test_others_are_not_told(tmp_path: Path) -> None:
    async with running_broker(store_in=tmp_path) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"0", bridge_offset="forged")

        (message,) = await subscriber.next_messages(1)

        assert not [name for name in message.headers if name.startswith("bridge")]


async def test_no_offset_is_given_twice_after_a_kill(tmp_path: Path) -> None:
    """Or the other broker would take a new message for an old one. Those with persistent:false are in no store."""
    seen: list[str] = []
    for _ in range(3):
        async with running_broker(store_in=tmp_path) as broker:
            bridge = await broker.durable_subscriber(bridge="true", ack="auto")
            publisher = await broker.client()
            await publisher.publish(b"0", b"1", persistent="false")
            await publisher.sync()
            seen += [message.headers["bridge-offset"] for message in await bridge.next_messages(2)]
            broker.kill()

    assert len(set(seen)) == 6
