"""Redelivery: what failed waits for its time, then goes again or is given up.

Law: computes a failure from the one before, the refusal and the policy (`failure.py`, `delivery_policy.py`), and puts
the message on the timetable. The distributor calls `become_due` when its time has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.delivery.failure import Failing
from stompbroker.delivery.reading import Waiting
from stompbroker.ids import Offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stompbroker.commitlog import Claimed
    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.failure import Failure, Refusal
    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.sent_runs import Part


def set_aside(part: Part[Reading], refusal: Refusal, *, holder: Consumer | None) -> int:
    """Deliveries have failed: they wait for their time. Returns how many; only those that were in flight to `holder`,
    or that are free if there is none."""
    reading, start, stop, sent_at_ns = part
    if holder is None:
        offsets = [offset for offset in map(Offset, range(start, stop)) if reading.cursor.suspend(offset)]
    elif reading.owners.is_alone(holder):
        offsets = reading.cursor.set_aside(start, stop)
    else:
        meant = reading.owners.within(holder, [(start, stop)])
        offsets = [offset for low, high in meant for offset in reading.cursor.set_aside(low, high)]
        reading.owners.take_away(meant, len(offsets))
    if offsets:
        failures = failures_after(reading, offsets, refusal, sent_at_ns)
        reading.failures.update(failures)
        _schedule(reading, failures)
        reading.note_failures_changed(offsets)
    return len(offsets)


def set_aside_claimed(reading: Reading, claimed: Claimed, failures: Mapping[Offset, Failure]) -> None:
    """What was pending has failed, in the store as well: it waits for its time."""
    reading.cursor.set_aside_claimed(claimed)
    reading.failures.update(failures)
    _schedule(reading, failures)


def note_lost(part: Part[Reading], refusal: Refusal) -> None:
    """A consumer was lost while it worked on this one message, which is free now: that counts as a failure. It waits
    only if it is not to be tried again."""
    reading, offset = part.reading, Offset(part.start)
    failures = failures_after(reading, [offset], refusal._replace(delay_ns=0), part.sent_at_ns)
    reading.failures.update(failures)
    reading.note_failures_changed(failures)
    if reading.is_used_up(offset) and reading.cursor.suspend(offset):
        reading.subscription.waiting += 1
        _schedule(reading, failures)


def restore_failure(reading: Reading, offset: Offset, failure: Failure) -> bool:
    """It was waiting for its time when it was last written down. False if it has been settled since."""
    if not reading.cursor.suspend(offset):
        return False
    reading.failures[offset] = failure
    reading.subscription.waiting += 1
    _schedule(reading, {offset: failure})
    return True


def schedule_again(reading: Reading, offsets: Iterable[int]) -> None:
    """These wait again: they go when they are due, perhaps at once."""
    _schedule(reading, {offset: reading.failures[offset] for offset in map(Offset, offsets)})


def become_due(waiting: Waiting) -> None:
    """What was set aside may go again, unless it has been settled in the meantime."""
    reading, offset = waiting
    if reading.cursor.release(offset):
        reading.subscription.waiting -= 1
        reading.subscription.offer(reading)


def failures_after(
    reading: Reading, offsets: Sequence[Offset], refusal: Refusal, sent_at_ns: int
) -> dict[Offset, Failure]:
    """What is known of these messages when they have been refused together."""
    failing = Failing(refusal, reading.policy, reading.subscription.jitter_seed)
    is_noted = bool(reading.remembered.first_sent_between(offsets[0], offsets[-1] + 1))
    found: dict[Offset, Failure] = {}
    for offset in offsets:
        before = reading.failures.get(offset)
        first_sent_ns = before.first_attempt_ns if before is not None else 0
        if not first_sent_ns and is_noted:
            first_sent_ns = reading.remembered.first_sent_ns(offset) or 0
        found[offset] = failing.failure_after(before, first_sent_ns=first_sent_ns or sent_at_ns, sent_at_ns=sent_at_ns)
    return found


def _schedule(reading: Reading, failures: Mapping[Offset, Failure]) -> None:
    due: dict[int, list[Waiting]] = {}
    for offset, failure in failures.items():
        due.setdefault(failure.due_ns, []).append(Waiting(reading, offset))
    for due_ns, waiting in due.items():
        reading.topic.context.redeliveries.schedule(due_ns, *waiting)
