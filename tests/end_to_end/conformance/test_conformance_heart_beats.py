"""The checklist's items 26 to 31: heart-beats. The broker under test offers 100 ms and wants 1,000 ms."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio

from stompbroker.stomp import HEART_BEAT, HeartBeats
from stompbroker.stomp.connection import negotiate
from tests.end_to_end.conformance.mock_time import pass_time
from tests.end_to_end.conformance.versions import V1_0, V1_2, every_version, from_1_1_on
from tests.support.broker_under_test import A_MOMENT_S
from tests.support.carriers import WebSocketStream

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.stomp import Version
    from tests.support.broker_under_test import BrokerUnderTest, Client

#: The margin of the default settings: a client counts as lost after twice the agreed interval.
MARGIN = 2
HOUR_S = 3600.0
#: The part of the agreed interval after which the broker sends a heart-beat.
BEAT_AT = 0.75


async def next_beat(client: Client) -> tuple[float, bytes]:
    """All bytes that the broker has sent, one at least, and when the first came."""
    with trio.fail_after(HOUR_S):
        chunk = bytes(await client.stream.receive_some())
    came_at = trio.current_time()
    # TLS gives them in the pieces in which they were sent.
    with trio.move_on_after(A_MOMENT_S):
        while True:
            chunk += bytes(await client.stream.receive_some())
    return came_at, chunk


async def hears_nothing_for(client: Client, duration_s: float) -> bool:
    with trio.move_on_after(duration_s):
        await client.stream.receive_some()
        return False
    return True


async def closing_time(client: Client) -> float:
    """When the broker has closed, having said which heart-beat is missing."""
    await client.expect_error("heart-beat missing")
    return trio.current_time()


@from_1_1_on
@pytest.mark.parametrize(
    "value", ["x", "1", "1,2,3", "-1,0", "0,-1", "1.5,0", "", ",", "1,", "1 000,0", "+1,0", "0x1,0", "٣,0"]
)
async def test_item_26_a_malformed_heart_beat_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, value: str
) -> None:
    client = await broker.open()

    await client.send("CONNECT", accept_version=version.value, host="test", heart_beat=value)

    await client.expect_error("malformed heart-beat", repr(value))


@from_1_1_on
@pytest.mark.parametrize("headers", [{}, {"heart_beat": "0,0"}], ids=["missing", "0,0"])
async def test_item_26_no_heart_beat_header_means_none_either_way(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, headers: dict[str, str]
) -> None:
    client = await broker.client(version, **headers)

    assert await hears_nothing_for(client, HOUR_S)
    await client.sync()


@pytest.mark.parametrize(
    ("client", "server", "agreed"),
    [
        ((0, 0), (0, 0), HeartBeats(0, 0)),
        ((0, 0), (100, 1000), HeartBeats(0, 0)),
        ((500, 600), (0, 0), HeartBeats(0, 0)),
        ((500, 600), (100, 1000), HeartBeats(1000, 600)),
        ((5000, 50), (100, 1000), HeartBeats(5000, 100)),
        ((0, 50), (100, 1000), HeartBeats(0, 100)),
        ((50, 0), (100, 1000), HeartBeats(1000, 0)),
        ((50, 60), (0, 1000), HeartBeats(1000, 0)),
        ((50, 60), (100, 0), HeartBeats(0, 100)),
        ((1001, 101), (100, 1000), HeartBeats(1001, 101)),
    ],
)
def test_item_27_the_larger_of_both_counts_unless_one_is_zero(
    client: tuple[int, int], server: tuple[int, int], agreed: HeartBeats
) -> None:
    assert negotiate(client, server) == agreed


@from_1_1_on
@pytest.mark.parametrize("wish", ["0,0", "1,1", "20000,30000"])
async def test_item_27_the_server_declares_its_own_numbers(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, wish: str
) -> None:
    client = await broker.open()

    connected = await client.connect(version, heart_beat=wish)

    assert connected.headers["heart-beat"] == "100,1000"


@from_1_1_on
@pytest.mark.parametrize(("wanted_ms", "agreed_ms"), [(50, 100), (100, 100), (1000, 1000), (30_001, 30_001)])
async def test_item_27_heart_beats_to_the_client_come_as_often_as_agreed(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, wanted_ms: int, agreed_ms: int
) -> None:
    client = await broker.client(version, heart_beat=f"0,{wanted_ms}")

    first_at, _ = await next_beat(client)
    second_at, _ = await next_beat(client)

    assert agreed_ms / 1000 / 4 <= second_at - first_at <= agreed_ms / 1000


@from_1_1_on
@pytest.mark.parametrize(("offered_ms", "agreed_ms"), [(1, 1000), (1000, 1000), (1001, 1001), (20_000, 20_000)])
async def test_item_27_a_client_may_be_silent_as_long_as_agreed(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, offered_ms: int, agreed_ms: int
) -> None:
    client = await broker.client(version, heart_beat=f"{offered_ms},0")
    connected_at = trio.current_time()

    closed_at = await closing_time(client)

    assert closed_at - connected_at == pytest.approx(MARGIN * agreed_ms / 1000)


@from_1_1_on
async def test_item_28_an_idle_broker_sends_one_line_feed_in_every_interval(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version, heart_beat="0,1000")
    last_at = trio.current_time()

    for _ in range(20):
        now, chunk = await next_beat(client)
        assert chunk == HEART_BEAT == b"\n"
        assert now - last_at < 1.0
        last_at = now


@pytest.mark.parametrize("pause_s", [0.1, 0.3, 0.34, 0.5, 0.66, 0.7, 0.99])
async def test_item_28_no_interval_is_empty_whatever_else_is_sent(
    autojump_clock: MockClock, broker: BrokerUnderTest, pause_s: float
) -> None:
    client = await broker.client(heart_beat="0,1000")
    arrivals = [trio.current_time()]

    async with trio.open_nursery() as nursery:

        async def keep_arrivals() -> None:
            while True:
                arrivals.append((await next_beat(client))[0])

        nursery.start_soon(keep_arrivals)
        for number in range(30):
            await client.send("BEGIN", transaction=str(number), receipt=str(number))
            await client.send("ABORT", transaction=str(number))
            await pass_time(pause_s)
        nursery.cancel_scope.cancel()

    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    assert max(gaps) <= 1.0
    assert trio.current_time() - arrivals[-1] <= 1.0


async def test_item_28_frames_sent_anyway_spare_the_heart_beat(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(heart_beat="0,3000")

    for number in range(10):
        await client.send("BEGIN", transaction=str(number), receipt=str(number))
        await client.send("ABORT", transaction=str(number))
        await pass_time(0.9)

    _, chunk = await next_beat(client)
    assert chunk.count(b"RECEIPT") == 10
    assert b"\0\n\n" not in chunk


@from_1_1_on
async def test_item_29_line_feeds_keep_a_client_alive(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version, heart_beat="1000,0")

    for _ in range(20):
        await pass_time(1.0)
        await client.send_raw(b"\n")

    await client.sync()


@from_1_1_on
async def test_item_29_parts_of_a_frame_keep_a_client_alive(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version, heart_beat="1000,0")

    for byte in client.frame("BEGIN", transaction="t", receipt="slow"):
        await pass_time(1.0)
        await client.send_raw(bytes([byte]))

    await client.expect_receipt("slow")


@from_1_1_on
async def test_item_29_a_client_may_be_late_within_the_margin(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version, heart_beat="1000,0")

    for _ in range(5):
        await pass_time(1.9)
        await client.send_raw(b"\n")
    last_at = trio.current_time()

    assert await closing_time(client) - last_at == pytest.approx(2.0)


@from_1_1_on
async def test_item_29_what_the_broker_sends_does_not_keep_a_client_alive(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version, heart_beat="1000,0")
    if isinstance(client.stream, WebSocketStream):
        client.stream.answers_pings = False
    await client.subscribe()
    publisher = await broker.client()
    subscribed_at = trio.current_time()

    for _ in range(3):
        await pass_time(0.5)
        await publisher.publish(b"x")

    await client.next_messages(3)
    assert await closing_time(client) - subscribed_at == pytest.approx(2.0)


async def test_item_30_no_heart_beat_comes_before_connected(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await broker.open()

    assert await hears_nothing_for(client, 9.9)


async def test_item_30_no_heart_beat_comes_before_connected_though_connect_has_begun(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.open()
    connect = b"CONNECT\naccept-version:1.2\nheart-beat:1,1\nhost:h\n\n"

    await client.send_raw(connect)
    assert await hears_nothing_for(client, 9.0)
    await client.send_raw(b"\0")

    _, chunk = await next_beat(client)
    assert chunk.startswith(b"CONNECTED\n")


async def test_item_30_a_1_0_session_has_no_heart_beats(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await broker.client(V1_0, heart_beat="10,10")

    assert await hears_nothing_for(client, HOUR_S)
    await client.sync()


async def test_item_30_a_1_0_session_does_not_mind_a_malformed_heart_beat(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(V1_0, heart_beat="nonsense")

    await client.sync()


@from_1_1_on
async def test_item_30_a_silent_client_counts_as_lost(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version, heart_beat="1000,0")
    await client.subscribe(ack="client")
    (subscription,) = broker.registry.subscriptions
    await client.publish(b"never acknowledged")
    await client.next_message()

    await closing_time(client)

    assert not broker.registry.subscriptions
    assert subscription.counters.acked == 0


@from_1_1_on
async def test_item_31_a_client_that_offers_heart_beats_is_asked_for_them(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.open()

    connected = await client.connect(version, heart_beat="10000,0")

    _, wanted_ms = connected.headers["heart-beat"].split(",")
    assert int(wanted_ms) > 0
    await closing_time(client)


@every_version
async def test_item_31_a_client_that_offers_none_is_not_asked(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await pass_time(HOUR_S)

    await client.sync()


async def test_item_28_heart_beats_to_many_clients_do_not_disturb_each_other(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    intervals_ms = (100, 300, 700, 1000)
    clients = [await broker.client(V1_2, heart_beat=f"0,{interval}") for interval in intervals_ms]

    await pass_time(21.0)

    for client, interval in zip(clients, intervals_ms, strict=True):
        _, chunk = await next_beat(client)
        assert chunk == b"\n" * len(chunk)
        assert 21_000 / interval <= len(chunk) <= 21_000 / (BEAT_AT * interval) + 1


async def test_item_28_an_idle_client_gets_no_more_heart_beats_than_it_needs(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(heart_beat="0,1000")
    connected_at = trio.current_time()

    first_at, _ = await next_beat(client)
    assert first_at - connected_at == pytest.approx(BEAT_AT)
    await pass_time(HOUR_S)

    _, chunk = await next_beat(client)
    assert len(chunk) == pytest.approx(HOUR_S / BEAT_AT, abs=1)


async def test_item_28_what_else_has_a_time_limit_makes_no_heart_beats(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    """A transaction has the broker look at its client when it begins."""
    client = await broker.client(heart_beat="0,10000")

    for number in range(60):
        await client.send("BEGIN", transaction=str(number))
        await client.send("ABORT", transaction=str(number))
        await pass_time(1.0)

    _, chunk = await next_beat(client)
    assert len(chunk) == 60 / (BEAT_AT * 10)
