"""Two bad clients in one role: a subscriber that never reads, and a publisher that floods its topic.

The subscriber reads nothing until the flood is over. Then it reads on to find out whether the broker had disconnected
it, which would make the measurement meaningless.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.frames import ring_of_sends
from benchmarks.roles.child_end import ChildEnd, Stage
from benchmarks.roles.publisher import SendStream
from benchmarks.session import Session

if TYPE_CHECKING:
    from benchmarks.address import Address

#: About the smallest receive buffer of Linux, so that the broker meets a full window at once.
_STALLED_RECEIVE_BUFFER_BYTES: Final = 4096
#: More than the kernel's usual buffers of one connection (6 + 4 MiB): after reading that much without an end of stream,
#: the client is still connected.
_READ_ON_BYTES: Final = 16 * 1024 * 1024
#: Seconds without a byte that mean the same.
_SILENCE_S: Final = 0.5
_RING_FRAMES: Final = 200
_NICENESS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodAssignment:
    address: Address
    destination: str
    body_bytes: int
    #: Seconds after which "late" begins, see `messages_late`.
    settles_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodReport:
    messages: int
    #: Messages accepted after `settles_after_s`: none if the flood is held back.
    messages_late: int
    elapsed_s: float
    processor_s: float
    is_subscriber_connected: bool


def run(assignment: FloodAssignment, control: ChildEnd) -> FloodReport:
    # With fewer cores than processes, the flood must not take the processor from the measuring role.
    os.nice(_NICENESS)
    ring = ring_of_sends(
        assignment.destination, body_bytes=assignment.body_bytes, frames=_RING_FRAMES, with_receipts=False
    )
    with (
        Session.open(assignment.address, receive_buffer_bytes=_STALLED_RECEIVE_BUFFER_BYTES) as stalled_subscriber,
        Session.open(assignment.address) as publisher,
    ):
        stalled_subscriber.subscribe(assignment.destination)
        stream = SendStream(publisher.socket, ring, receipt_window=0)
        control.reach(Stage.READY)
        control.wait_word()
        processor_at_start, started_at = time.process_time(), time.monotonic()
        settled_at, messages_early = started_at + assignment.settles_after_s, 0
        while not control.has_word():
            if not stream.push():
                stream.wait_or_word(control)
            if time.monotonic() < settled_at:
                messages_early = stream.messages
        elapsed_s, processor_s = time.monotonic() - started_at, time.process_time() - processor_at_start
        is_subscriber_connected = is_connected(stalled_subscriber, silence_s=_SILENCE_S)
    return FloodReport(
        messages=stream.messages,
        messages_late=stream.messages - messages_early,
        elapsed_s=elapsed_s,
        processor_s=processor_s,
        is_subscriber_connected=is_subscriber_connected,
    )


def is_connected(stalled_subscriber: Session, *, silence_s: float) -> bool:
    """Read until the end of the stream, or enough to know that there is none."""
    stalled_subscriber.socket.settimeout(silence_s)
    read_bytes = 0
    while read_bytes < _READ_ON_BYTES:
        try:
            chunk = stalled_subscriber.socket.recv(_READ_ON_BYTES)
        except TimeoutError:
            return True
        except ConnectionError:
            return False
        if not chunk:
            return False
        read_bytes += len(chunk)
    return True
