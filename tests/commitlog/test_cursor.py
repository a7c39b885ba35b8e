"""The cursor agrees with a naive model that keeps the state of every single offset."""

from __future__ import annotations

from enum import Enum, auto

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stompbroker.commitlog import Claimed, Cursor
from stompbroker.ids import Offset


class State(Enum):
    IN_FLIGHT = auto()
    WAITING = auto()
    FREE = auto()
    PENDING = auto()
    SETTLED = auto()


small = st.integers(0, 12)


class CursorMachine(RuleBasedStateMachine):
    """Every operation of a cursor, beside a dictionary from offset to state."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Cursor(Offset(5))
        self.model: dict[int, State] = {}
        self.next_offset = 5
        #: Unsent offsets that will never be sent.
        self.given_up: set[int] = set()
        #: What is pending, by the claim it belongs to, and what each offset was before.
        self.claims: list[tuple[Claimed, dict[int, State]]] = []

    def pick(self, choice: int, state: State) -> int | None:
        candidates = [offset for offset, found in self.model.items() if found is state]
        return candidates[choice % len(candidates)] if candidates else None

    @rule(count=small)
    def send(self, count: int) -> None:
        """Up to what is given up, as a reader does."""
        stop = next((stop for _, stop in self.cursor.unsent(self.next_offset + count)), self.next_offset)
        self.cursor.advance(Offset(stop))
        self.move_to(stop, State.IN_FLIGHT)

    @rule(count=small)
    def step_over(self, count: int) -> None:
        stop = self.next_offset + count
        self.cursor.step_over(stop)
        self.move_to(stop, State.SETTLED)

    def move_to(self, stop: int, state: State) -> None:
        self.model.update(dict.fromkeys(range(self.next_offset, stop), state))
        self.next_offset = stop
        self.given_up = {offset for offset in self.given_up if offset >= stop}
        while self.next_offset in self.given_up:
            self.given_up.remove(self.next_offset)
            self.model[self.next_offset] = State.SETTLED
            self.next_offset += 1

    @rule(start=st.integers(-5, 15), count=small)
    def give_up(self, start: int, count: int) -> None:
        first, stop = self.next_offset + start, self.next_offset + start + count
        new = set(range(max(first, self.next_offset), stop)) - self.given_up
        assert self.cursor.give_up(first, stop) == len(new)
        self.given_up |= new
        self.move_to(self.next_offset, State.SETTLED)

    @rule()
    def write_down_and_restore(self) -> None:
        """What was in flight or waiting is free afterwards; nothing may be pending."""
        if not self.claims:
            self.cursor = Cursor.restored(self.cursor.ack_floor, self.cursor.settled_ranges, self.cursor.next_offset)
            unsettled = [offset for offset, state in self.model.items() if state is not State.SETTLED]
            self.model.update(dict.fromkeys(unsettled, State.FREE))

    @rule(start=st.integers(0, 200), count=small)
    def settle(self, start: int, count: int) -> None:
        open_states = {*State} - {State.PENDING}
        settled = [offset for offset in range(start, start + count) if self.model.get(offset) in open_states]
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

    @rule(limit=st.integers(0, 5), skips=st.integers(0, 2))
    def take_free(self, limit: int, skips: int) -> None:
        free = sorted(offset for offset, state in self.model.items() if state is State.FREE)
        assert self.cursor.lowest_free(limit) == free[:limit]
        free = free[skips : skips + limit]
        self.cursor.take_free(free)
        self.model.update(dict.fromkeys(free, State.IN_FLIGHT))

    @rule()
    def lose_the_consumer(self) -> None:
        lost = [offset for offset, state in self.model.items() if state is State.IN_FLIGHT]
        ranges = self.cursor.in_flight_ranges()
        assert sorted(offset for start, stop in ranges for offset in range(start, stop)) == sorted(lost)
        self.cursor.release_ranges(ranges)
        self.model.update(dict.fromkeys(lost, State.FREE))

    @rule(start=st.integers(0, 200), count=st.integers(1, 20))
    def claim(self, start: int, count: int) -> None:
        ranges = self.cursor.unclaimed(start, start + count)
        offsets = [offset for low, high in ranges for offset in range(low, high)]
        done = (State.PENDING, State.SETTLED, None)
        assert offsets == [each for each in range(start, start + count) if self.model.get(each) not in done]
        if not ranges:
            return
        claimed = self.cursor.claim(ranges)
        before = {offset: self.model[offset] for offset in offsets}
        assert claimed.in_flight == list(before.values()).count(State.IN_FLIGHT)
        self.model.update(dict.fromkeys(offsets, State.PENDING))
        self.claims.append((claimed, before))

    @precondition(lambda self: self.claims)
    @rule(choice=st.integers(0, 1000), end=st.sampled_from(["settled", "set aside", "refused", "refused and lost"]))
    def end_claim(self, choice: int, end: str) -> None:
        claimed, before = self.claims.pop(choice % len(self.claims))
        match end:
            case "settled":
                self.cursor.settle_claimed(claimed)
                self.model.update(dict.fromkeys(before, State.SETTLED))
            case "set aside":
                self.cursor.set_aside_claimed(claimed)
                self.model.update(dict.fromkeys(before, State.WAITING))
            case _:
                in_flight = State.IN_FLIGHT if end == "refused" else State.FREE
                self.cursor.give_back(claimed, [] if end == "refused" else claimed.in_flight_ranges)
                self.model.update(
                    {offset: in_flight if state is State.IN_FLIGHT else state for offset, state in before.items()}
                )

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        self.cursor.check_invariants()
        states = list(self.model.values())
        assert self.cursor.next_offset == self.next_offset
        end = self.next_offset + 20
        unsent = [offset for start, stop in self.cursor.unsent(end) for offset in range(start, stop)]
        assert unsent == [offset for offset in range(self.next_offset, end) if offset not in self.given_up]
        assert self.cursor.unsent_count(self.next_offset + 40) == 40 - len(self.given_up)
        assert all(self.cursor.is_unsent(offset) for offset in unsent)
        assert not any(self.cursor.is_unsent(offset) for offset in (*self.given_up, *self.model))
        assert self.cursor.in_flight == states.count(State.IN_FLIGHT)
        assert self.cursor.waiting_count == states.count(State.WAITING)
        assert self.cursor.free_count == states.count(State.FREE)
        assert self.cursor.pending_count == states.count(State.PENDING)
        # What is pending is not settled: the floor, and so whoever deletes, stays below it.
        unsettled = [offset for offset, state in self.model.items() if state is not State.SETTLED]
        assert self.cursor.ack_floor == min(unsettled, default=self.next_offset)
        found = [offset for start, stop in self.cursor.unsettled(0, 10_000) for offset in range(start, stop)]
        assert found == sorted(unsettled)
        ahead = [offset for offset in range(self.next_offset, self.next_offset + 50) if offset not in self.given_up]
        for offset in range(end):
            expected = next(each for each in (*found, *ahead) if each >= offset)
            assert self.cursor.unsettled_from(offset) == expected
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
    assert cursor.settled_ranges == []


def test_a_cursor_does_not_go_back() -> None:
    cursor = Cursor(Offset(10))

    with pytest.raises(AssertionError):
        cursor.advance(Offset(9))
