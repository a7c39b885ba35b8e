"""The cursor agrees with a naive model that keeps the state of every single offset."""

from __future__ import annotations

from enum import Enum, auto

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stompbroker.commitlog import Cursor
from stompbroker.ids import Offset


class State(Enum):
    IN_FLIGHT = auto()
    WAITING = auto()
    FREE = auto()
    SETTLED = auto()


small = st.integers(0, 12)


class CursorMachine(RuleBasedStateMachine):
    """Every operation of a cursor, beside a dictionary from offset to state."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Cursor(Offset(5))
        self.model: dict[int, State] = {}
        self.next_offset = 5

    def pick(self, choice: int, state: State) -> int | None:
        candidates = [offset for offset, found in self.model.items() if found is state]
        return candidates[choice % len(candidates)] if candidates else None

    @rule(count=small)
    def send(self, count: int) -> None:
        self.cursor.advance(Offset(self.next_offset + count))
        for offset in range(self.next_offset, self.next_offset + count):
            self.model[offset] = State.IN_FLIGHT
        self.next_offset += count

    @rule(count=small)
    def step_over(self, count: int) -> None:
        self.cursor.step_over(Offset(self.next_offset + count))
        for offset in range(self.next_offset, self.next_offset + count):
            self.model[offset] = State.SETTLED
        self.next_offset += count

    @rule(start=st.integers(0, 200), count=small)
    def settle(self, start: int, count: int) -> None:
        settled = [offset for offset in range(start, start + count) if offset in self.model]
        states = [self.model[offset] for offset in settled]
        settlement = self.cursor.settle(start, start + count)
        assert settlement.in_flight == states.count(State.IN_FLIGHT)
        assert settlement.waiting == states.count(State.WAITING)
        assert settlement.free == states.count(State.FREE)
        self.model.update(dict.fromkeys(settled, State.SETTLED))

    @rule(choice=st.integers(0, 1000))
    def set_aside(self, choice: int) -> None:
        offset = self.pick(choice, State.IN_FLIGHT)
        if offset is not None:
            assert self.cursor.set_aside(offset, offset + 1) == [offset]
            self.model[offset] = State.WAITING

    @rule(start=st.integers(0, 200), count=st.integers(0, 20))
    def set_aside_anything(self, start: int, count: int) -> None:
        stop = start + count
        in_flight = [offset for offset in range(start, stop) if self.model.get(offset) is State.IN_FLIGHT]
        assert self.cursor.set_aside(start, stop) == in_flight
        self.model.update(dict.fromkeys(in_flight, State.WAITING))

    @rule(choice=st.integers(0, 1000))
    def release(self, choice: int) -> None:
        offset = self.pick(choice, State.WAITING)
        if offset is not None:
            assert self.cursor.release(offset)
            self.model[offset] = State.FREE

    @rule(limit=st.integers(0, 5))
    def take_lowest_free(self, limit: int) -> None:
        free = sorted(offset for offset, state in self.model.items() if state is State.FREE)[:limit]
        assert self.cursor.lowest_free(limit) == free
        self.cursor.take_lowest_free(len(free))
        self.model.update(dict.fromkeys(free, State.IN_FLIGHT))

    @rule()
    def lose_the_consumer(self) -> None:
        lost = [offset for offset, state in self.model.items() if state is State.IN_FLIGHT]
        ranges = self.cursor.release_in_flight()
        assert sorted(offset for start, stop in ranges for offset in range(start, stop)) == sorted(lost)
        self.model.update(dict.fromkeys(lost, State.FREE))

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        self.cursor.check_invariants()
        states = list(self.model.values())
        assert self.cursor.next_offset == self.next_offset
        assert self.cursor.in_flight == states.count(State.IN_FLIGHT)
        assert self.cursor.waiting_count == states.count(State.WAITING)
        assert self.cursor.free_count == states.count(State.FREE)
        unsettled = [offset for offset, state in self.model.items() if state is not State.SETTLED]
        assert self.cursor.ack_floor == min(unsettled, default=self.next_offset)
        found = [offset for start, stop in self.cursor.unsettled(0, 10_000) for offset in range(start, stop)]
        assert found == sorted(unsettled)
        for offset in range(self.next_offset + 2):
            assert self.cursor.is_in_flight(offset) == (self.model.get(offset) is State.IN_FLIGHT)
            assert self.cursor.is_waiting(offset) == (self.model.get(offset) is State.WAITING)


CursorMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestCursor = CursorMachine.TestCase


def test_acknowledging_in_order_keeps_no_ranges() -> None:
    cursor = Cursor(Offset(0))
    cursor.advance(Offset(1000))

    for offset in range(1000):
        cursor.settle(offset, offset + 1)

    assert cursor.ack_floor == 1000
    assert list(cursor.settled_ranges) == []


def test_a_cursor_does_not_go_back() -> None:
    cursor = Cursor(Offset(10))

    with pytest.raises(AssertionError):
        cursor.advance(Offset(9))
