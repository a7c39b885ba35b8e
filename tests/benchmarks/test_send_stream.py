"""The publisher counts bytes instead of messages; here a peer counts the messages and compares."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from benchmarks.broken import Broken
from benchmarks.frames import FrameRing, ring_of_sends
from benchmarks.roles.publisher import SendStream

if TYPE_CHECKING:
    from collections.abc import Iterator

RECEIPT = b"RECEIPT\nreceipt-id:1\n\n\0"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def ring() -> FrameRing:
    return ring_of_sends("/topic/a", body_bytes=10, frames=8, with_receipts=True)


def drain(peer: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := peer.recv(1 << 20):
            received += chunk
    except BlockingIOError:
        pass
    return received


def test_no_more_than_the_window_is_sent_without_its_receipts(
    pair: tuple[socket.socket, socket.socket], ring: FrameRing
) -> None:
    ours, theirs = pair
    stream = SendStream(ours, ring, receipt_window=8)

    while stream.push():
        pass

    assert drain(theirs).count(b"\0") == stream.messages == 8
    assert not stream.is_complete()


def test_each_receipt_allows_one_more_message_also_across_the_end_of_the_ring(
    pair: tuple[socket.socket, socket.socket], ring: FrameRing
) -> None:
    ours, theirs = pair
    stream = SendStream(ours, ring, receipt_window=8)
    while stream.push():
        pass

    theirs.sendall(RECEIPT * 5)
    stream.wait(1.0)
    while stream.push():
        pass

    assert stream.messages == 13
    assert drain(theirs) == ring.data + ring.data[: 5 * ring.frame_bytes]
    theirs.sendall(RECEIPT * 8)
    stream.wait(1.0)
    stream.finish()
    assert stream.is_complete()


def test_a_frame_that_the_kernel_has_taken_in_part_is_completed_and_no_other_is_begun(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    ring = ring_of_sends("/topic/a", body_bytes=1_000_003, frames=3, with_receipts=False)
    stream = SendStream(ours, ring, receipt_window=0)
    while stream.push():
        pass
    assert ring.bytes_to_boundary(stream.position) > 0

    stream.finish()
    received = b""
    while not stream.is_complete():
        received += drain(theirs)
        stream.push()
    received += drain(theirs)

    assert received == (ring.data * 2)[: stream.position]
    assert received.count(b"\0") == stream.messages
    assert received.endswith(b"\0")


def test_an_error_from_the_broker_is_reported_in_its_own_words(
    pair: tuple[socket.socket, socket.socket], ring: FrameRing
) -> None:
    ours, theirs = pair
    stream = SendStream(ours, ring, receipt_window=8)
    theirs.sendall(RECEIPT + b"\nERROR\nmessage:no more\n\nbecause\0")

    with pytest.raises(Broken, match=r"message:no more \| because"):
        stream.wait(1.0)


def test_a_broker_that_takes_nothing_is_broken(pair: tuple[socket.socket, socket.socket], ring: FrameRing) -> None:
    stream = SendStream(pair[0], ring, receipt_window=8)
    while stream.push():
        pass

    with pytest.raises(Broken, match="took nothing"):
        stream.wait(0.0)
