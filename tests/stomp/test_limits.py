"""Each limit at its edge: what is exactly at it passes, one more fails and is told the limit."""

from __future__ import annotations

import tracemalloc
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import trio

from stompbroker.broker import run as run_broker
from stompbroker.config import Settings
from stompbroker.errors import PeerViolation
from stompbroker.stomp import MAX_FRAMES_PER_CALL, FrameReader, Head, Limits
from stompbroker.stomp.connection import MAX_INTERVAL_MS
from stompbroker.stomp.frame import FRAME_OVERHEAD_BYTES
from stompbroker.stomp.heads import KNOWN_OVERHEAD_BYTES, SMALL_MEMO_BYTES, HeadAllowance, HeadMemo
from tests.end_to_end.conformance.mock_time import pass_time
from tests.end_to_end.conformance.versions import V1_1, V1_2, answer, every_version, in_versions
from tests.stomp.reading import one_by_one, outcome, reader
from tests.support.broker_under_test import running_broker
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Version
    from tests.support.broker_under_test import BrokerUnderTest


def fed(under_test: FrameReader, stream: bytes, *, byte_by_byte: bool) -> None:
    """Feed a stream; raises what the reader raises."""
    chunks = [bytes([byte]) for byte in stream] if byte_by_byte else [stream]
    frames = sum(len(under_test.receive(chunk)) for chunk in chunks)
    assert frames == 1


whole_and_byte_by_byte = pytest.mark.parametrize("byte_by_byte", [False, True], ids=["whole", "byte by byte"])


# Frames ---------------------------------------------------------------------------------------------------------------


@every_version
@whole_and_byte_by_byte
@pytest.mark.parametrize("has_receipt", [False, True], ids=["plain", "with receipt"])
def test_header_lines(version: Version, byte_by_byte: bool, has_receipt: bool) -> None:
    limits = Limits(max_header_count=5)

    def frame(header_lines: int) -> bytes:
        lines = [b"receipt:r"] if has_receipt else []
        lines += [b"h%d:" % number for number in range(header_lines - len(lines))]
        return b"SEND\n" + b"\n".join(lines) + b"\n\n\0"

    fed(reader(version, limits), frame(5), byte_by_byte=byte_by_byte)
    with pytest.raises(PeerViolation, match=r"too many headers.*at most 5"):
        fed(reader(version, limits), frame(6), byte_by_byte=byte_by_byte)


@every_version
def test_header_lines_of_a_block_that_is_remembered(version: Version) -> None:
    under_test = reader(version, Limits(max_header_count=2))
    assert outcome(under_test, [b"SEND\na:1\nb:2\n\n\0"] * 3).violation is None

    seen = outcome(under_test, [b"SEND\na:1\nb:2\nreceipt:r\n\n\0"])

    assert (seen.frames, seen.violation) == ([], "too many headers")


@pytest.mark.parametrize(
    ("version", "line_end"), [(V1_1, b"\n"), (V1_2, b"\n"), (V1_2, b"\r\n")], ids=["1.1 LF", "1.2 LF", "1.2 CRLF"]
)
@whole_and_byte_by_byte
def test_bytes_of_command_and_headers(version: Version, line_end: bytes, byte_by_byte: bool) -> None:
    limits = Limits(max_header_bytes=64)

    def frame(header_bytes: int) -> bytes:
        """Command and header lines, up to but without the last line feed of theirs, have that many bytes."""
        head = b"SEND" + line_end + b"x:"
        padding = b"y" * (header_bytes - len(head) - len(line_end[:-1]))
        return head + padding + line_end + line_end + b"\0"

    fed(reader(version, limits), frame(64), byte_by_byte=byte_by_byte)
    with pytest.raises(PeerViolation, match=r"headers too large.*64 bytes"):
        fed(reader(version, limits), frame(65), byte_by_byte=byte_by_byte)


@every_version
@pytest.mark.parametrize("run", [0, 1, 20])
@pytest.mark.parametrize("value", [b"receipt:", b"producer-seq:"])
def test_bytes_of_a_block_that_is_remembered_without_one_value(version: Version, run: int, value: bytes) -> None:
    """However many are in a run before it, and behind it."""
    under_test = reader(version, Limits(max_header_bytes=64))
    send = b"SEND\n" + value + b"%b\nx:y\ncontent-length:0\n\n\0"
    longest = b"1" * (64 - len(send % b"") + 3)
    under_test.receive(send % b"1" * 3)

    allowed = outcome(under_test, [send % b"1" * run + send % longest + send % b"1"])
    seen = outcome(under_test, [send % b"1" * run + send % (longest + b"1") + send % b"1"])

    assert (len(allowed.frames), allowed.violation) == (run + 2, None)
    assert (len(seen.frames), seen.violation) == (run, "headers too large")


@every_version
def test_headers_without_an_end_are_not_awaited_for_ever(version: Version) -> None:
    under_test = reader(version, Limits(max_header_bytes=64))

    with pytest.raises(PeerViolation, match="headers too large"):
        fed(under_test, b"x" * 80, byte_by_byte=True)

    assert under_test.pending_bytes <= 64 + len(b"\n\r\n")


@every_version
@whole_and_byte_by_byte
@pytest.mark.parametrize("is_announced", [False, True], ids=["up to NUL", "with content-length"])
def test_bytes_of_a_body(version: Version, byte_by_byte: bool, is_announced: bool) -> None:
    limits = Limits(max_body_bytes=32)

    def frame(body_bytes: int) -> bytes:
        announcement = b"content-length:%d\n" % body_bytes if is_announced else b""
        return b"SEND\ndestination:/topic/a\n" + announcement + b"\n" + b"x" * body_bytes + b"\0"

    fed(reader(version, limits), frame(32), byte_by_byte=byte_by_byte)
    with pytest.raises(PeerViolation, match=r"body too large.*32"):
        fed(reader(version, limits), frame(33), byte_by_byte=byte_by_byte)


@every_version
def test_too_large_a_body_is_refused_before_it_comes(version: Version) -> None:
    under_test = reader(version, Limits(max_body_bytes=32))

    with pytest.raises(PeerViolation, match="announces 33 bytes of body; at most 32"):
        under_test.receive(b"SEND\ndestination:/topic/a\ncontent-length:33\n\n")


@every_version
@pytest.mark.parametrize("length", ["1" * 19, "9" * 20, "1" * 5000], ids=["19 digits", "20 digits", "5000 digits"])
def test_an_absurd_content_length_is_no_more_than_a_violation(version: Version, length: str) -> None:
    outcome_of_it = outcome(reader(version), [f"SEND\ncontent-length:{length}\n\n".encode()])

    assert outcome_of_it.frames == []
    assert outcome_of_it.violation in ("body too large", "malformed content-length")


@every_version
@pytest.mark.parametrize(
    ("frame", "bound"),
    [(b"BEGIN\ntransaction:t\n\n\0", MAX_FRAMES_PER_CALL // 8), (b"SEND\n\n\0", MAX_FRAMES_PER_CALL)],
    ids=["BEGIN", "SEND"],
)
def test_frames_of_one_call(version: Version, frame: bytes, bound: int) -> None:
    exactly, more = reader(version), reader(version)

    assert len(list(one_by_one(exactly.receive(frame * bound)))) == bound
    assert not exactly.has_more
    assert len(list(one_by_one(more.receive(frame * (bound + 1))))) == bound
    assert more.has_more
    assert len(more.receive(b"")) == 1
    assert not more.has_more


# The memory of header blocks ------------------------------------------------------------------------------------------


def offered_twice(memo: HeadMemo, block: bytes) -> bool:
    """Whether the memo keeps a block that it has seen for the second time."""
    head = Head("SEND", {}, -1)
    memo.offer(block, head)
    memo.offer(block, head)
    memo.check_invariants()
    return memo.known.get(block) is head


#: What one block may have.
MOST_BYTES = SMALL_MEMO_BYTES - KNOWN_OVERHEAD_BYTES


def test_bytes_of_one_remembered_block() -> None:
    memo = HeadMemo()

    assert offered_twice(memo, b"x" * MOST_BYTES)
    assert not offered_twice(memo, b"y" * (MOST_BYTES + 1))


def test_bytes_of_all_remembered_blocks() -> None:
    memo = HeadMemo(HeadAllowance(0))
    half = SMALL_MEMO_BYTES // 2 - KNOWN_OVERHEAD_BYTES

    assert offered_twice(memo, b"a" * half)
    assert offered_twice(memo, b"b" * half)
    assert len(memo.known) == 2
    assert offered_twice(memo, b"c")
    assert len(memo.known) == 1


def test_remembered_blocks_of_all_connections() -> None:
    """One that has borrowed all there is leaves the others their own part, and gives it back when it ends."""
    allowance = HeadAllowance(2 * SMALL_MEMO_BYTES)
    greedy, modest = HeadMemo(allowance), HeadMemo(allowance)

    assert all(offered_twice(greedy, b"%d" % number * MOST_BYTES) for number in range(1, 4))
    assert (len(greedy.known), allowance.borrowed_bytes) == (3, 2 * SMALL_MEMO_BYTES)
    assert offered_twice(modest, b"a" * MOST_BYTES)
    assert offered_twice(modest, b"b" * MOST_BYTES)
    assert len(modest.known) == 1
    greedy.clear()

    assert allowance.borrowed_bytes == 0
    assert offered_twice(modest, b"c" * MOST_BYTES)
    assert len(modest.known) == 2


@pytest.mark.parametrize("count", [1, 4, 50, 250])
def test_remembered_blocks_take_no_more_memory_than_is_counted(count: int) -> None:
    """Also if each of their bytes is dear, as in headers of two characters."""
    allowance = HeadAllowance()
    under_test = FrameReader(Limits(), allowance=allowance)
    headers = b"".join(b"%x:\n" % number for number in range(count))
    tracemalloc.start()
    try:
        for number in [*range(300)] * 3:
            under_test.receive(b"SEND\n%b:\n%b\n\0" % (b"n%d" % number, headers))
        with_blocks, _ = tracemalloc.get_traced_memory()
        borrowed_bytes = allowance.borrowed_bytes
        under_test.close()
        without, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert 0 < with_blocks - without <= SMALL_MEMO_BYTES + borrowed_bytes


@pytest.mark.parametrize("destinations", [100, 1_000, 10_000])
def test_a_publisher_to_many_destinations_has_most_of_its_blocks_known_soon(destinations: int) -> None:
    memo = HeadMemo()
    head = Head("SEND", {}, -1)

    for _ in range(8):  # with 6, some hash seeds leave an eighth of them unknown
        for number in range(destinations):
            block = b"SEND\ndestination:/topic/a.%d" % number
            if block not in memo.known:
                memo.offer(block, head)
        memo.check_invariants()

    assert len(memo.known) >= 0.9 * destinations


class Placed(bytes):
    """A block whose trace is left where and as the test wants it."""

    def __hash__(self) -> int:
        return int(self[:1]) << 8 | int(self[1:])


def test_blocks_that_cover_the_traces_of_each_other_are_known_in_the_end() -> None:
    """Also if they come in a rhythm: the first and third cover each other, the others find traces of known ones."""
    memo = HeadMemo()
    covering = [b"11", b"22", b"12", b"32"]

    assert all(offered_twice(memo, Placed(block)) for block in (b"21", b"31"))
    for _ in range(64):
        for block in map(Placed, covering):
            if block not in memo.known:
                memo.offer(block, Head("SEND", {}, -1))

    assert len(memo.known) == 2 + len(covering)


@pytest.mark.parametrize(
    ("headers", "is_known"),
    [
        ({"destination": "/topic/a", "content-length": "3", "content-type": "text/plain"}, True),
        ({"destination": "/topic/a", "correlation-id": "17"}, False),
        ({"id": "1-17"}, False),
    ],
)
def test_a_block_that_says_only_where_a_message_goes_is_known_at_once(headers: dict[str, str], is_known: bool) -> None:
    memo = HeadMemo()

    memo.offer(b"block", Head("SEND", headers, -1))

    assert (b"block" in memo.known) is is_known


# Transactions ---------------------------------------------------------------------------------------------------------


@every_version
async def test_open_transactions(autojump_clock: MockClock, version: Version) -> None:
    async with running_broker(max_transactions=3) as broker:
        client = await broker.client(version)

        for number in range(3):
            await client.send("BEGIN", transaction=str(number), receipt=str(number))
            await client.expect_receipt(str(number))
        await client.send("ABORT", transaction="0")
        await client.send("BEGIN", transaction="3", receipt="3")
        await client.expect_receipt("3")
        await client.send("BEGIN", transaction="4", receipt="4")

        error = await client.expect_error("too many transactions", "3 are open")
        assert error.headers["receipt-id"] == "4"
        await client.vanish()


@every_version
async def test_frames_of_a_transaction(autojump_clock: MockClock, version: Version) -> None:
    async with running_broker(max_transaction_frames=3) as broker:
        client = await broker.client(version)
        for name in ("a", "b"):
            await client.send("BEGIN", transaction=name)
            await client.publish(b"1", b"2", b"3", transaction=name)
        await client.send("COMMIT", transaction="a", receipt="a")
        await client.expect_receipt("a")

        await client.publish(b"4", transaction="b", receipt="4")

        error = await client.expect_error("transaction too long", "'b' holds 3 frames")
        assert error.headers["receipt-id"] == "4"
        await client.vanish()


@every_version
async def test_bytes_of_a_transaction(autojump_clock: MockClock, version: Version) -> None:
    head = Head("SEND", {"destination": "/topic/a", "transaction": "a", "content-length": "100"}, 100)
    limit_bytes = 2 * (FRAME_OVERHEAD_BYTES + head.size_bytes + 100)
    async with running_broker(max_transaction_bytes=limit_bytes) as broker:
        client = await broker.client(version)
        for name in ("a", "b"):
            await client.send("BEGIN", transaction=name)
            await client.publish(b"x" * 100, transaction=name)
        await client.publish(b"x" * 100, transaction="a")
        await client.send("COMMIT", transaction="a", receipt="a")
        await client.expect_receipt("a")

        await client.publish(b"x" * 101, transaction="b", receipt="b")

        error = await client.expect_error("transaction too large", f"more than {limit_bytes} bytes")
        assert error.headers["receipt-id"] == "b"
        await client.vanish()


@every_version
async def test_age_of_a_transaction(autojump_clock: MockClock, version: Version) -> None:
    async with running_broker(transaction_timeout_s=5.0) as broker:
        client = await broker.client(version)
        for name in ("a", "b"):
            await client.send("BEGIN", transaction=name, receipt=name)
            await client.expect_receipt(name)

        await pass_time(4.999)
        await client.send("COMMIT", transaction="a", receipt="in time")
        await client.expect_receipt("in time")

        await client.expect_error("transaction open too long", "'b'", "5 s")
        await client.vanish()


# Subscriptions --------------------------------------------------------------------------------------------------------


@every_version
async def test_subscriptions_of_a_connection(autojump_clock: MockClock, version: Version) -> None:
    async with running_broker(max_subscriptions=3) as broker:
        client = await broker.client(version)
        for number in range(3):
            await client.subscribe(id=str(number))
        await client.send("UNSUBSCRIBE", id="0")
        await client.subscribe(id="3")

        await client.send("SUBSCRIBE", id="4", destination="/topic/a", receipt="r")

        error = await client.expect_error("too many subscriptions", "has 3")
        assert error.headers["receipt-id"] == "r"


@every_version
@pytest.mark.parametrize(
    ("headers", "in_flight"),
    [
        ({}, 3),
        ({"prefetch_count": "1"}, 1),
        ({"prefetch_count": "5"}, 5),
        ({"prefetch_count": "6"}, 5),
        ({"prefetch_count": "0"}, 5),
        ({"activemq.prefetchSize": "2"}, 2),
        ({"credit": "4"}, 4),
        ({"credit": "100"}, 5),
        ({"consumer_window_size": "0"}, 1),
    ],
    ids=lambda value: str(value),
)
async def test_messages_in_flight(
    autojump_clock: MockClock, version: Version, headers: dict[str, str], in_flight: int
) -> None:
    async with running_broker(default_prefetch=3, max_prefetch=5) as broker:
        client = await broker.subscriber(version=version, ack="client-individual", **headers)
        await client.publish(*(b"%d" % number for number in range(10)))

        messages = await client.next_messages(in_flight)
        await client.expect_nothing()
        await answer(client, "ACK", messages[0])

        assert (await client.next_message()).body == b"%d" % in_flight
        await client.expect_nothing()


@in_versions(V1_1, V1_2)
async def test_refused_messages_that_wait(autojump_clock: MockClock, version: Version) -> None:
    async with running_broker(max_waiting=2, redelivery_first_delay_ms=1000, redelivery_jitter=0) as broker:
        client = await broker.subscriber(version=version, ack="client-individual", prefetch_count="1")
        await client.publish(b"1", b"2", b"3")

        for expected in (b"1", b"2"):
            message = await client.next_message()
            assert message.body == expected
            await answer(client, "NACK", message)
        await client.expect_nothing()
        await pass_time(1.0)

        assert (await client.next_message()).body == b"1"


@every_version
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize(
    ("longest", "limit"),
    [("x" * 255, "255 bytes"), ("ä" * 127 + "x", "255 bytes"), (".".join("x" * 32), "32 segments")],
    ids=["bytes", "bytes of UTF-8", "segments"],
)
async def test_length_of_a_topic_name(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str, longest: str, limit: str
) -> None:
    client = await broker.client(version)
    await client.send(command, id="0", destination=f"/topic/{longest}", receipt="r")
    await client.expect_receipt("r")

    await client.send(command, id="1", destination=f"/topic/{longest}.y", receipt="too long")

    error = await client.expect_error("invalid destination", limit)
    assert error.headers["receipt-id"] == "too long"


# Connections ----------------------------------------------------------------------------------------------------------


async def test_time_to_connect(autojump_clock: MockClock) -> None:
    async with running_broker(connect_timeout_s=5.0) as broker:
        in_time, late = await broker.open(), await broker.open()

        await pass_time(4.999)
        await in_time.connect()
        opened_late_at = trio.current_time()

        await late.expect_error("not connected in time")
        assert trio.current_time() - opened_late_at <= 0.002
        await in_time.sync()


async def test_time_to_connect_is_not_prolonged_by_single_bytes(autojump_clock: MockClock) -> None:
    async with running_broker(connect_timeout_s=5.0) as broker:
        client = await broker.open()

        opened_at = trio.current_time()

        for byte in b"CONN":
            await pass_time(1.0)
            await client.send_raw(bytes([byte]))

        await client.expect_error("not connected in time")
        assert trio.current_time() - opened_at == pytest.approx(5.0)


async def test_heart_beat_intervals(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    await broker.client(heart_beat=f"{MAX_INTERVAL_MS},{MAX_INTERVAL_MS}")
    client = await broker.open()

    await client.send("CONNECT", accept_version="1.2", heart_beat=f"{MAX_INTERVAL_MS + 1},0")

    await client.expect_error("malformed heart-beat", str(MAX_INTERVAL_MS))


async def test_connections(tmp_path: Path) -> None:
    """Real sockets and real time: whom the listener turns away never gets a session."""
    settings = Settings(port=0, http_port=0, data=tmp_path, max_connections=2)
    connect, connected = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0", b"CONNECTED\n"
    with trio.fail_after(HARD_TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            running = await nursery.start(run_broker, settings)
            async with AsyncExitStack() as streams:
                for _ in range(2):
                    stream = await streams.enter_async_context(
                        await trio.open_tcp_stream(running.endpoints[0].host, running.endpoints[0].port)
                    )
                    await stream.send_all(connect)
                    assert (await stream.receive_some()).startswith(connected)
                refused = await streams.enter_async_context(
                    await trio.open_tcp_stream(running.endpoints[0].host, running.endpoints[0].port)
                )

                answered = b"".join([chunk async for chunk in refused])

            running.stop.set()

    assert answered.startswith(b"ERROR\nmessage:too many connections - ")
    assert b"2 are served at a time" in answered
