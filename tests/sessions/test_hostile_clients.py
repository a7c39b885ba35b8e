"""What no client may do: bring the broker down, lose somebody's message, or take more memory than there is."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from stompbroker.log_throttle import INTERVAL_S
from stompbroker.sessions import Ending
from stompbroker.transport import StreamTransport
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest

MIB = 1 << 20
LITTLE_MEMORY: dict[str, Any] = {"memory_limit": 16 * MIB, "max_body_bytes": 4 * MIB, "max_transaction_bytes": 4 * MIB}


async def test_one_subscriber_that_pins_two_topics_does_not_end_the_broker(autojump_clock: MockClock) -> None:
    """Disconnecting it for the first topic unblocks the second, which the collector comes to next."""
    async with running_broker(window_messages=5, block_timeout_s=5) as broker:
        stuck = await broker.client()
        for name in "ab":
            await stuck.subscribe(f"/topic/{name}", id=name, ack="client-individual", prefetch_count="1")
        publishers = [await broker.client() for _ in "ab"]
        for _ in range(12):
            for publisher, name in zip(publishers, "ab", strict=True):
                await publisher.publish(b"x", destination=f"/topic/{name}")
        await wait_all_tasks_blocked()
        assert len(broker.registry.blocked) == 2

        await trio.sleep(10)

        assert not broker.registry.blocked
        assert stuck.session.ending is not None
        await publishers[0].sync()


async def test_a_client_that_fails_again_and_again_writes_one_line_a_minute(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    with capture_logs() as logged:
        for _ in range(50):
            client = await broker.open()
            await client.send("SUBSCRIBE", id="0", destination="/topic/a")
            await client.expect_error("not connected")
            await client.vanish()
        assert [(line["event"], line["peer"]) for line in logged] == [("client failed", "memory:0")]

        await trio.sleep(INTERVAL_S + 1)

    assert [(line["event"], line["peer"], line["repeats"]) for line in logged[1:]] == [
        ("client failed", "memory:49", 49)
    ]
    assert logged[0]["error"].startswith("not connected: ")


async def test_a_commit_waits_when_its_own_chunk_has_filled_the_topic(autojump_clock: MockClock) -> None:
    """Its receipt must not come without its message."""
    async with running_broker(window_messages=10, default_prefetch=1) as broker:
        subscriber = await broker.subscriber(ack="client-individual")
        client = await broker.client()
        await client.send("BEGIN", transaction="t")
        await client.publish(b"committed", transaction="t")
        await wait_all_tasks_blocked()

        await client.send_raw(
            client.frame("SEND", b"x", destination="/topic/a") * 20
            + client.frame("COMMIT", transaction="t", receipt="done")
        )
        await client.expect_nothing()
        for _ in range(20):
            message = await subscriber.next_message()
            await subscriber.send("ACK", id=message.headers["ack"])

        assert (await subscriber.next_message()).body == b"committed"
        await client.expect_receipt("done")


async def test_acks_far_apart_cost_no_more_than_their_number(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()
    tracemalloc.start()
    try:
        await client.send_raw(b"ACK\nid:1-1\n\n\0ACK\nid:1-900000000\n\n\0")
        await client.expect_error("unknown ack id")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < MIB


async def test_an_ack_id_with_leading_zeros_was_never_given(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await broker.subscriber(ack="client-individual")
    await client.publish(b"x")
    assert (await client.next_message()).headers["ack"] == "1-1"

    await client.send("ACK", id="1-01")

    await client.expect_error("unknown ack id")


@pytest.mark.parametrize("behind", ["SUBSCRIBE", "COMMIT", "nothing"])
async def test_a_client_that_is_too_slow_for_itself_is_told_after_its_frames(
    behind: str, autojump_clock: MockClock
) -> None:
    """With `disconnect`, its own SENDs make it the laggard of its own topic."""
    async with running_broker(slow_subscriber="disconnect", window_messages=10) as broker:
        client = await broker.subscriber(ack="client-individual", prefetch_count="1")
        await client.send("BEGIN", transaction="t")
        await client.publish(b"x")
        await client.next_message()
        last = {
            "SUBSCRIBE": client.frame("SUBSCRIBE", id="1", destination="/topic/b"),
            "COMMIT": client.frame("COMMIT", transaction="t"),
            "nothing": b"",
        }[behind]

        for _ in range(3):
            await client.send_raw(client.frame("SEND", b"x", destination="/topic/a", receipt="r") * 10)
        await client.send_raw(client.frame("SEND", b"x", destination="/topic/a", receipt="r") + last)

        frame = await client.next_frame()
        while frame.command == "RECEIPT":
            frame = await client.next_frame()
        assert frame.headers["message"].startswith("subscriber too slow - ")
        await client.expect_closed()


async def test_a_connection_that_breaks_while_its_receipts_pile_up_is_noticed(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    ours, theirs = memory_stream_pair()
    broken = trio.Event()

    async def break_when_told() -> None:
        await broken.wait()
        raise trio.BrokenResourceError("gone")

    theirs.send_stream.send_all_hook = break_when_told
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.parts.serve_connection, StreamTransport(theirs, "breaks"))
        await ours.send_all(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        receipt = b"SEND\ndestination:/topic/a\nreceipt:%b\n\n\0" % (b"r" * 1000)
        await ours.send_all(receipt * 1000)
        await wait_all_tasks_blocked()
        (session,) = broker.parts.sessions.values()
        assert not session.wants_more

        await ours.send_stream.aclose()
        broken.set()
        await wait_all_tasks_blocked()

        assert not broker.parts.sessions


async def test_a_client_that_never_reads_its_receipts_is_given_up(autojump_clock: MockClock) -> None:
    async with running_broker(block_timeout_s=20) as broker:
        ours, theirs = memory_stream_pair()
        theirs.send_stream.send_all_hook = trio.sleep_forever
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.parts.serve_connection, StreamTransport(theirs, "never reads"))
            receipt = b"SEND\ndestination:/topic/a\nreceipt:%b\n\n\0" % (b"r" * 1000)
            await ours.send_all(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0" + receipt * 1000)
            await trio.sleep(60)
            await wait_all_tasks_blocked()
            assert not broker.parts.sessions
            nursery.cancel_scope.cancel()


async def test_a_consumer_that_never_acknowledges_stays_within_the_memory_limit(autojump_clock: MockClock) -> None:
    async with running_broker(**LITTLE_MEMORY, window_bytes=1 * MIB, block_timeout_s=10) as broker:
        subscriber = await broker.subscriber(ack="client-individual")
        publisher = await broker.client()

        async def read_for_ever() -> None:
            while True:
                await subscriber.next_message()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_for_ever)
            for _ in range(200):
                await publisher.publish(b"x" * 200_000)
            await wait_all_tasks_blocked()

            assert broker.budget.peak_bytes < 20 * MIB
            assert publisher.session.is_held_back
            nursery.cancel_scope.cancel()


async def test_headers_kept_in_a_transaction_are_charged(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await broker.client()
    await client.send("BEGIN", transaction="t")
    await client.sync()
    before_bytes = broker.budget.used_bytes

    for number in range(20):
        await client.publish(b"", transaction="t", **{f"x{number}": "y" * 30_000})
    await wait_all_tasks_blocked()

    assert broker.budget.used_bytes - before_bytes > 20 * 30_000


async def test_a_half_sent_frame_does_not_keep_memory_that_others_need(autojump_clock: MockClock) -> None:
    async with running_broker(**LITTLE_MEMORY, block_timeout_s=10) as broker:
        hoarders = [await broker.client() for _ in range(4)]
        for hoarder in hoarders:
            head = b"SEND\ndestination:/topic/a\ncontent-length:4000000\n\n"
            for piece in [head, *[b"x" * 100_000] * 38]:
                await hoarder.send_raw(piece)
                await wait_all_tasks_blocked()
        assert broker.budget.is_tight

        await trio.sleep(40)
        await wait_all_tasks_blocked()

        assert not broker.budget.is_tight
        client = await broker.subscriber()
        await client.publish(b"y" * MIB)
        assert len((await client.next_message()).body) == MIB


async def test_a_message_larger_than_the_window_reaches_everybody(autojump_clock: MockClock) -> None:
    for policy in ("block", "drop-oldest", "drop-newest", "disconnect"):
        async with running_broker(slow_subscriber=policy, window_bytes=64 * 1024) as broker:
            subscriber, publisher = await broker.subscriber(), await broker.client()

            await publisher.publish(b"x" * 300_000)

            assert len((await subscriber.next_message()).body) == 300_000


async def test_a_large_message_in_flight_does_not_count_as_unsent(autojump_clock: MockClock) -> None:
    """The subscriber has been sent everything it may have; the few bytes behind it do not fill the window."""
    async with running_broker(window_bytes=MIB, default_prefetch=1) as broker:
        subscriber, publisher = await broker.subscriber(ack="client-individual"), await broker.client()
        await publisher.publish(b"x" * 1_000_000)
        await subscriber.next_message()
        for _ in range(150):
            await publisher.publish(b"y" * 50)
        await wait_all_tasks_blocked()

        assert not broker.registry.topics["a"].gate.is_blocked


async def test_idle_topics_cost_a_wildcard_subscriber_nothing(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher = await broker.client()
    for number in range(50):
        await publisher.publish(b"x", destination=f"/topic/many/{number}")
    await publisher.sync()
    subscriber = await broker.subscriber("/topic/many.>")

    await trio.sleep(5)

    (subscription,) = broker.registry.subscriptions
    assert not subscription.readings
    await publisher.publish(b"y", destination="/topic/many/7")
    assert (await subscriber.next_message()).body == b"y"
    assert len(subscription.readings) == 1


async def test_transactions_begun_and_aborted_leave_nothing_behind(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()
    for _ in range(500):
        await client.sync()

    assert len(broker.parts.session_timers._heap) < 100


async def test_a_session_that_has_ended_has_no_timer(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await broker.client()

    client.session.receive(b"NONSENSE\n\n\0")

    assert client.session.ending is Ending.FAILED
    assert client.session not in broker.parts.session_timers.take_due(2**63, 100)


async def test_refused_and_then_settled_messages_leave_no_redeliveries_behind(autojump_clock: MockClock) -> None:
    async with running_broker(redelivery_first_delay_ms=3_600_000, redelivery_max_delay_ms=3_600_000) as broker:
        client = await broker.subscriber(ack="client-individual")
        for _ in range(50):
            await client.publish(*[b"x"] * 100)
            for message in await client.next_messages(100):
                await client.send("NACK", id=message.headers["ack"])
                await client.send("ACK", id=message.headers["ack"])
            await client.sync()

        assert broker.registry.redeliveries.count < 3000


async def test_there_are_not_more_topics_than_allowed(autojump_clock: MockClock) -> None:
    async with running_broker(max_topics=3) as broker:
        client = await broker.client()
        for name in "abc":
            await client.publish(b"x", destination=f"/topic/{name}")
        await client.sync()
        other = await broker.client()

        await other.send("SUBSCRIBE", id="0", destination="/topic/d", receipt="r")
        await client.publish(b"x", destination="/topic/e")

        await other.expect_error("too many topics", "max_topics")
        await client.expect_error("too many topics")
        assert len(broker.registry.topics) == 3


async def test_a_body_in_tiny_pieces_costs_what_is_in_it(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await broker.client()
    client.session.receive(b"SEND\ndestination:/topic/a\ncontent-length:100000\n\n")
    tracemalloc.start()
    try:
        for _ in range(40_000):
            client.session.receive(b"xx")
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < 200_000


async def test_an_error_does_not_repeat_all_that_was_wrong(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await broker.client()

    await client.send("ACK", id="9" * 20_000)

    error = await client.expect_error("unknown ack id")
    assert len(error.body) < 1100
