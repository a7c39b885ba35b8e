"""The log gives every offset once, and forgets exactly what it is told to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompbroker.commitlog import Log
from stompbroker.ids import Offset
from tests.support.messages import make_message, make_messages

appends = st.tuples(st.just("append"), st.integers(1, 700), st.just(0))
skips = st.tuples(st.just("skip"), st.integers(1, 5), st.just(0))
drops = st.tuples(st.just("drop"), st.integers(0, 2000), st.integers(0, 2000))


@given(st.lists(st.one_of(appends, skips, drops), max_size=15), st.integers(0, 2500), st.integers(1, 600))
def test_it_agrees_with_a_naive_dictionary(steps: list[tuple[str, int, int]], asked: int, limit: int) -> None:
    log, model, end = Log(Offset(0)), dict[int, object](), 0
    for kind, first, second in steps:
        if kind == "append":
            messages = make_messages(first)
            assert log.append(messages) == end
            model.update(zip(range(end, end + first), messages, strict=True))
            end += first
        elif kind == "skip":
            log.skip(first)
            end += first
        else:
            log.drop(first, second)
            model = {offset: message for offset, message in model.items() if not first <= offset < second}
        log.check_invariants()

    assert dict(log) == model
    assert log.end_offset == end
    assert log.start_offset == min(model, default=end)
    first_found, found = log.read(asked, limit)
    later = sorted(offset for offset in model if offset >= asked)
    if later:
        assert first_found == later[0]
        assert 1 <= len(found) <= limit
        assert found == [model[offset] for offset in range(first_found, first_found + len(found))]
    else:
        assert (first_found, found) == (end, [])
    assert log.get(asked) is model.get(asked)


def test_a_read_beyond_a_gap_says_where_it_goes_on() -> None:
    log = Log(Offset(0))
    log.append(make_messages(10))
    log.drop(2, 5)

    assert log.read(1, 10)[0] == 1
    assert len(log.read(1, 10)[1]) == 1
    assert log.read(2, 10)[0] == 5


def test_dropping_the_middle_keeps_both_ends() -> None:
    log = Log(Offset(0))
    log.append([make_message(b"%d" % number) for number in range(6)])

    log.drop(2, 4)

    assert [message.body for _, message in log] == [b"0", b"1", b"4", b"5"]


def test_reserved_offsets_go_to_the_messages_they_are_reserved_for() -> None:
    log = Log(Offset(5))
    assert (log.reserve(2), log.reserve(3)) == (5, 7)
    assert (log.end_offset, log.reserved_end > log.end_offset) == (5, True)

    assert log.append(make_messages(2)) == 5
    assert log.reserved_end > log.end_offset
    log.skip(3)

    assert (log.end_offset, log.reserved_end) == (10, 10)
    log.check_invariants()


def test_what_was_reserved_in_vain_is_given_again() -> None:
    log = Log(Offset(0))
    log.append(make_messages(1))
    log.reserve(4)

    log.cancel_reserved()

    assert log.reserve(1) == 1
