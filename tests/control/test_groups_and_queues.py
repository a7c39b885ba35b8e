"""Groups and queues, as an operator sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from stompbroker.control import ControlError, NotFound, sampling, subscription_methods
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client

JOBS = "/queue/jobs"


async def member(broker: BrokerUnderTest, destination: str = "/topic/jobs", **headers: Any) -> Client:
    return await broker.subscriber(
        destination, **{"ack": "client-individual", "group": "workers", "auto_delete": "true", **headers}
    )


async def consumer(broker: BrokerUnderTest, destination: str = JOBS, **headers: Any) -> Client:
    return await broker.subscriber(destination, **{"ack": "client-individual", **headers})


async def publish(broker: BrokerUnderTest, count: int, destination: str = JOBS) -> None:
    publisher = await broker.client()
    await publisher.publish(*[b"x"] * count, destination=destination)
    await publisher.sync()


async def only(broker: BrokerUnderTest, **wanted: Any) -> dict[str, Any]:
    (found,) = (await broker.parts.control.call("subscriptions", wanted))["subscriptions"]
    shown: dict[str, Any] = await broker.parts.control.call("subscription", {"id": found["id"]})
    assert {name: shown[name] for name in found} == found
    return shown


# Members --------------------------------------------------------------------------------------------------------------


async def test_a_group_has_members_and_nothing_that_would_be_one_members(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    first = await member(broker, id="one", prefetch_count="2")
    second = await member(broker, id="two", ack="client", prefetch_count="7")
    await publish(broker, 5, "/topic/jobs")
    await first.next_messages(2)
    await second.next_messages(3)

    shown = await only(broker)

    assert (shown["sharing"], shown["members"], shown["connected"], shown["in_flight"]) == ("shared", 2, True, 5)
    assert (shown["connection"], shown["peer"], shown["prefetch"]) == (None, None, None)
    members = [
        {name: value for name, value in each.items() if name not in ("rate", "peer", "member")}
        for each in shown["consumers"]
    ]
    alike = {"active": True}
    assert members == [
        alike
        | {"connection": first.session.connection_id, "id": "one", "ack": "client-individual"}
        | {"prefetch": 2, "in_flight": 2, "delivered": 2},
        alike
        | {"connection": second.session.connection_id, "id": "two", "ack": "client"}
        | {"prefetch": 7, "in_flight": 3, "delivered": 3},
    ]
    assert [each["peer"] for each in shown["consumers"]] == [first.session.peer, second.session.peer]
    assert [each["member"] for each in shown["consumers"]] == [first.session.client.name, second.session.client.name]


async def test_whoever_has_a_subscription_for_itself_is_its_only_member(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.subscriber(prefetch_count="3", ack="client")

    shown = await only(broker)

    assert (shown["sharing"], shown["members"]) == ("none", 1)
    assert (shown["connection"], shown["peer"], shown["prefetch"]) == (
        client.session.connection_id,
        client.session.peer,
        3,
    )
    (attached,) = shown["consumers"]
    assert (attached["connection"], attached["ack"], attached["prefetch"]) == (shown["connection"], "client", 3)


async def test_of_an_exclusive_group_one_member_is_active(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    first = await member(broker, exclusive="true", id="first")
    await member(broker, exclusive="true", id="second")

    shown = await only(broker)

    assert shown["sharing"] == "exclusive"
    assert [(each["id"], each["active"]) for each in shown["consumers"]] == [("first", True), ("second", False)]
    await first.vanish()
    shown = await only(broker)
    assert [(each["id"], each["active"]) for each in shown["consumers"]] == [("second", True)]


async def test_the_oldest_unacknowledged_message_is_that_of_any_member(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    first, second = await member(broker, prefetch_count="1"), await member(broker, prefetch_count="1")
    await publish(broker, 1, "/topic/jobs")
    oldest = await first.next_message()
    before = await only(broker)
    await trio.sleep(1)
    await publish(broker, 1, "/topic/jobs")
    await second.next_message()
    both = await only(broker)
    await first.acknowledge(oldest)
    after = await only(broker)

    assert before["oldest_unacknowledged_at"] == both["oldest_unacknowledged_at"]
    assert after["oldest_unacknowledged_at"] > both["oldest_unacknowledged_at"]


async def test_each_member_has_its_rate(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    sampler = broker.parts.control.sampler
    first, second = await member(broker, prefetch_count="2"), await member(broker, prefetch_count="8")
    assert [each["rate"] for each in (await only(broker))["consumers"]] == [None, None]
    await sampler.take()
    await trio.sleep(2)
    await publish(broker, 10, "/topic/jobs")
    await first.next_messages(2)
    await second.next_messages(8)
    await sampler.take()

    shown = await only(broker)

    assert [each["rate"] for each in shown["consumers"]] == pytest.approx([1, 4])
    assert shown["rate"] == pytest.approx(5)


async def test_beyond_a_bound_members_have_no_rates_and_are_not_listed(
    broker: BrokerUnderTest, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "MAX_MEMBERS", 3)
    monkeypatch.setattr(subscription_methods, "MAX_MEMBERS", 2)
    clients = [await member(broker) for _ in range(2)]
    for _ in range(2):
        await broker.parts.control.sampler.take()
        await trio.sleep(1)
    assert [each["rate"] for each in (await only(broker))["consumers"]] == [0.0, 0.0]
    clients += [await member(broker) for _ in range(2)]
    await publish(broker, 5, "/topic/jobs")
    await broker.parts.control.sampler.take()

    shown = await only(broker)

    assert (shown["members"], [each["rate"] for each in shown["consumers"]]) == (4, [None, None])
    assert not broker.parts.control.sampler.latest.members
    assert [each["connection"] for each in shown["consumers"]] == [one.session.connection_id for one in clients[:2]]


async def test_groups_and_queues_are_found_among_the_subscriptions(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    await broker.subscriber()
    await broker.durable_subscriber()
    await member(broker)
    await consumer(broker)

    async def keys(**wanted: bool) -> list[str]:
        listed = await broker.parts.control.call("subscriptions", wanted)
        return [each["key"] for each in listed["subscriptions"]]

    assert await keys(shared=True) == [JOBS, "group:workers @ jobs"]
    assert await keys(shared=True, durable=True) == [JOBS]
    assert await keys(shared=False) == ["0", "billing/orders"]


# Queues ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_queue_tells_what_waits_in_it_and_who_takes_it(store_directory: Path, is_stored: bool) -> None:
    async with running_broker(**({"store_in": store_directory} if is_stored else {})) as broker:
        call = broker.parts.control.call
        one, two = await consumer(broker, prefetch_count="2"), await consumer(broker, prefetch_count="1")
        await publish(broker, 5)
        dead = (await one.next_messages(2))[0]
        await two.next_message()
        await one.send("NACK", id=dead.headers["ack"], requeue="false")
        await one.next_message()
        await publish(broker, 1, "/topic/jobs")
        if is_stored:
            await broker.settle()
        await broker.parts.control.sampler.take()

        queues = (await call("topics", {"kind": "queue", "sort": "-backlog"}))["topics"]
        topics = (await call("topics", {"kind": "topic"}))["topics"]
        everything = (await call("topics", {}))["total"]
        overview = await call("overview", {})

        found = {each["destination"]: each for each in queues}
        jobs = found[JOBS]
        assert (jobs["backlog"], jobs["in_flight"], jobs["members"], jobs["dead_letters"]) == (1, 3, 2, 1)
        letters = found["/queue/DLQ.jobs"]
        assert (letters["backlog"], letters["members"], letters["dead_letters"]) == (1, 0, None)
        assert [each["destination"] for each in topics] == ["/topic/jobs"]
        assert (topics[0]["backlog"], topics[0]["in_flight"], topics[0]["members"]) == (None, None, None)
        assert (everything, overview["now"]["topics"], overview["now"]["queues"]) == (3, 3, 2)
        with pytest.raises(ControlError, match="kind is one of topic, queue"):
            await call("topics", {"kind": "stack"})


async def test_queues_are_sorted_by_what_only_they_have(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    for name, count in (("few", 1), ("many", 3)):
        await publish(broker, count, f"/queue/{name}")
    await consumer(broker, "/queue/few")
    await publish(broker, 5, "/topic/none")

    async def names(sort: str) -> list[str]:
        listed = await broker.parts.control.call("topics", {"sort": sort})
        return [each["name"] for each in listed["topics"]]

    assert (await names("-backlog"))[0] == "many"
    assert (await names("-members"))[0] == (await names("-in_flight"))[0] == "few"
    first = await broker.parts.control.call("topics", {"sort": "backlog", "limit": 1})
    rest = await broker.parts.control.call("topics", {"sort": "backlog", "cursor": first["next_cursor"]})
    assert len(first["topics"] + rest["topics"]) == 3


async def test_a_queue_is_found_by_its_name_wherever_a_topic_is(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    call = broker.parts.control.call
    one = await consumer(broker)
    await publish(broker, 2)
    first, _ = await one.next_messages(2)
    await one.acknowledge(first)
    await one.vanish()
    await broker.settle()

    shown = await call("topic", {"name": JOBS})
    (reading,) = shown["subscriptions"]
    traced = await call("trace", {"topic": JOBS, "message_id": first.headers["message-id"]})
    (explained,) = (await call("explain_collection", {"topic": JOBS}))["topics"]
    (read,) = (await call("subscriptions", {"topic": JOBS}))["subscriptions"]

    assert (shown["kind"], shown["destination"], reading["members"], reading["backlog"]) == ("queue", JOBS, 0, 1)
    (place,) = traced["found"]
    assert (place["topic"], [each["subscription"] for each in place["subscriptions"]]) == (JOBS, [JOBS])
    assert place["subscriptions"][0]["state"] == "settled"
    assert explained["topic"] == JOBS
    assert (
        "1 message is kept, from offset 1 on, for consumers to come: nobody has been attached since"
        in (explained["why"])
    )
    assert read["key"] == JOBS
    for method, params, said in (
        ("topic", {"name": "/queue/none"}, "there is no queue 'none'"),
        ("topic", {"name": "jobs"}, "there is no topic 'jobs'"),
        ("explain_collection", {"topic": "/queue/none"}, "there is no queue 'none'"),
        ("dead_letters", {"topic": JOBS}, "there are no dead letters of '/queue/jobs'"),
        ("dead_letters", {"topic": "/queue/DLQ.jobs"}, "there are no dead letters of '/queue/jobs'"),
    ):
        with pytest.raises(NotFound, match=said):
            await call(method, params)


async def test_why_a_queue_keeps_something_names_its_consumers(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async def why() -> str:
        (explained,) = (await broker.parts.control.call("explain_collection", {"topic": JOBS}))["topics"]
        reason = explained["why"]
        assert isinstance(reason, str)
        return reason

    await publish(broker, 1)
    assert (await why()).endswith("for consumers to come: nobody has been attached")
    one = await consumer(broker)
    assert (await why()).endswith("for its consumer")
    await consumer(broker)
    assert (await why()).endswith("for its 2 consumers")
    await one.acknowledge(await one.next_message())
    assert "settled all of it" in await why() or await why() == "nothing is kept"


async def test_a_dead_letter_that_was_consumed_is_not_redriven(durable_broker: BrokerUnderTest) -> None:
    """It would come a second time. The collector may not have been there yet."""
    broker = durable_broker
    call = broker.parts.control.call
    one = await consumer(broker)
    await publish(broker, 2)
    for message in await one.next_messages(2):
        await one.send("NACK", id=message.headers["ack"], requeue="false", reason="no")
    await one.sync()
    await broker.settle()
    reader = await consumer(broker, "/queue/DLQ.jobs", prefetch_count="1")
    await reader.send("ACK", id=(await reader.next_message()).headers["ack"])
    await reader.next_message()
    await broker.settle()

    (listed,) = (await call("dead_letter_topics", {}))["topics"]
    letters = (await call("dead_letters", {"topic": JOBS}))["letters"]
    overview = await call("overview", {})

    assert (listed["topic"], listed["destination"], listed["letters"]) == (JOBS, "/queue/DLQ.jobs", 1)
    assert [letter["offset"] for letter in letters] == [1]
    assert overview["now"]["dead_letters"] == 1
    with pytest.raises(NotFound, match="no dead letter at offset 0 of"):
        await call("dead_letter", {"topic": JOBS, "offset": 0})
    assert (await call("redrive_dead_letters", {"topic": JOBS}))["redriven"] == 1
    assert (await one.next_message()).headers["destination"] == JOBS
    await broker.expect_silence(one)


async def test_a_queue_in_memory_cannot_be_deleted_and_its_consumers_stay(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    one = await consumer(broker)
    shown = await only(broker)

    with pytest.raises(ControlError, match="kept in memory"):
        await broker.parts.control.call("remove_subscription", {"id": shown["id"]})

    await publish(broker, 1)
    assert (await one.next_message()).body == b"x"
