"""Counting must not depend on where a stream is cut into buffers: every sample is cut at every place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from benchmarks import frame_counting
from benchmarks.frame_counting import AckIdReader, FrameCounter, StampReader, stamped_body

if TYPE_CHECKING:
    from collections.abc import Iterator


def message(ack_id: bytes, body: bytes, end_of_line: bytes = b"\n") -> bytes:
    lines = [b"MESSAGE", b"subscription:0", b"ack:" + ack_id, b"destination:/topic/back:ack:1", b"", body + b"\0"]
    return end_of_line.join(lines)


SAMPLES: Final = [
    pytest.param(b"".join(message(b"c-%d" % number, b"xx") for number in range(3)), id="back to back"),
    pytest.param(b"".join(message(b"c-%d" % number, b"xx") + b"\n" for number in range(3)), id="line feeds between"),
    pytest.param(b"".join(message(b"c-%d" % number, b"xx", b"\r\n") for number in range(3)), id="carriage returns"),
    pytest.param(b"".join(message(b"c-%d" % number, b"") for number in range(3)), id="empty bodies"),
]


def cuts(stream: bytes) -> Iterator[list[bytes]]:
    """The stream whole, byte by byte, and in two and three pieces at every place."""
    yield [stream]
    yield [stream[at : at + 1] for at in range(len(stream))]
    for first in range(1, len(stream)):
        yield [stream[:first], stream[first:]]
        for second in range(first + 1, len(stream), 7):
            yield [stream[:first], stream[first:second], stream[second:]]


@pytest.mark.parametrize("large_bytes", [0, 1, frame_counting._LARGE_FRAME_BYTES])
@pytest.mark.parametrize("stream", SAMPLES)
def test_frames_are_counted_once_wherever_the_stream_is_cut(
    stream: bytes, large_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large those are that are searched for one by one."""
    monkeypatch.setattr(frame_counting, "_LARGE_FRAME_BYTES", large_bytes)
    for pieces in cuts(stream):
        counter = FrameCounter()
        for piece in pieces:
            counter.count(bytearray(piece), len(piece))

        assert (counter.frames, counter.byte_count) == (3, len(stream))


def test_what_an_earlier_and_longer_chunk_left_in_the_buffer_is_not_counted() -> None:
    counter = FrameCounter()
    buffer = bytearray(b"\0\0\0\0")

    counter.count(buffer, 1)

    assert (counter.frames, counter.byte_count) == (1, 1)


@pytest.mark.parametrize("stream", SAMPLES)
def test_every_ack_id_is_found_once_and_in_order_wherever_the_stream_is_cut(stream: bytes) -> None:
    for pieces in cuts(stream):
        reader = AckIdReader()

        assert [ack_id for piece in pieces for ack_id in reader.read(piece)] == [b"c-0", b"c-1", b"c-2"]


def test_an_ack_id_waits_for_the_end_of_its_frame() -> None:
    reader = AckIdReader()

    assert reader.read(message(b"c-1", b"xx") + b"MESSAGE\nack:c-2\n") == [b"c-1"]
    assert reader.read(b"\nxx\0") == [b"c-2"]


@pytest.mark.parametrize("body_bytes", [31, 256])
def test_every_stamp_is_found_once_and_in_order_wherever_the_stream_is_cut(body_bytes: int) -> None:
    due_times = [10**18, 10**18 + 1, 10**19 - 1]
    bodies = [stamped_body(number, due, body_bytes=body_bytes) for number, due in enumerate(due_times)]
    stream = b"".join(message(b"c-1", body) for body in bodies)
    assert {len(body) for body in bodies} == {body_bytes}

    for pieces in cuts(stream):
        reader = StampReader()

        assert [stamp for piece in pieces for stamp in reader.read(piece)] == list(enumerate(due_times))
