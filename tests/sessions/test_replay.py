"""A subscriber that begins `from` somewhere gets what its topic has retained, and then what comes, without a seam."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.support.broker_under_test import running_broker
from tests.support.redelivery import S, begin_from, history, iso, jump_to, refuse, subscription_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


EARLIEST = begin_from("earliest")


@asynccontextmanager
async def retaining_broker(directory: Path, **retention: Any) -> AsyncIterator[BrokerUnderTest]:
    """A broker whose topic `a` retains its messages."""
    table = {"pattern": "a"} | (retention or {"retain_messages": 100_000})
    async with running_broker(store_in=directory, topics=[table]) as broker:
        yield broker


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def offsets(messages: list[Frame]) -> list[int]:
    return [int(message.headers["offset"]) for message in messages]


async def replayed(broker: BrokerUnderTest, **headers: Any) -> list[Frame]:
    """All that somebody gets who subscribes with these headers; the next message comes behind it."""
    reader = await broker.subscriber(**headers)
    messages = await broker.rest_for(reader)
    await broker.store_messages(b"live")
    (live,) = await broker.rest_for(reader)
    assert live.body == b"live"
    assert "missing-before" not in live.headers or not messages
    await reader.vanish()
    return messages


async def publish_over_time(broker: BrokerUnderTest, mock_clock: MockClock, count: int, every_s: int) -> list[int]:
    """One message at a time; returns when each was published."""
    times_ns = []
    for number in range(count):
        times_ns.append(broker.clock.now_ns())
        await broker.store_messages(b"%d" % number)
        await jump_to(broker, mock_clock, times_ns[-1] + every_s * S)
    return times_ns


# Where it begins -----------------------------------------------------------------------------------------------------


PLACES: list[tuple[str, Any, int]] = [
    ("from", "earliest", 0),
    ("from", "latest", 5),
    ("from", "offset=0", 0),
    ("from", "offset=3", 3),
    ("from", "offset=5", 5),
    ("from", "1h", 0),
    ("from", "2020-01-01", 0),
    ("from", "2020-01-01T00:00:00Z", 0),
    ("x-stream-offset", "first", 0),
    ("x-stream-offset", "last", 5),
    ("x-stream-offset", "next", 5),
    ("x-stream-offset", "offset=3", 3),
    ("x-stream-offset", "timestamp=0", 0),
    ("x-stream-offset", "1D", 0),
]


async def test_a_subscriber_begins_where_it_asks_to_and_goes_on_with_what_comes(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(5))
        readers = [await broker.subscriber(**{header: value}) for header, value, _ in PLACES]
        for reader, place in zip(readers, PLACES, strict=True):
            messages = await broker.rest_for(reader)
            assert [message.body for message in messages] == numbered(5)[place[2] :], place
            assert offsets(messages) == list(range(5))[place[2] :]
            assert all("missing-before" not in message.headers for message in messages)

        await broker.store_messages(b"live")

        for reader in readers:
            (live,) = await broker.rest_for(reader)
            assert (live.body, live.headers["offset"]) == (b"live", "5")


async def test_without_a_word_a_subscriber_begins_with_what_comes(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(5))

        assert await replayed(broker) == []


async def test_a_time_means_what_was_published_then_or_later(store_directory: Path, mock_clock: MockClock) -> None:
    async with retaining_broker(store_directory) as broker:
        times_ns = await publish_over_time(broker, mock_clock, 6, every_s=60)

        between = await broker.subscriber(**begin_from(iso(times_ns[2] + 30 * S)))
        assert [message.body for message in await broker.rest_for(between)] == numbered(3, first=3)
        just_before = await broker.subscriber(**begin_from(iso(times_ns[4] - 1000)))
        assert [message.body for message in await broker.rest_for(just_before)] == numbered(2, first=4)
        just_after = await broker.subscriber(**begin_from(iso(times_ns[4] + 1000)))
        assert [message.body for message in await broker.rest_for(just_after)] == numbered(1, first=5)


async def test_a_time_that_is_still_to_come_is_waited_for(store_directory: Path, mock_clock: MockClock) -> None:
    """What is published until then was not asked for."""
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(b"before")
        begins_ns = broker.clock.now_ns() + 60 * S
        reader = await broker.subscriber(**begin_from(iso(begins_ns)))
        await broker.store_messages(b"too early")
        await broker.expect_silence(reader)
        await jump_to(broker, mock_clock, begins_ns + 1 * S)

        await broker.store_messages(b"in time")

        assert [message.body for message in await broker.rest_for(reader)] == [b"in time"]


async def test_an_age_counts_back_from_the_subscribe(store_directory: Path, mock_clock: MockClock) -> None:
    async with retaining_broker(store_directory) as broker:
        await publish_over_time(broker, mock_clock, 6, every_s=60)

        messages = await broker.rest_for(await broker.subscriber(**begin_from("150s")))

        assert [message.body for message in messages] == numbered(2, first=4)


async def test_two_words_that_say_the_same_are_one(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(3))

        messages = await replayed(broker, **{"from": "earliest", "x-stream-offset": "first"})

        assert [message.body for message in messages] == numbered(3)


# Offsets -------------------------------------------------------------------------------------------------------------


async def test_every_message_of_a_retaining_topic_says_its_offset_also_again(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(2))
        reader = await broker.subscriber(ack="client-individual")
        await broker.store_messages(*numbered(2))
        first, second = await reader.next_messages(2)
        assert offsets([first, second]) == [2, 3]
        refused_ns = await refuse(broker, reader, second)

        await jump_to(broker, mock_clock, refused_ns + 2 * S)

        again = await reader.next_message()
        assert (offsets([again]), history(again)[1]) == ([3], "2")


async def test_the_offset_is_ours_to_say(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        reader = await broker.subscriber()

        await broker.store_messages(b"1", offset="77", missing_before="7")

        (message,) = await broker.rest_for(reader)
        assert message.headers["offset"] == "0"
        assert "missing-before" not in message.headers


async def test_a_topic_that_retains_nothing_says_no_offsets(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")

    assert "offset" not in (await subscriber.next_message()).headers


async def test_offsets_go_on_after_a_restart_and_what_was_retained_is_there(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(3))
        broker.kill()

    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(2, first=3))
        messages = await replayed(broker, **EARLIEST)
        assert [message.body for message in messages] == numbered(5)
        assert offsets(messages) == list(range(5))


# What is gone --------------------------------------------------------------------------------------------------------


async def broker_with_ten_left(broker: BrokerUnderTest, mock_clock: MockClock) -> None:
    """Of a hundred messages, by its retention."""
    await broker.store_messages(*numbered(100))
    for _ in range(5):
        await jump_to(broker, mock_clock, broker.clock.now_ns() + 2 * S)
    assert broker.look('SELECT min("offset"), max("offset") FROM messages') == [(90, 99)]


@pytest.mark.parametrize("value", ["offset=0", "offset=89", "1h", "2020-01-01"])
async def test_the_first_message_says_what_is_not_there_any_more(
    value: str, store_directory: Path, mock_clock: MockClock
) -> None:
    async with retaining_broker(store_directory, retain_messages=10) as broker:
        await broker_with_ten_left(broker, mock_clock)

        first, *rest = await broker.rest_for(await broker.subscriber(**begin_from(value)))

        assert (first.headers["missing-before"], first.headers["offset"], first.body) == ("90", "90", b"90")
        assert offsets(rest) == list(range(91, 100))
        assert all("missing-before" not in message.headers for message in rest)


@pytest.mark.parametrize("value", ["earliest", "latest", "offset=90", "offset=95", "offset=100"])
async def test_nothing_is_said_to_be_missing_that_was_not_asked_for(
    value: str, store_directory: Path, mock_clock: MockClock
) -> None:
    async with retaining_broker(store_directory, retain_messages=10) as broker:
        await broker_with_ten_left(broker, mock_clock)
        reader = await broker.subscriber(**begin_from(value))
        await broker.store_messages(b"live")

        messages = await broker.rest_for(reader)

        assert all("missing-before" not in message.headers for message in messages)


async def test_what_is_missing_is_said_by_a_live_message_if_nothing_else_is_left(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with retaining_broker(store_directory, retain_s=10) as broker:
        await broker.store_messages(*numbered(20))
        for _ in range(20):
            await jump_to(broker, mock_clock, broker.clock.now_ns() + 2 * S)
        assert broker.count("messages") == 0
        reader = await broker.subscriber(**begin_from("offset=5"))

        await broker.store_messages(b"live", b"next")

        live, following = await broker.rest_for(reader)
        assert (live.headers["offset"], live.headers["missing-before"]) == ("20", "20")
        assert "missing-before" not in following.headers


async def test_a_time_whose_messages_are_all_there_has_nothing_missing(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """Something older is gone, which nobody asked for; how much of what is kept is older is found out by reading it."""
    async with retaining_broker(store_directory, retain_messages=640) as broker:
        await broker.store_messages(*numbered(10))
        times_ns = await publish_over_time(broker, mock_clock, 10, every_s=1)
        await broker.store_messages(*numbered(635))
        for _ in range(5):
            await jump_to(broker, mock_clock, broker.clock.now_ns() + 2 * S)
        assert broker.look('SELECT min("offset") FROM messages') == [(10,)]

        first, *_ = await broker.rest_for(await broker.subscriber(**begin_from(iso(times_ns[5] - 1000))))

        assert first.headers["offset"] == "15"
        assert "missing-before" not in first.headers


async def test_what_has_expired_is_not_replayed(store_directory: Path, mock_clock: MockClock) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(b"over", ttl="1000")
        await broker.store_messages(b"there")
        await jump_to(broker, mock_clock, broker.clock.now_ns() + 2 * S)

        messages = await replayed(broker, **EARLIEST)

        assert [message.body for message in messages] == [b"there"]


# Mistakes ------------------------------------------------------------------------------------------------------------


async def subscribe(broker: BrokerUnderTest, destination: str = "/topic/a", **headers: str) -> Client:
    client = await broker.client(client_id="billing")
    await client.send("SUBSCRIBE", id="0", destination=destination, receipt="subscribed", **headers)
    return client


@pytest.mark.parametrize("pattern", ["/topic/*", "/topic/a.>"])
@pytest.mark.parametrize("is_durable", [True, False])
async def test_a_pattern_has_no_place_to_begin(pattern: str, is_durable: bool, store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        durable = {"durable_subscription_name": "orders"} if is_durable else {}
        client = await subscribe(broker, pattern, **EARLIEST, **durable)

        await client.expect_error("replay needs one topic", repr(pattern))
        assert broker.registry.durable == {}


@pytest.mark.parametrize("is_durable", [True, False])
async def test_a_topic_that_retains_nothing_has_no_place_to_begin(is_durable: bool, store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        durable = {"durable_subscription_name": "orders"} if is_durable else {}
        client = await subscribe(broker, "/topic/b", **EARLIEST, **durable)

        await client.expect_error("topic retains nothing", "'b'", "retain_messages")
        assert broker.registry.durable == {}


async def test_a_broker_without_a_store_retains_nothing(autojump_clock: MockClock) -> None:
    async with running_broker(topics=[{"pattern": "a", "retain_messages": 10}]) as broker:
        client = await subscribe(broker, **EARLIEST)

        await client.expect_error("topic retains nothing")


async def test_to_begin_with_what_comes_needs_no_retention(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await subscribe(broker, "/topic/*", **begin_from("latest"))

    await client.expect_receipt("subscribed")


async def test_an_offset_that_was_not_reached_yet_is_an_error_that_says_which_is(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(5))
        client = await subscribe(broker, **begin_from("offset=6"))

        await client.expect_error("offset not reached yet", "offset 5, not 6")


async def test_a_place_that_is_none_is_named(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        for value in ("", "offset=-1", "offset=x", "yesterday", "2026-13-01", "1w", "7"):
            client = await subscribe(broker, **begin_from(value))

            await client.expect_error("'from'", repr(value), "earliest")


async def test_two_places_are_an_error(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        client = await subscribe(broker, **{"from": "earliest", "x-stream-offset": "last"})

        await client.expect_error("contradicting", "from:earliest", "x-stream-offset:last")


# Durable and transient -----------------------------------------------------------------------------------------------


async def test_for_a_durable_subscription_it_counts_only_when_it_is_made(store_directory: Path) -> None:
    """Clients repeat their SUBSCRIBE word for word when they come back."""
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(5))
        subscriber = await broker.durable_subscriber(**EARLIEST)
        messages = await subscriber.next_messages(5)
        assert [message.body for message in messages] == numbered(5)
        await subscriber.acknowledge(*messages[:3])
        await subscriber.vanish()

        again = await broker.rest_for(await broker.durable_subscriber(**EARLIEST))
        assert [message.body for message in again] == numbered(2, first=3)
        broker.kill()

    async with retaining_broker(store_directory) as broker:
        subscriber = await broker.durable_subscriber(**EARLIEST)
        messages = await broker.rest_for(subscriber)
        assert [message.body for message in messages] == numbered(2, first=3)
        await subscriber.acknowledge(*messages)
        await subscriber.vanish()
        await broker.expect_silence(await broker.durable_subscriber(**EARLIEST))


async def test_for_a_durable_subscription_that_is_there_an_offset_that_is_not_is_no_error(
    store_directory: Path,
) -> None:
    async with retaining_broker(store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()

        await broker.durable_subscriber(**begin_from("offset=77"))


@pytest.mark.parametrize(("value", "first"), [("earliest", 0), ("offset=3", 3), ("latest", 5)])
async def test_where_a_durable_subscription_begins_survives_a_kill_before_its_first_message(
    value: str, first: int, store_directory: Path
) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(5))
        await broker.durable_subscriber(prefetch_count="1", **begin_from(value))
        broker.kill()

    async with retaining_broker(store_directory) as broker:
        messages = await broker.rest_for(await broker.durable_subscriber())
        assert [message.body for message in messages] == numbered(5)[first:]


async def test_a_time_survives_a_kill_before_the_first_message(store_directory: Path, mock_clock: MockClock) -> None:
    """Whoever asked for a time does not get what is older."""
    async with retaining_broker(store_directory, retain_s=6400) as broker:
        times_ns = await publish_over_time(broker, mock_clock, 5, every_s=1)
        client = await broker.client(client_id="billing")
        await client.subscribe(
            durable_subscription_name="orders", ack="client-individual", **begin_from(iso(times_ns[3] - 1000))
        )
        broker.kill()

    async with retaining_broker(store_directory, retain_s=6400) as broker:
        messages = await broker.rest_for(await broker.durable_subscriber())
        assert [message.body for message in messages] == numbered(2, first=3)


async def test_what_is_missing_is_said_also_after_a_kill_before_the_first_message(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with retaining_broker(store_directory, retain_messages=10) as broker:
        await broker_with_ten_left(broker, mock_clock)
        await broker.durable_subscriber(**begin_from("offset=0"))
        broker.kill()

    async with retaining_broker(store_directory, retain_messages=10) as broker:
        first, *_ = await broker.rest_for(await broker.durable_subscriber())
        assert (first.headers["offset"], first.headers.get("missing-before")) == ("90", "90")


async def test_what_is_missing_is_said_again_to_one_that_was_lost_before_it_answered(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """Nobody knows whether it has read the first message, and with it that something was missing."""
    async with retaining_broker(store_directory, retain_messages=10) as broker:
        await broker_with_ten_left(broker, mock_clock)
        subscriber = await broker.durable_subscriber(**begin_from("offset=0"))
        assert (await subscriber.next_message()).headers["missing-before"] == "90"
        await subscriber.vanish()

        first, *_ = await broker.rest_for(await broker.durable_subscriber())

        assert (first.headers["offset"], first.headers.get("missing-before")) == ("90", "90")


async def test_transient_subscribers_replay_independently(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(5))
        first = await broker.subscriber(ack="client-individual", **EARLIEST)
        await first.acknowledge(*await first.next_messages(5))

        second = await broker.subscriber(ack="client", **EARLIEST)

        assert await second.next_bodies(5) == numbered(5)
        await broker.expect_silence(first)


async def test_a_replayed_message_that_is_refused_comes_again(store_directory: Path, mock_clock: MockClock) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(5))
        reader = await broker.subscriber(ack="client-individual", **EARLIEST)
        messages = await reader.next_messages(5)
        refused_ns = await refuse(broker, reader, messages[2])
        await jump_to(broker, mock_clock, refused_ns + 2 * S)

        again = await reader.next_message()

        assert (again.body, *history(again)) == (b"2", "true", "2", None)


# Into the live messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["auto", "client"])
async def test_a_replay_that_reads_pages_runs_on_into_live_messages_without_gap_or_double(
    ack: str, store_directory: Path
) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(2500))
        assert broker.registry.topics["a"].log.message_count == 0, "so that pages have to be read"
        publisher = await broker.client()

        async def go_on_publishing() -> None:
            for number in range(2500, 3000, 10):
                await publisher.publish(*numbered(10, first=number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on_publishing)
            reader = await broker.subscriber(ack=ack, prefetch_count="10000", **EARLIEST)
            messages = await reader.next_messages(3000)

        assert [message.body for message in messages] == numbered(3000)
        assert offsets(messages) == list(range(3000))
        await broker.expect_silence(reader)


async def test_a_slow_replay_is_overtaken_by_nothing(store_directory: Path) -> None:
    """A few at a time, while others publish and read."""
    async with retaining_broker(store_directory) as broker:
        live = await broker.subscriber()
        await broker.store_messages(*numbered(1500))
        reader = await broker.subscriber(ack="client", prefetch_count="100", **begin_from("offset=700"))
        bodies: list[bytes] = []
        while len(bodies) < 900:
            messages = await reader.next_messages(100)
            bodies += [message.body for message in messages]
            if len(bodies) == 300:
                await broker.store_messages(*numbered(100, first=1500))
            await reader.send("ACK", id=messages[-1].headers["ack"])

        assert bodies == numbered(900, first=700)
        assert await live.next_bodies(1600) == numbered(1600)
        await broker.expect_silence(reader)


async def test_two_who_replay_the_same_share_what_is_read(store_directory: Path) -> None:
    async with retaining_broker(store_directory) as broker:
        await broker.store_messages(*numbered(2500))
        readers = [await broker.subscriber(**begin_from(f"offset={first}")) for first in (0, 500, 2499)]

        for reader, first in zip(readers, (0, 500, 2499), strict=True):
            assert await reader.next_bodies(2500 - first) == numbered(2500 - first, first=first)


async def test_what_a_reader_has_not_got_yet_is_not_collected_under_it(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with retaining_broker(store_directory, retain_messages=10) as broker:
        await broker.store_messages(*numbered(10))
        reader = await broker.subscriber(ack="client", prefetch_count="1", **EARLIEST)
        assert await reader.next_bodies(1) == [b"0"]
        await broker.store_messages(*numbered(90, first=10))
        for _ in range(5):
            await jump_to(broker, mock_clock, broker.clock.now_ns() + 2 * S)

        for number in range(1, 100):
            await reader.send("ACK", id=f"1-{number}")
            assert await reader.next_bodies(1) == [b"%d" % number]
        assert subscription_of(broker, reader).counters.dropped == 0
