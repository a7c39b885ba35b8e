"""Every number of the API agrees with what was published, acknowledged and refused."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from stompbroker.clock import NANOSECONDS, Clock
from stompbroker.stomp import Version
from tests.management.asker import asking, hold_against_model, served
from tests.support.broker_process import running_broker as running_process
from tests.support.broker_process import wait_until
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.management.asker import Asker
    from tests.support.broker_under_test import BrokerUnderTest, Client


BODIES = [b"x" * size for size in range(1, 11)]
BODY_BYTES = sum(map(len, BODIES))


async def refuse(subscriber: Client, message: Frame, **headers: str) -> None:
    await subscriber.send("NACK", id=message.headers["ack"], receipt="refused", **headers)
    await subscriber.expect_receipt("refused")


async def at_rest(broker: BrokerUnderTest) -> None:
    """Everything is done and sampled."""
    await broker.settle()
    await broker.parts.control.sampler.take()


def counts(described: dict[str, Any]) -> dict[str, int]:
    """What of a subscription is not 0."""
    names = (
        *("backlog", "in_flight", "waiting", "delivered", "redelivered", "acked", "nacked", "overdue", "dead"),
        *("discarded", "expired", "dropped", "late"),
    )
    return {name: described[name] for name in names if described[name]}


def age_s(time: str) -> float:
    return Clock().now_ns() / NANOSECONDS - datetime.fromisoformat(time).timestamp()


# A durable and a transient subscription -------------------------------------------------------------------------------


async def traffic(broker: BrokerUnderTest) -> tuple[Client, Client, Client, list[Frame]]:
    """Ten messages; the durable subscriber acknowledges three, refuses two for later and one for good; the one in
    `auto` mode gets all."""
    durable = await broker.durable_subscriber()
    transient = await broker.subscriber(id="all")
    publisher = await broker.client(client_id="shop")
    await publisher.publish(*BODIES)
    await publisher.sync()
    messages = await durable.next_messages(10)
    await transient.next_messages(10)
    await durable.acknowledge(*messages[:3])
    await refuse(durable, messages[3], delay="3600000", reason="no paper")
    await refuse(durable, messages[4], delay="3600000")
    await refuse(durable, messages[5], requeue="false", reason="no such order")
    await at_rest(broker)
    return durable, transient, publisher, messages


async def test_the_overview(durable_broker: BrokerUnderTest) -> None:
    durable, transient, publisher, _ = await traffic(durable_broker)
    async with asking(durable_broker) as ask:
        overview = await ask.get("/overview")

    totals = overview["totals"]
    assert totals["published"] == 11, "ten, and one dead letter"
    assert totals["published_bytes"] == BODY_BYTES + len(BODIES[5])
    assert (totals["delivered"], totals["acked"], totals["nacked"], totals["dead"]) == (20, 13, 3, 1)
    assert (totals["redelivered"], totals["expired"], totals["dropped"], totals["late"]) == (0, 0, 0, 0)
    assert totals["connections_opened"] == 3
    assert totals["bytes_in"] == sum(each.session.bytes_in for each in (durable, transient, publisher))
    assert totals["bytes_out"] == sum(len(each.received) for each in (durable, transient, publisher))
    assert overview["now"] == {
        "connections": 3,
        "topics": 2,
        "queues": 0,
        "subscriptions": 2,
        "durable_subscriptions": 1,
        "in_flight": 4,
        "waiting": 2,
        "backlog": 2,
        "blocked_topics": 0,
        "dead_letters": 1,
        "last_values": 0,
    }
    assert overview["store"]["engine"] == "sqlite"
    assert overview["store"]["state"] == "ok"
    assert overview["store"]["backlog_units"] == 0
    assert overview["memory"]["used_bytes"] == durable_broker.budget.used_bytes
    assert overview["broker"]["state"] == "running"


async def test_what_went_with_topics_subscriptions_and_connections_is_still_in_the_totals(
    durable_broker: BrokerUnderTest,
) -> None:
    durable, transient, publisher, _ = await traffic(durable_broker)
    before = await durable_broker.parts.control.sampler.take()
    for client in (durable, transient, publisher):
        await client.send("DISCONNECT", receipt="bye")
        await client.expect_receipt("bye")
        await client.vanish()
    await durable_broker.delete_subscription("billing/orders")
    await at_rest(durable_broker)
    async with asking(durable_broker) as ask:
        overview = await ask.get("/overview")

    assert overview["now"]["connections"] == overview["now"]["subscriptions"] == 0
    for name in ("published", "published_bytes", "delivered", "acked", "nacked", "dead", "connections_opened"):
        assert overview["totals"][name] == before.totals[name], name
    assert overview["totals"]["bytes_out"] == sum(len(each.received) for each in (durable, transient, publisher))


async def test_the_topics(durable_broker: BrokerUnderTest) -> None:
    _, _, publisher, _ = await traffic(durable_broker)
    async with asking(durable_broker) as ask:
        listed = await ask.get("/topics")
        topic = await ask.get("/topics/a")

    assert (listed["total"], listed["next_cursor"]) == (2, None)
    letters, listed_topic = listed["topics"]
    assert (letters["name"], letters["is_of_dead_letters"], letters["published"]) == ("DLQ.a", True, 1)
    # The collector may look between the two questions.
    collected = {"kept_messages", "kept_bytes", "stored_messages", "first_offset"}
    assert [name for name in listed_topic if name not in collected and listed_topic[name] != topic[name]] == []
    assert (topic["name"], topic["destination"], topic["is_of_dead_letters"]) == ("a", "/topic/a", False)
    assert (topic["published"], topic["published_bytes"]) == (10, BODY_BYTES)
    assert (topic["publishers"], topic["subscribers"]) == (1, 2)
    assert topic["publisher_connections"] == [publisher.session.connection_id]
    assert (topic["stored"], topic["retains"], topic["blocked"]) == (True, False, False)
    assert topic["next_offset"] == 10
    ((stored, tail_bytes),) = durable_broker.look(
        "SELECT count(*), sum(length(tail)) FROM messages JOIN topics ON topic_id = topics.id WHERE topics.name = 'a'"
    )
    assert topic["stored_messages"] == stored == 10 - topic["first_offset"]
    assert topic["stored_bytes"] == tail_bytes
    assert topic["kept_messages"] >= 7, "those that the durable one has not settled are in memory"
    assert topic["policy"]["slow_subscriber"] == "block"
    assert topic["policy"]["delivery"]["max_attempts"] == 10
    readings = {reading["key"]: reading for reading in topic["subscriptions"]}
    assert readings["billing/orders"]["durable"]
    assert (readings["billing/orders"]["ack_floor"], readings["billing/orders"]["next_offset"]) == (3, 10)
    assert [readings["billing/orders"][name] for name in ("backlog", "in_flight", "waiting")] == [2, 4, 2]
    assert (readings["all"]["ack_floor"], readings["all"]["next_offset"]) == (10, 10)
    assert [readings["all"][name] for name in ("backlog", "in_flight", "waiting")] == [0, 0, 0]


async def test_a_durable_subscription(durable_broker: BrokerUnderTest) -> None:
    durable, _, _, _ = await traffic(durable_broker)
    async with asking(durable_broker) as ask:
        listed = await ask.subscription(durable=True)
        shown = await ask.get(f"/subscriptions/{listed['id']}")

    assert {name: shown[name] for name in listed} | {"lag_s": 0} == listed | {"lag_s": 0}
    assert (shown["key"], shown["name"], shown["destination"]) == ("billing/orders", "0", "/topic/a")
    assert (shown["ack"], shown["ordered"], shown["paused"]) == ("client-individual", False, False)
    assert (shown["connected"], shown["connection"]) == (True, durable.session.connection_id)
    assert shown["peer"] == durable.session.peer
    assert shown["prefetch"] == 1000
    expected = {"backlog": 2, "in_flight": 4, "waiting": 2, "delivered": 10, "acked": 3, "nacked": 3, "dead": 1}
    assert counts(shown) == expected
    assert 0 <= shown["lag_s"] < 30
    assert 0 <= age_s(shown["oldest_unacknowledged_at"]) < 30
    assert age_s(shown["created_at"]) >= shown["lag_s"]
    (read,) = shown["topics"]
    assert read == {
        "topic": "a",
        "ack_floor": 3,
        "next_offset": 10,
        "end_offset": 10,
        "backlog": 2,
        "in_flight": 4,
        "waiting": 2,
        "held_up": 0,
    }


async def test_what_a_durable_subscription_has_not_settled(durable_broker: BrokerUnderTest) -> None:
    await traffic(durable_broker)
    async with asking(durable_broker) as ask:
        shown = await ask.get(f"/subscriptions/{(await ask.subscription(durable=True))['id']}")

    by_offset = {entry["offset"]: entry for entry in shown["unsettled"]}
    assert {offset: entry["state"] for offset, entry in by_offset.items()} == {
        3: "waiting",
        4: "waiting",
        **dict.fromkeys(range(6, 10), "in flight"),
    }
    assert {entry["topic"] for entry in shown["unsettled"]} == {"a"}
    assert all(entry["attempts"] == 1 for entry in by_offset.values())
    assert (by_offset[3]["reason"], by_offset[4]["reason"], by_offset[6]["reason"]) == ("no paper", None, None)
    assert -3601 < age_s(by_offset[3]["next_attempt_at"]) < -3500
    assert by_offset[6]["next_attempt_at"] is None
    assert all(0 <= age_s(entry["last_attempt_at"]) < 30 for entry in by_offset.values())
    assert by_offset[6]["first_attempt_at"] == by_offset[6]["last_attempt_at"]


async def test_a_transient_subscription(durable_broker: BrokerUnderTest) -> None:
    _, transient, _, _ = await traffic(durable_broker)
    async with asking(durable_broker) as ask:
        listed = await ask.subscription(durable=False)
        shown = await ask.get(f"/subscriptions/{listed['id']}")

    assert (shown["key"], shown["name"], shown["ack"]) == ("all", "all", "auto")
    assert shown["connection"] == transient.session.connection_id
    assert counts(shown) == {"delivered": 10, "acked": 10}
    assert shown["lag_s"] is shown["oldest_unacknowledged_at"] is None
    assert shown["created_at"] is shown["last_seen_at"] is None
    assert shown["unsettled"] == []


async def test_redelivered_overdue_expired_and_late(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber(
        ack="client-individual", prefetch_count="1", ack_deadline="1000", redelivery_delay="0"
    )
    publisher = await broker.client()
    await publisher.publish(b"1")
    first = await subscriber.next_message()
    await refuse(subscriber, first)
    await subscriber.next_message()
    again = await subscriber.next_message()  # the one before was not answered within a second
    await publisher.publish(b"2", ttl="10")
    await publisher.publish(b"3")
    await publisher.sync()
    await trio.sleep(0.1)
    await subscriber.acknowledge(again)
    assert (await subscriber.next_message()).body == b"3", "the time of 2 is over"
    await subscriber.acknowledge(again)
    await broker.parts.control.sampler.take()
    async with asking(broker) as ask:
        shown = await ask.subscription(key="0")
        overview = await ask.get("/overview")

    assert counts(shown) == {
        "in_flight": 1,
        "delivered": 4,
        "redelivered": 2,
        "acked": 1,
        "nacked": 1,
        "overdue": 1,
        "expired": 1,
        "late": 1,
    }
    assert {name: overview["totals"][name] for name in ("redelivered", "overdue", "expired", "late")} == {
        name: shown[name] for name in ("redelivered", "overdue", "expired", "late")
    }


async def test_dropped_and_discarded(autojump_clock: MockClock) -> None:
    async with running_broker(
        topics=[{"pattern": "a", "slow_subscriber": "drop-oldest", "window_messages": 4}]
    ) as broker:
        subscriber = await broker.subscriber(
            ack="client-individual", prefetch_count="1", max_attempts="1", when_used_up="discard"
        )
        publisher = await broker.client()
        for number in range(12):
            await publisher.publish(b"%d" % number)
            await publisher.sync()
        async with asking(broker) as ask:
            before = await ask.subscription(key="0")
            await refuse(subscriber, await subscriber.next_message())
            await subscriber.next_message()
            after = await ask.subscription(key="0")

    assert before["dropped"] > 0
    assert before["dropped"] + before["backlog"] + before["in_flight"] == 12
    assert (after["discarded"], after["dead"], after["nacked"]) == (1, 0, 1)


async def test_lag_is_counted_in_messages_and_in_age(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(b"old")
        await broker.settle()
        mock_clock.jump(100)
        await broker.store_messages(b"new", b"newer")
        await broker.settle()
        mock_clock.jump(20)

        away = await ask.subscription(durable=True)
        subscriber = await broker.durable_subscriber()
        (old, *_) = await subscriber.next_messages(3)
        mock_clock.jump(5)
        back = await ask.subscription(durable=True)
        await subscriber.acknowledge(old)
        ahead = await ask.subscription(durable=True)

    assert (away["connected"], away["backlog"], away["in_flight"]) == (False, 3, 0)
    assert away["lag_s"] == pytest.approx(120, abs=0.1)
    assert away["oldest_unacknowledged_at"] is None
    assert (back["connected"], back["backlog"], back["in_flight"]) == (True, 0, 3)
    assert back["lag_s"] == pytest.approx(125, abs=0.1)
    assert datetime.fromisoformat(back["oldest_unacknowledged_at"]) - datetime.fromisoformat(
        away["last_seen_at"]
    ) == pytest.approx(timedelta(seconds=120), abs=timedelta(seconds=0.1))
    assert (ahead["in_flight"], ahead["acked"]) == (2, 1)
    assert ahead["lag_s"] == pytest.approx(25, abs=0.1)


async def test_rates_and_how_long_a_backlog_takes(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber(ack="client-individual", prefetch_count="50")
    publisher = await broker.client()
    await broker.parts.control.sampler.take()
    await publisher.publish(*[b"0123456789"] * 200)
    for message in await subscriber.next_messages(50):
        await subscriber.send("ACK", id=message.headers["ack"])
    await subscriber.next_messages(50)
    await trio.sleep(0.5)
    await broker.parts.control.sampler.take()
    async with asking(broker) as ask:
        overview = await ask.get("/overview")
        topic = await ask.get("/topics/a")
        shown = await ask.subscription(key="0")

    assert overview["rates"]["published"] == pytest.approx(400, rel=0.01)
    assert (topic["rate"], topic["byte_rate"]) == pytest.approx((400, 4000), rel=0.01)
    assert (shown["rate"], shown["ack_rate"]) == pytest.approx((200, 100), rel=0.01)
    assert shown["backlog"] == 100
    assert shown["drain_s"] == pytest.approx(1.0, rel=0.1)


# Connections ----------------------------------------------------------------------------------------------------------


async def test_connections(durable_broker: BrokerUnderTest) -> None:
    durable, transient, publisher, _ = await traffic(durable_broker)
    old = await durable_broker.open()
    await old.connect(Version.V1_1, heart_beat="0,7000")
    async with asking(durable_broker) as ask:
        listed = await ask.get("/connections")
        one = await ask.get(f"/connections/{publisher.session.connection_id}")

    assert listed["total"] == 4
    assert [each["id"] for each in listed["connections"]] == sorted(
        client.session.connection_id for client in (durable, transient, publisher, old)
    )
    by_id = {each["id"]: each for each in listed["connections"]}
    assert by_id[publisher.session.connection_id] == one
    assert (one["client_id"], one["version"], one["peer"]) == ("shop", "1.2", publisher.session.peer)
    assert (one["publishing_to"], one["subscriptions"], one["in_flight"]) == (["a"], 0, 0)
    reading = by_id[durable.session.connection_id]
    assert (reading["client_id"], reading["subscriptions"], reading["in_flight"]) == ("billing", 1, 4)
    assert (reading["publishing_to"], reading["held_back"], reading["late_acks"]) == ([], False, 0)
    for client in (durable, transient, publisher, old):
        shown = by_id[client.session.connection_id]
        assert shown["bytes_in"] == client.session.bytes_in
        assert shown["bytes_out"] == len(client.received)
        assert 0 <= age_s(shown["connected_at"]) < 30
    assert by_id[old.session.connection_id]["version"] == "1.1"
    assert by_id[old.session.connection_id]["heart_beat_to_client_ms"] >= 7000


async def test_a_connection_that_has_said_nothing_has_no_version_yet(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    silent = await broker.open()
    async with asking(broker) as ask:
        shown = await ask.get(f"/connections/{silent.session.connection_id}")
    assert (shown["version"], shown["client_id"], shown["bytes_in"]) == (None, None, 0)


async def test_a_publisher_that_has_gone_is_none_any_more(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    publisher = await broker.client()
    await publisher.publish(b"1", destination="/topic/a")
    await publisher.publish(b"1", destination="/topic/b")
    await publisher.sync()
    async with asking(broker) as ask:
        before = [topic["publishers"] for topic in (await ask.get("/topics"))["topics"]]
        await publisher.vanish()
        after = [topic["publishers"] for topic in (await ask.get("/topics"))["topics"]]
    assert (before, after) == ([1, 1], [0, 0])


# Dead letters, the collector, one message -----------------------------------------------------------------------------


async def test_dead_letters(durable_broker: BrokerUnderTest) -> None:
    _, _, _, messages = await traffic(durable_broker)
    async with asking(durable_broker) as ask:
        (topic,) = (await ask.get("/dead-letters"))["topics"]
        listed = await ask.get("/dead-letters/a")
        shown = await ask.get("/dead-letters/a/0")
        filtered = await ask.get("/dead-letters/a", subscription="billing/orders", reason="ORDER", limit=1, after=-1)
        nothing = await ask.get("/dead-letters/a", reason="paper")

    assert (topic["topic"], topic["destination"], topic["letters"]) == ("a", "/topic/DLQ.a", 1)
    (letter,) = listed["letters"]
    assert letter == {name: shown[name] for name in letter}
    assert letter["original_message_id"] == messages[5].headers["message-id"]
    assert (letter["subscription"], letter["is_durable"]) == ("billing/orders", True)
    assert (letter["attempts"], letter["cause"], letter["reason"]) == (1, "refused", "no such order")
    assert letter["body_bytes"] == len(BODIES[5])
    assert filtered["letters"] == listed["letters"]
    assert nothing["letters"] == []
    assert shown["destination"] == "/topic/a"


async def test_the_collector(durable_broker: BrokerUnderTest) -> None:
    await traffic(durable_broker)
    async with asking(durable_broker) as ask:
        everything = await ask.get("/collector")
        (topic,) = (await ask.get("/collector", topic="a"))["topics"]
        behind = await ask.get("/collector", after="DLQ.a", limit=1)

    assert [each["topic"] for each in everything["topics"]] == ["DLQ.a", "a"]
    assert [each["topic"] for each in behind["topics"]] == ["a"]
    (pinning,) = topic["pinned_by"]
    assert (pinning["subscription"], pinning["durable"], pinning["connected"]) == ("billing/orders", True, True)
    assert (pinning["lowest_unsettled"], pinning["unsettled"]) == (3, 6)
    assert topic["stored"]["next_offset"] == 10
    assert (
        topic["stored"]["messages"]
        == durable_broker.look(
            "SELECT count(*) FROM messages JOIN topics ON topic_id = topics.id WHERE topics.name = 'a'"
        )[0][0]
    )
    assert "6 messages are kept, from offset 3 on, for the durable subscription 'billing/orders'" in topic["why"]


async def test_the_trace_of_a_message(durable_broker: BrokerUnderTest) -> None:
    _, _, _, messages = await traffic(durable_broker)
    async with asking(durable_broker) as ask:
        in_flight = await ask.get(f"/topics/a/messages/{messages[9].headers['message-id']}")
        waiting = await ask.get(f"/topics/a/messages/{messages[3].headers['message-id']}")
        dead = await ask.get(f"/topics/a/messages/{messages[5].headers['message-id']}")

    (place,) = in_flight["found"]
    assert (place["topic"], place["offset"], place["is_dead_letter"]) == ("a", 9, False)
    assert place["body_bytes"] == len(BODIES[9])
    states = {each["subscription"]: each for each in place["subscriptions"]}
    assert {key: each["state"] for key, each in states.items()} == {"billing/orders": "in flight", "all": "settled"}
    assert (states["billing/orders"]["attempts"], states["billing/orders"]["durable"]) == (1, True)
    (place,) = waiting["found"]
    states = {each["subscription"]: each for each in place["subscriptions"]}
    assert (states["billing/orders"]["state"], states["billing/orders"]["reason"]) == ("waiting", "no paper")
    assert states["billing/orders"]["next_attempt_at"]
    letter = next(place for place in dead["found"] if place["is_dead_letter"])
    assert (letter["topic"], letter["offset"], letter["body_bytes"]) == ("DLQ.a", 0, len(BODIES[5]))


async def test_many_subscriptions_are_filtered_sorted_and_paged(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()
    for number in range(7):
        await client.subscribe(f"/topic/{'even' if number % 2 == 0 else 'odd'}", id=f"s{number}", ack="client")
    publisher = await broker.client()
    await publisher.publish(b"1", b"2", destination="/topic/odd")
    await publisher.sync()
    await client.next_messages(6)
    async with asking(broker) as ask:
        pages = [await ask.get("/subscriptions", sort="-in_flight", limit=3, durable=False)]
        while (cursor := pages[-1]["next_cursor"]) is not None:
            pages.append(await ask.get("/subscriptions", sort="-in_flight", limit=3, durable=False, cursor=cursor))
        odd = await ask.get("/subscriptions", topic="odd")
        found = await ask.get("/subscriptions", q="S3")
        durable = await ask.get("/subscriptions", durable=True)

    listed = [each for page in pages for each in page["subscriptions"]]
    assert [page["total"] for page in pages] == [7, 7, 7]
    assert [each["in_flight"] for each in listed] == [2, 2, 2, 0, 0, 0, 0]
    assert len({each["id"] for each in listed}) == 7
    assert {each["key"] for each in odd["subscriptions"]} == {"s1", "s3", "s5"}
    assert [each["key"] for each in found["subscriptions"]] == ["s3"]
    assert durable == {"total": 0, "next_cursor": None, "subscriptions": []}


# Over TCP -------------------------------------------------------------------------------------------------------------


async def test_the_same_over_a_real_socket(durable_broker: BrokerUnderTest) -> None:
    await traffic(durable_broker)

    async def numbers(ask: Asker) -> Any:
        topics, subscription = await ask.get("/topics"), await ask.subscription(durable=True)
        return topics, counts(subscription), (await ask.get("/overview"))["totals"]

    async with asking(durable_broker) as directly, served(durable_broker) as over_tcp:
        assert await numbers(directly) == await numbers(over_tcp)


def test_a_real_process_tells_the_same_over_tcp(tmp_path: Path) -> None:
    with running_process(tmp_path) as process:
        (line,) = [line for line in process.output() if line.startswith("Watch it at ")]
        with httpx.Client(base_url=line.removeprefix("Watch it at "), trust_env=False) as client:
            trio.run(exchange, process.address.port)

            def ask(path: str) -> Any:
                response = client.get(f"/api/v1{path}")
                assert response.status_code == 200, response.text
                hold_against_model("GET", path, response.json())
                return response.json()

            wait_until(lambda: ask("/overview")["totals"]["acked"] == 15, "the sample behind the last ACK")
            overview, (topic,) = ask("/overview"), ask("/topics")["topics"]
            (subscription,) = ask("/subscriptions")["subscriptions"]

    assert overview["totals"]["published"] == topic["published"] == 20
    assert topic["published_bytes"] == 20 * len(b"hello")
    assert (overview["totals"]["delivered"], overview["now"]["backlog"]) == (20, 5)
    assert counts(subscription) == {"backlog": 5, "delivered": 20, "acked": 15}
    assert subscription["connected"] is False
    assert overview["now"]["connections"] == 0
    assert overview["store"]["engine"] == "sqlite"


async def exchange(port: int) -> None:
    """Twenty messages to a durable subscriber, who acknowledges fifteen and leaves."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(
            b"CONNECT\naccept-version:1.2\nhost:x\nclient-id:me\n\n\0"
            b"SUBSCRIBE\nid:0\ndestination:/topic/a\nack:client-individual\ndurable-subscription-name:s\n\n\0"
            + b"SEND\ndestination:/topic/a\n\nhello\0"
            * 20
        )
        received = b""
        while received.count(b"\nack:") < 20 or not received.rstrip(b"\n").endswith(b"\0"):
            received += await stream.receive_some()
        acks = [line.removeprefix(b"ack:") for line in received.split(b"\n") if line.startswith(b"ack:")]
        await stream.send_all(b"".join(b"ACK\nid:%b\n\n\0" % ack for ack in acks[:15]))
        await stream.send_all(b"DISCONNECT\nreceipt:bye\n\n\0")
        while b"receipt-id:bye" not in received:
            received += await stream.receive_some()
