"""What is kept for later subscribers: bounded by age, bytes and number, and counted in marks of a few messages."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.delivery import Retention
from stompbroker.delivery.retained import MARKS, MAX_MARK_BYTES, MAX_MARK_MESSAGES, Mark, Retained
from stompbroker.ids import Offset
from stompbroker.message import Message, Origin, tails_bytes

S = 1_000_000_000
ORIGIN = Origin("publisher", is_plain=True)


def message(at_s: float = 0, tail_bytes: int = 100) -> Message:
    return Message(1, b"x" * tail_bytes, ORIGIN, int(at_s * S))


def messages(count: int, at_s: float = 0, tail_bytes: int = 100) -> list[Message]:
    return [message(at_s, tail_bytes) for _ in range(count)]


def mark(stop: int) -> Mark:
    """Of one message."""
    return Mark(stop, 1, 100, 0, 0)


class Kept:
    """A topic of which everything is settled: what is retained, and a list that says the same."""

    def __init__(self, **retention: float) -> None:
        self.retention = Retention(**retention)  # type: ignore[arg-type]
        self.retained = Retained(self.retention)
        self.stored: list[tuple[int, Message]] = []
        self.end = 0

    def publish(self, batch: list[Message]) -> None:
        self.retained.note(Offset(self.end), batch)
        self.stored += enumerate(batch, self.end)
        self.end += len(batch)
        self.retained.check_invariants()

    def publish_singly(self, batch: list[Message]) -> None:
        for each in batch:
            self.publish([each])

    def collect(self, now_s: float) -> None:
        floor = self.retained.floor(int(now_s * S))
        self.retained.forget_below(floor)
        self.retained.check_invariants()
        self.stored = [(offset, each) for offset, each in self.stored if offset >= floor]

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.stored]

    @property
    def size_bytes(self) -> int:
        return tails_bytes([each for _, each in self.stored])

    @property
    def mark_count(self) -> int:
        return len(self.retained._marks)


# By number -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_one_go", [True, False])
def test_the_newest_messages_are_kept_up_to_their_number(in_one_go: bool) -> None:
    kept = Kept(max_messages=10)
    batch = messages(25)

    kept.publish(batch) if in_one_go else kept.publish_singly(batch)
    kept.collect(now_s=1000)

    assert kept.offsets == list(range(15, 25))


def test_fewer_than_the_number_are_all_kept() -> None:
    kept = Kept(max_messages=10)
    kept.publish(messages(10))

    kept.collect(now_s=1_000_000)

    assert kept.offsets == list(range(10))


@pytest.mark.parametrize("in_one_go", [True, False])
def test_of_many_a_mark_more_is_kept_at_most(in_one_go: bool) -> None:
    kept = Kept(max_messages=6400)
    batch = messages(10_000)

    kept.publish(batch) if in_one_go else kept.publish_singly(batch)
    kept.collect(now_s=0)

    assert 6400 <= len(kept.stored) < 6400 + 6400 // MARKS


# By bytes ------------------------------------------------------------------------------------------------------------


def test_no_more_bytes_are_kept_than_the_bound_and_little_less() -> None:
    kept = Kept(max_bytes=64_000)
    kept.publish_singly(messages(1000, tail_bytes=100))

    kept.collect(now_s=0)

    assert 64_000 - 2 * 64_000 // MARKS <= kept.size_bytes <= 64_000


def test_what_fits_the_bytes_exactly_is_kept() -> None:
    kept = Kept(max_bytes=1000)
    kept.publish_singly(messages(10, tail_bytes=100))

    kept.collect(now_s=0)

    assert len(kept.stored) == 10


@pytest.mark.parametrize("batch_size", [1, 10, 400, 1000])
def test_messages_that_came_in_one_go_are_kept_as_if_they_had_come_one_by_one(batch_size: int) -> None:
    kept = Kept(max_bytes=64_000)
    for _ in range(0, 1000, batch_size):
        kept.publish(messages(batch_size, tail_bytes=100))
        kept.collect(now_s=0)

    assert 64_000 - 2 * 64_000 // MARKS <= kept.size_bytes <= 64_000


def test_a_message_larger_than_the_bound_is_not_kept() -> None:
    kept = Kept(max_bytes=1000)
    kept.publish([message(tail_bytes=1001)])

    kept.collect(now_s=0)

    assert kept.offsets == []


# By age --------------------------------------------------------------------------------------------------------------


def test_what_is_older_than_the_age_goes() -> None:
    kept = Kept(age_s=64)
    kept.publish_singly([message(at_s) for at_s in range(100)])

    kept.collect(now_s=100)

    assert kept.offsets[-1] == 99
    assert 35 <= kept.offsets[0] <= 36


def test_what_is_exactly_as_old_as_the_age_is_kept() -> None:
    kept = Kept(age_s=60)
    kept.publish([message(at_s=40)])

    kept.collect(now_s=100)
    assert kept.offsets == [0]
    kept.collect(now_s=100 + 1 / S * 1000)
    assert kept.offsets == []


def test_messages_that_come_slowly_go_when_they_are_too_old_also_the_first_ones() -> None:
    """One every half minute, for eight hours, of which one hour is to be kept."""
    kept = Kept(age_s=3600)

    for number in range(960):
        kept.publish([message(at_s=30 * number)])
        kept.collect(now_s=30 * number)
        oldest_s = kept.stored[0][1].published_at_ns / S
        assert 30 * number - oldest_s <= 3600 + 2 * 3600 / MARKS


def test_everything_goes_when_everything_is_too_old() -> None:
    kept = Kept(age_s=60)
    kept.publish(messages(1500))

    kept.collect(now_s=61)

    assert kept.offsets == []
    assert kept.mark_count == 0
    assert (kept.retained.messages, kept.retained.size_bytes) == (0, 0)


# Several bounds, none ------------------------------------------------------------------------------------------------


def test_what_meets_every_bound_is_kept() -> None:
    kept = Kept(age_s=50, max_messages=20, max_bytes=500)
    kept.publish_singly([message(at_s, tail_bytes=100) for at_s in range(100)])

    kept.collect(now_s=100)
    assert kept.offsets == [95, 96, 97, 98, 99]
    kept.collect(now_s=148)
    assert kept.offsets == [98, 99]


def test_without_any_bound_nothing_is_asked_for() -> None:
    assert not Retention()


# What was there before the start -------------------------------------------------------------------------------------


def test_nothing_is_let_go_before_what_was_there_is_counted() -> None:
    retained = Retained(Retention(age_s=1, max_messages=1, max_bytes=1))
    retained.note_start(Offset(1000))
    retained.note(Offset(1000), messages(500))

    assert retained.floor(10**18) == 0


def test_what_was_there_counts_with_what_came_since() -> None:
    retained = Retained(Retention(max_messages=10))
    retained.note_start(Offset(8))
    retained.note(Offset(8), messages(5))

    retained.note_earlier([mark(offset + 1) for offset in range(8)])

    retained.check_invariants()
    assert retained.messages == 13
    assert retained.floor(0) == 3


def test_what_was_there_may_be_told_in_any_order() -> None:
    retained = Retained(Retention(max_messages=2))
    retained.note_start(Offset(30))

    retained.note_earlier([mark(30), mark(10), mark(20)])

    retained.check_invariants()
    assert retained.floor(0) == 10


def test_what_turns_out_to_have_been_empty_is_counted() -> None:
    retained = Retained(Retention(max_messages=1))
    retained.note_start(Offset(30))

    retained.note_earlier([])

    retained.note(Offset(30), messages(2))
    assert retained.floor(0) == 31


# Where a time is -----------------------------------------------------------------------------------------------------


def test_before_the_first_message_is_the_beginning() -> None:
    retained = Retained(Retention(age_s=60))
    retained.note(Offset(7), messages(3, at_s=10))

    assert retained.offset_before(10 * S) == 0


def test_behind_the_last_message_is_the_end() -> None:
    retained = Retained(Retention(age_s=60))
    retained.note(Offset(7), messages(3, at_s=10))

    assert retained.offset_before(10 * S + 1) == 10


# Against a model -----------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    after_s: float
    sizes: list[int]
    is_collected: bool


steps = st.lists(
    st.builds(
        Step,
        st.floats(0, 30),
        st.lists(st.integers(50, 3000), min_size=1, max_size=12),
        st.booleans(),
    ),
    max_size=25,
)
retentions = st.fixed_dictionaries(
    {
        "age_s": st.sampled_from([0, 20, 200]),
        "max_bytes": st.sampled_from([0, 5_000, 100_000]),
        "max_messages": st.sampled_from([0, 1, 10, 500]),
    }
).filter(any)


def most_of_one_mark(kept: Kept, batches: list[int]) -> tuple[int, int]:
    """Messages and bytes that a decision may be wrong by: what one mark counts, which may be one message."""
    retention = kept.retention
    in_messages = min(MAX_MARK_MESSAGES, (retention.max_messages or MARKS * MAX_MARK_MESSAGES) // MARKS)
    in_bytes = min(MAX_MARK_BYTES, (retention.max_bytes or MARKS * MAX_MARK_BYTES) // MARKS)
    return max(1, in_messages), max(in_bytes, *batches, 0)


@given(retentions, steps)
def test_at_least_the_number_stays_unless_another_bound_says_otherwise(
    retention: dict[str, float], taken: list[Step]
) -> None:
    """Exactly what a list of all messages says, but for what one mark counts."""
    kept = Kept(**retention)
    everything: list[tuple[int, Message]] = []
    now_s = 0.0
    for step in taken:
        now_s += step.after_s
        batch = [message(now_s, size) for size in step.sizes]
        everything += enumerate(batch, kept.end)
        kept.publish_singly(batch)
        if not step.is_collected:
            continue
        kept.collect(now_s)
        offsets = kept.offsets
        assert offsets == list(range(kept.end - len(offsets), kept.end))
        if retention["max_bytes"]:
            assert kept.size_bytes <= retention["max_bytes"]
        if retention["max_messages"]:
            slack, _ = most_of_one_mark(kept, [])
            assert len(offsets) < retention["max_messages"] + slack
        # Nothing has gone that every bound would have kept, but for the rest of a mark.
        wanted = wanted_by(retention, everything, now_s)
        _, slack_bytes = most_of_one_mark(kept, step.sizes)
        missing = [each for offset, each in wanted if offset not in set(offsets)]
        if not retention["max_bytes"]:
            assert not missing
        assert tails_bytes(missing) <= slack_bytes + 3000


def wanted_by(
    retention: dict[str, float], everything: list[tuple[int, Message]], now_s: float
) -> list[tuple[int, Message]]:
    """What meets every bound, newest first."""
    wanted: list[tuple[int, Message]] = []
    size_bytes = 0
    for offset, each in reversed(everything):
        size_bytes += len(each.tail)
        is_old = bool(retention["age_s"]) and each.published_at_ns < int(now_s * S) - int(retention["age_s"] * S)
        is_one_too_many = bool(retention["max_messages"]) and len(wanted) >= retention["max_messages"]
        if is_old or is_one_too_many or 0 < retention["max_bytes"] < size_bytes:
            break
        wanted.append((offset, each))
    return wanted


@given(retentions, steps)
def test_a_time_is_found_among_the_marks(retention: dict[str, float], taken: list[Step]) -> None:
    """Never behind a message that was published then or later; and no further before it than one mark reaches."""
    kept = Kept(**retention)
    now_s = 0.0
    times_ns = set()
    for step in taken:
        now_s += step.after_s
        kept.publish_singly([message(now_s, size) for size in step.sizes])
        times_ns |= {int(now_s * S), int(now_s * S) + 1}
    marks = list(kept.retained._marks)
    for at_ns in sorted(times_ns):
        found = kept.retained.offset_before(at_ns)
        exact = next((offset for offset, each in kept.stored if each.published_at_ns >= at_ns), kept.end)
        following = next((mark.stop for mark in marks if mark.stop > found), kept.end)
        assert found <= exact <= following


@given(retentions, steps)
def test_marks_count_everything_once(retention: dict[str, float], taken: list[Step]) -> None:
    kept = Kept(**retention)
    now_s = 0.0
    for step in taken:
        now_s += step.after_s
        kept.publish([message(now_s, size) for size in step.sizes])
        kept.collect(now_s)
        assert kept.retained.messages == len(kept.stored)
        assert kept.retained.size_bytes == kept.size_bytes


@pytest.mark.parametrize(
    "retention",
    [{"age_s": 86_400.0}, {"max_bytes": 1 << 30}, {"max_messages": 1_000_000}, {"max_messages": 1_000}],
    ids=str,
)
def test_marks_are_few_however_much_is_published(retention: dict[str, float]) -> None:
    kept = Kept(**retention)
    most = 0
    for number in range(2000):
        kept.retained.note(Offset(100 * number), messages(100, at_s=number))
        kept.retained.forget_below(kept.retained.floor(number * S))
        most = max(most, kept.mark_count)

    assert most <= 4 * MARKS


def test_marks_are_not_more_than_a_day_of_a_slow_topic_has_messages() -> None:
    kept = Kept(age_s=86_400)
    for number in range(5 * 1440):
        kept.retained.note(Offset(number), [message(at_s=60 * number)])
        kept.retained.forget_below(kept.retained.floor(60 * number * S))

    assert kept.mark_count <= 2 * MARKS
