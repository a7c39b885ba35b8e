"""One message, everybody who should get it; and what keeps a topic from becoming smaller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker.control import ControlError
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_trace_tells_the_state_for_every_subscription(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        names = ("refuses", "works", "done", "absent")
        clients = {name: await broker.durable_subscriber(name=name, client_id=name) for name in names}
        await clients["absent"].vanish()
        await broker.store_messages(b"one")
        message_id = ""
        for name in ("refuses", "works", "done"):
            message = await clients[name].next_message()
            message_id = message.headers["message-id"]
            if name == "refuses":
                await clients[name].send("NACK", id=message.headers["ack"], reason="no ink", delay="60000")
                await clients[name].sync()
            if name == "done":
                await clients[name].acknowledge(message)

        answer = await broker.parts.control.call("trace", {"message_id": message_id})

        (place,) = answer["found"]
        assert (place["topic"], place["offset"], place["is_dead_letter"]) == ("a", 0, False)
        found = {each["subscription"].partition("/")[0]: each for each in place["subscriptions"]}
        assert {name: found[name]["state"] for name in names} == {
            "refuses": "waiting",
            "works": "in flight",
            "done": "settled",
            "absent": "not sent",
        }
        assert {name: found[name]["attempts"] for name in names} == {
            "refuses": 1,
            "works": 1,
            "done": None,
            "absent": 0,
        }
        assert found["refuses"]["reason"] == "no ink"
        assert found["refuses"]["next_attempt_at"] > found["refuses"]["last_attempt_at"]
        assert found["works"]["last_attempt_at"]
        assert found["absent"]["last_attempt_at"] is None


async def test_a_trace_finds_the_dead_letter_of_a_message(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"one")
        message = await subscriber.next_message()
        await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
        await subscriber.sync()
        await broker.settle()

        answer = await broker.parts.control.call("trace", {"message_id": message.headers["message-id"]})

        assert ("DLQ.a", 0, True) in [
            (place["topic"], place["offset"], place["is_dead_letter"]) for place in answer["found"]
        ]


async def test_a_trace_in_memory_and_of_what_is_not_there() -> None:
    async with running_broker() as broker:
        subscriber = await broker.subscriber(ack="client-individual")
        publisher = await broker.client()
        await publisher.publish(b"one")
        message_id = (await subscriber.next_message()).headers["message-id"]

        answer = await broker.parts.control.call("trace", {"message_id": message_id})
        unknown = await broker.parts.control.call("trace", {"message_id": "nonsense"})

        assert answer["found"][0]["subscriptions"][0]["state"] == "in flight"
        assert unknown["found"] == []
        assert "no message was ever called" in unknown["note"]
        with pytest.raises(ControlError):
            await broker.parts.control.call("trace", {})
        with pytest.raises(ControlError, match="message_id must not be empty"):
            await broker.parts.control.call("trace", {"message_id": ""})


async def test_collection_is_explained_by_whoever_pins_most(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        absent = await broker.durable_subscriber(name="absent", client_id="absent")
        await absent.vanish()
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*[b"%d" % number for number in range(10)])
        await subscriber.acknowledge(*await subscriber.next_messages(10))
        await broker.settle()

        (topic,) = (await broker.parts.control.call("explain_collection", {"topic": "a"}))["topics"]

        assert topic["stored"]["messages"] == 10
        assert topic["stored"]["bytes"] > 0
        assert topic["collectable"] == {"messages": 0}
        (pinning,) = topic["pinned_by"]
        assert (pinning["subscription"], pinning["lowest_unsettled"], pinning["unsettled"]) == ("absent/absent", 0, 10)
        assert pinning["since"]
        assert "'absent/absent', which nobody has attached to since" in topic["why"]

        await broker.delete_subscription("absent/absent")
        (topic,) = (await broker.parts.control.call("explain_collection", {"topic": "a"}))["topics"]
        assert topic["pinned_by"] == []
        assert topic["collectable"]["messages"] in (0, 10)  # it may have gone by now
        listed = await broker.parts.control.call("explain_collection", {})
        assert [each["topic"] for each in listed["topics"]] == ["a"]
        with pytest.raises(ControlError, match="there is no topic 'b'"):
            await broker.parts.control.call("explain_collection", {"topic": "b"})
