"""A role of the load generator: one message every few milliseconds, and how long each takes.

The next message is published when the last one has arrived.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks import frames
from benchmarks.roles.child_end import Stage
from benchmarks.session import Session, raise_if_error, receive

if TYPE_CHECKING:
    from benchmarks.address import Address
    from benchmarks.roles.child_end import ChildEnd

_DESTINATION: Final = "/topic/steady"
_BODY: Final = b"x" * 64
_RECEIVE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyAssignment:
    address: Address
    interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyReport:
    #: Latency of each message, in nanoseconds.
    took_ns: array[int]


def run(assignment: SteadyAssignment, control: ChildEnd) -> SteadyReport:
    """Until it is told to stop."""
    took = array("q")
    message = frames.send(_DESTINATION, _BODY)
    with Session.open(assignment.address) as publisher, Session.open(assignment.address) as subscriber:
        subscriber.subscribe(_DESTINATION)
        control.reach(Stage.READY)
        control.wait_word()
        next_at = time.monotonic()
        while not control.has_word():
            began_at_ns = time.perf_counter_ns()
            publisher.socket.sendall(message)
            received = b""
            while b"\0" not in received:
                received += receive(subscriber.socket, _RECEIVE_BYTES)
            took.append(time.perf_counter_ns() - began_at_ns)
            raise_if_error(received)
            control.progress(len(took))
            next_at = max(next_at + assignment.interval_s, time.monotonic())
            time.sleep(max(0.0, next_at - time.monotonic()))
        control.wait_word()
        subscriber.leave()
        publisher.leave()
    return SteadyReport(took_ns=took)
