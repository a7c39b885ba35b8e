"""What is published at one broker arrives at the other, once, and comes back to nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from structlog.testing import capture_logs

from stompbroker.cli.bridges import left_lines
from tests.support.bridging import bodies_in, bridge_to, bridged_broker, client_of, connected, free_ports, quiet, until
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = "/topic/events.>"


async def test_a_message_arrives_with_its_headers_and_where_it_comes_from(tmp_path: Path) -> None:
    here, there = free_ports(2)
    async with (
        bridged_broker(tmp_path / "there", there) as other,
        bridged_broker(tmp_path / "here", here, bridge_to(there, name="there", send=[EVENTS])) as broker,
        client_of(here) as publisher,
        client_of(there, client_id="reader") as reader,
    ):
        await connected(broker)
        async with reader.subscribe(EVENTS, durable="all") as messages:
            await publisher.publish("/topic/events.a", b"one", headers={"colour": "red", "persistent": "false"})
            with trio.fail_after(10):
                message = await anext(messages)

            store_id = broker.message_ids.store_id
            assert (message.body, message.destination, message.headers["colour"]) == (b"one", "/topic/events.a", "red")
            assert message.headers["persistent"] == "false"
            assert message.headers["origin-message-id"].startswith(f"{store_id}-")
            assert message.headers["bridge-path"] == store_id
            assert message.headers["bridge-origin"].startswith(f"{store_id}/")
            assert other.message_ids.was_made(message.id)
            await message.ack_confirmed()


async def test_two_ways_bring_each_message_once_and_none_back(tmp_path: Path) -> None:
    here, there = free_ports(2)
    both = bridge_to(there, name="there", send=[EVENTS], receive=[EVENTS])
    async with (
        bridged_broker(tmp_path / "there", there) as other,
        bridged_broker(tmp_path / "here", here, both) as broker,
        client_of(here, client_id="reader") as near,
        client_of(there, client_id="reader") as far,
    ):
        await connected(broker)
        async with near.subscribe(EVENTS, durable="all"), far.subscribe(EVENTS, durable="all"):
            pass
        for number in range(300):
            await near.publish_soon("/topic/events.near", b"near %d" % number)
            await far.publish_soon("/topic/events.far", b"far %d" % number)
        await near.flush()
        await far.flush()
        await quiet(broker, other)

        everything = sorted([b"%b %d" % (side, number) for side in (b"near", b"far") for number in range(300)])
        assert sorted(await bodies_in(near, EVENTS, 600)) == everything
        assert sorted(await bodies_in(far, EVENTS, 600)) == everything
        await quiet(broker, other)
        assert [each.sent for each in broker.crossings] == [300, 300]
        assert sum(topic.published for topic in broker.registry.topics.values()) == 600
        assert sum(topic.published for topic in other.registry.topics.values()) == 600


async def test_a_topic_that_was_forgotten_begins_anew_under_another_number(tmp_path: Path) -> None:
    here, there = free_ports(2)
    async with (
        bridged_broker(tmp_path / "there", there) as other,
        bridged_broker(
            tmp_path / "here", here, bridge_to(there, name="there", send=[EVENTS]), topic_idle_s=0
        ) as broker,
        client_of(here) as publisher,
    ):
        await connected(broker)
        for round in range(1, 3):
            await publisher.publish("/topic/events.a", b"one")
            await quiet(broker)
            assert broker.crossings[0].sent == round
            broker.registry.collection_wanted.wake()
            await until(lambda: "events.a" not in broker.registry.topics)

        assert other.registry.topics["events.a"].published == 2


async def test_a_bridge_needs_no_login_here_and_nobody_can_take_what_is_its_own(tmp_path: Path) -> None:
    here, there = free_ports(2)
    (tmp_path / "here").mkdir()
    users = tmp_path / "here" / "users.toml"
    add_user(users, "alice", read=["events.>"], write=["events.>"])
    login = {"login": "alice", "passcode": PASSWORD}
    async with (
        bridged_broker(tmp_path / "there", there),
        bridged_broker(tmp_path / "here", here, bridge_to(there, name="there", send=[EVENTS])) as broker,
        client_of(here, client_id="bridge-there", **login) as alice,
    ):
        await connected(broker)
        (kept,) = broker.registry.durable.values()
        assert kept.key == "bridge:there/bridge-there/events.>"
        add_user(users, "bob")
        broker.reload()
        async with alice.subscribe(EVENTS, durable="events.>"):
            assert sorted(one.key for one in broker.registry.durable.values()) == [
                "alice/bridge-there/events.>",
                "bridge:there/bridge-there/events.>",
            ]

        await alice.publish("/topic/events.a", b"one")

        (crossing,) = broker.crossings
        await until(lambda: crossing.sent == 1)
        assert crossing.connections == 1


async def test_what_is_kept_for_a_pattern_that_is_gone_is_told_with_the_command_that_deletes_it(tmp_path: Path) -> None:
    here, there = free_ports(2)
    kept_for = bridge_to(there, name="there", send=[EVENTS, "/topic/orders.>"])
    async with (
        bridged_broker(tmp_path / "there", there),
        bridged_broker(tmp_path / "here", here, kept_for) as broker,
    ):
        await connected(broker)
        assert (await broker.control.call("bridges", {}))["left"] == []

    with capture_logs() as logged:
        async with (
            bridged_broker(tmp_path / "here", here, bridge_to(there, name="there", send=[EVENTS])) as broker,
            client_of(here) as publisher,
        ):
            await publisher.publish("/topic/orders.a", b"one")
            answer = await broker.control.call("bridges", {})
            key = "bridge:there/bridge-there/orders.>"
            assert answer["left"] == [{"subscription": key, "backlog": 1}]
            command = f'stompbroker subscriptions rm "{key}"'
            assert list(left_lines(answer))[-1] == f"  {command}    # 1 message"
            listed = (await broker.control.call("subscriptions", {}))["subscriptions"]
            (one,) = (each for each in listed if each["key"] == key)
            await broker.control.call("remove_subscription", {"id": one["id"]})
            assert (await broker.control.call("bridges", {}))["left"] == []
    assert [line["command"] for line in logged if "command" in line] == [command]
