"""The open-loop schedule: latency counts from when a message was due, not from when it could be sent."""

from __future__ import annotations

import socket

from benchmarks.address import Address
from benchmarks.frame_counting import StampReader, stamped_body
from benchmarks.frames import send
from benchmarks.roles.paced import Arrivals, PacedAssignment, Schedule

ASSIGNMENT = PacedAssignment(
    address=Address("127.0.0.1", 0),
    destination="/topic/a",
    body_bytes=64,
    messages_per_s=1000,
    messages=5,
    stall_s=1.0,
)
MILLISECOND_NS = 1_000_000
START_NS = 10**18


def arrival(number: int, due_at_ns: int = START_NS) -> bytes:
    return send("/topic/a", stamped_body(number, due_at_ns, body_bytes=64))


def test_messages_that_became_due_while_the_generator_was_busy_keep_their_due_times() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        schedule = Schedule(ASSIGNMENT, ours, starts_at_ns=START_NS)

        schedule.send_due(START_NS)
        schedule.send_due(START_NS + 3 * MILLISECOND_NS + 500_000)

        stamps = StampReader().read(theirs.recv(65536))
    assert stamps == [(number, START_NS + number * MILLISECOND_NS) for number in range(4)]
    assert list(schedule.lateness_ns) == [0, 2_500_000, 1_500_000, 500_000]
    assert schedule.seconds_to_next(START_NS + 3 * MILLISECOND_NS + 500_000) == 0.0005


def test_nothing_is_due_after_the_last_message() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        schedule = Schedule(ASSIGNMENT, ours, starts_at_ns=START_NS)

        schedule.send_due(START_NS + 1000 * MILLISECOND_NS)

        assert schedule.seconds_to_next(START_NS) is None
        assert [number for number, _ in StampReader().read(theirs.recv(65536))] == [0, 1, 2, 3, 4]


def test_nothing_is_due_any_more_once_it_is_told_to_stop() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        schedule = Schedule(ASSIGNMENT, ours, starts_at_ns=START_NS)
        schedule.send_due(START_NS + MILLISECOND_NS)

        schedule.stop()

        schedule.send_due(START_NS + 1000 * MILLISECOND_NS)
        assert schedule.messages == 2
        assert schedule.seconds_to_next(START_NS) is None
        assert [number for number, _ in StampReader().read(theirs.recv(65536))] == [0, 1]


def test_a_publisher_that_is_held_back_is_charged_from_the_due_time() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        filler = bytes(65536)
        filled_bytes = 0
        try:
            while True:
                filled_bytes += ours.send(filler)
        except BlockingIOError:
            pass
        schedule = Schedule(ASSIGNMENT, ours, starts_at_ns=START_NS)

        schedule.send_due(START_NS)
        assert schedule.has_unsent
        while filled_bytes:
            filled_bytes -= len(theirs.recv(min(filled_bytes, 65536)))
        schedule.send_due(START_NS + 500_000)

        assert not schedule.has_unsent
        assert StampReader().read(theirs.recv(65536)) == [(0, START_NS)]


def test_latency_is_from_due_to_arrival() -> None:
    arrivals = Arrivals()

    arrivals.note(arrival(0) + arrival(1, START_NS + MILLISECOND_NS), START_NS + 3 * MILLISECOND_NS)

    assert list(arrivals.latencies_ns) == [3 * MILLISECOND_NS, 2 * MILLISECOND_NS]
    assert arrivals.misplaced == 0


def test_what_comes_twice_or_too_late_is_misplaced_and_a_gap_alone_is_not() -> None:
    arrivals = Arrivals()

    for number in (0, 2, 1, 3, 3):
        arrivals.note(arrival(number), START_NS)

    assert (arrivals.count, arrivals.misplaced) == (5, 2)
