"""Several publishers, each with its own connection, each as fast as it is allowed to.

All publish the same number of messages to each of their topics: when time is up, the others catch up with the furthest.
So every subscriber expects the same number, and a broker that starves a publisher pays for it. A publisher with several
topics goes through them in turn.
"""

from __future__ import annotations

import select
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.broken import Broken
from benchmarks.frames import FrameRing, ring_of_sends
from benchmarks.roles.child_end import ChildEnd, Stage
from benchmarks.roles.publisher import PublisherReport, SendStream
from benchmarks.session import Session

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from benchmarks.address import Address

#: Bytes per call. Less than a single publisher uses, so that the others get their turn.
_RING_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishersAssignment:
    address: Address
    #: The topics of each publisher.
    destinations: tuple[tuple[str, ...], ...]
    body_bytes: int
    duration_s: float
    #: Outstanding RECEIPTs of each, if it has one topic; 0 asks for none.
    receipt_window: int
    #: Whether every message must be on disk before its RECEIPT, for brokers that have to be told.
    is_stored: bool = False
    #: Seconds without progress after which the broker counts as hung.
    stall_s: float


def run(assignment: PublishersAssignment, control: ChildEnd) -> PublisherReport:
    """Reports the messages of all publishers together."""
    with ExitStack() as open_sessions:
        sessions = [open_sessions.enter_context(Session.open(assignment.address)) for _ in assignment.destinations]
        streams = [
            SendStream(session.socket, _ring(assignment, destinations), receipt_window=assignment.receipt_window)
            for session, destinations in zip(sessions, assignment.destinations, strict=True)
        ]
        control.reach(Stage.READY)
        control.wait_word()
        processor_at_start, started_at = time.process_time(), time.monotonic()
        stops_at = started_at + assignment.duration_s
        while time.monotonic() < stops_at:
            _push(streams, assignment.stall_s)
        furthest = max(stream.messages for stream in streams)
        for stream in streams:
            stream.end_at(furthest)
        while unfinished := [stream for stream in streams if not (stream.is_exhausted() and stream.is_complete())]:
            _push(unfinished, assignment.stall_s)
        finished_at, processor_s = time.monotonic(), time.process_time() - processor_at_start
        for session in sessions:
            session.leave()
    return PublisherReport(
        messages=sum(furthest * len(destinations) for destinations in assignment.destinations),
        started_at=started_at,
        finished_at=finished_at,
        processor_s=processor_s,
    )


def _push(streams: Sequence[SendStream], stall_s: float) -> None:
    """Send what kernel and windows allow; wait if that is nothing."""
    pushed = [stream.push() for stream in streams]
    if any(pushed):
        return
    by_socket: dict[socket.socket, SendStream] = {stream.socket: stream for stream in streams}
    blocked = [stream.socket for stream in streams if stream.may_send()]
    readable, writable, _ = select.select(list(by_socket), blocked, [], stall_s)
    if not readable and not writable:
        raise Broken(f"the broker took nothing from {len(streams)} publishers for {stall_s:g} s")
    for answered in readable:
        by_socket[answered].receive()


def _ring(assignment: PublishersAssignment, destinations: tuple[str, ...]) -> FrameRing:
    """One message to each topic counts as one frame, so that all topics get the same number."""
    assert len(destinations) == 1 or not assignment.receipt_window, "receipts are counted for one topic"
    frames = assignment.receipt_window or max(1, _RING_BYTES // (assignment.body_bytes * len(destinations)))
    rings = [
        ring_of_sends(
            destination,
            body_bytes=assignment.body_bytes,
            frames=frames if len(destinations) == 1 else 1,
            with_receipts=assignment.receipt_window > 0,
            headers=assignment.address.dialect.of_send(is_stored=assignment.is_stored),
        )
        for destination in destinations
    ]
    if len(rings) == 1:
        return rings[0]
    once_round = b"".join(ring.data for ring in rings)
    return FrameRing(data=once_round * frames, frame_bytes=len(once_round))
