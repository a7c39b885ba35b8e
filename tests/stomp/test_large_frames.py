"""A large frame that comes in pieces is the same frame as one that comes as a whole, and its body is copied once."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Final

import pytest

from stompbroker.stomp import SendRun, Version, pieces
from tests.stomp.reading import connection, cuts, read_stream, reader

KIB: Final = 1024
MIB: Final = 1024 * KIB

SEND: Final = b"SEND\ndestination:/topic/a\ncontent-length:6\n%b\nab\0\ncd\0"
STREAMS: Final = [
    pytest.param(SEND % b"" * 3, id="plain"),
    pytest.param(b"\n\n" + SEND % b"" + b"\n" + SEND % b"" + b"\n\n", id="line feeds between"),
    pytest.param(SEND % b"receipt:r\n" + SEND % b"receipt:s\n" + SEND % b"", id="receipts"),
    pytest.param(SEND % b"producer-seq:1\n" + SEND % b"producer-seq:2\n", id="numbered"),
    pytest.param(SEND % b"transaction:t\n" + SEND % b"", id="in a transaction"),
    pytest.param(b"MESSAGE\ncontent-length:6\nmessage-id:1\n\n\0\0\0\0\0\0\0ACK\nid:1-1\n\n\0", id="not a SEND"),
    pytest.param(SEND % b"" + b"DISCONNECT\ncontent-length:3\nreceipt:r\n\nabc\0" + SEND % b"", id="a turning point"),
    pytest.param((SEND % b"")[:-1] + b"x\0" + SEND % b"", id="a wrong length"),
    pytest.param(SEND % b"" + b"SEND\ndestination:/topic/a\ncontent-length:x\n\nab\0", id="a bad frame behind it"),
]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("version", [Version.V1_1, Version.V1_2])
def test_wherever_it_is_cut(stream: bytes, version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_stream([stream], version)
    monkeypatch.setattr(pieces, "LARGE_FRAME_BYTES", 1)
    monkeypatch.setattr(pieces, "SMALL_PIECE_BYTES", 0)

    for chunks in cuts(stream):
        assert read_stream(chunks, version) == whole


@pytest.mark.parametrize("first_bytes", [100, 5000])
def test_a_body_of_a_mebibyte_is_copied_once(first_bytes: int) -> None:
    """Memory at the peak: the chunks and the body. Each further copy would be another MiB."""
    body = bytes(MIB)
    stream = b"SEND\ndestination:/topic/a\ncontent-length:%d\n\n%b\0" % (MIB, body)
    places = [0, first_bytes, *range(first_bytes + 64 * KIB, MIB, 64 * KIB), len(stream)]
    ours = reader(Version.V1_2)
    tracemalloc.start()
    try:
        chunks = [stream[start:stop] for start, stop in pairwise(places)]
        frames = [frame for chunk in chunks for frame in ours.receive(chunk)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [frame.body for frame in frames] == [body]
    assert peak_bytes < 2.1 * MIB


def test_what_follows_in_the_last_piece_of_a_body_is_copied_once() -> None:
    """Memory at the peak, beside the chunks: the bodies. A copy of the last chunk would be 15 / 16 of a MiB more."""
    body = bytes(64 * KIB)
    stream = b"SEND\ndestination:/topic/a\ncontent-length:%d\n\n%b\0" % (len(body), body) * 17
    chunks = [stream[:100], stream[100:]]
    ours = reader(Version.V1_2)
    tracemalloc.start()
    try:
        frames = [frame for chunk in chunks for frame in ours.receive(chunk)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    (run,) = frames
    assert isinstance(run, SendRun)
    assert run.bodies == [body] * 17
    assert peak_bytes < 1.1 * len(stream)


def test_it_is_known_how_much_of_a_body_is_to_come() -> None:
    ours = reader(Version.V1_2)
    head = b"SEND\ndestination:/topic/a\ncontent-length:%d\n\n" % MIB
    assert ours.awaited_bytes == 0

    ours.receive(head + b"x")
    assert ours.awaited_bytes == MIB
    ours.receive(bytes(MIB - 1))
    assert ours.awaited_bytes == 1
    ours.receive(b"\0SEND\ndestination:/topic/a\n\nno length")
    assert ours.awaited_bytes == 0
    ours.receive(b"\0SEND\ndestination:/topic/a\ncontent-length:1000\n\nsmall")
    assert ours.awaited_bytes == 0


def test_nothing_large_is_received_from_a_stranger() -> None:
    ours = connection()

    ours.receive(b"CONNECT\naccept-version:1.2\ncontent-length:%d\n\nx" % MIB)

    assert ours.awaited_bytes == 0


def test_what_ends_a_connection_is_handed_over_alone_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows has another meaning, or none."""
    monkeypatch.setattr(pieces, "LARGE_FRAME_BYTES", 1)
    monkeypatch.setattr(pieces, "SMALL_PIECE_BYTES", 0)
    ours = reader(Version.V1_2)
    ours.receive(b"DISCONNECT\ncontent-length:3\n\nab")

    frames = ours.receive(b"c\0SEND\ndestination:/topic/a\n\nlate\0")

    assert [frame.command for frame in frames] == ["DISCONNECT"]
    assert ours.has_more
