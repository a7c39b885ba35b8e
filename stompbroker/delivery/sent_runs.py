"""Which delivery number was which message.

Law: maps a consumer's delivery numbers, and for STOMP 1.0 and 1.1 its message ids, to offsets of readings. The cursors
know what is settled. Hot path: deliveries in a row are one entry.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar, final

from stompbroker.ids import DeliveryNumber, Offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stompbroker.commitlog import Cursor
    from stompbroker.message import Message

#: Entries are cleared when there are this many beyond twice what was left after the last clearing.
SLACK: Final = 64
#: Beyond so many runs, those are forgotten whose messages have all been sent again since; a late answer to one of them
#: settles nothing. More than prefetch and max_waiting need by default.
MAX_RUNS: Final = 32 * 1024


class Sent(Protocol):
    """A reading that something was sent from."""

    @property
    def cursor(self) -> Cursor: ...

    def was_sent_again(self, offset: int, *, after: int) -> bool: ...


R = TypeVar("R", bound=Sent)


class Part(NamedTuple, Generic[R]):
    """The messages of one reading at [start, stop), and when they were sent."""

    reading: R
    start: int
    stop: int
    sent_at_ns: int


@final
@dataclass(slots=True, eq=False)
class Run(Generic[R]):
    """Deliveries in a row: number `first_number + i` is the message at `first_offset + i` of one topic."""

    first_number: int
    reading: R
    first_offset: Offset
    count: int
    sent_at_ns: int
    #: How many bytes its connection had been owed before, ever.
    put_at_bytes: int

    @property
    def is_settled(self) -> bool:
        return self.reading.cursor.is_settled(self.first_offset, self.first_offset + self.count)

    @property
    def is_superseded(self) -> bool:
        """Whether everything unsettled in it has been sent again under a higher number."""
        return all(
            self.reading.was_sent_again(offset, after=self.first_number + self.count - 1)
            for start, stop in self.reading.cursor.unsettled(self.first_offset, self.first_offset + self.count)
            for offset in range(start, stop)
        )


@final
class SentRuns(Generic[R]):
    """
    Invariants:
        runs are sorted by number and do not overlap
        a number below next_number that no run holds was settled, or superseded long ago
    """

    __slots__ = ("_by_message_id", "_clear_at", "_firsts", "_runs", "next_number")

    def __init__(self, *, finds_by_message_id: bool) -> None:
        self._runs: list[Run[R]] = []
        self._firsts: list[int] = []
        self._clear_at = SLACK
        self._by_message_id: dict[bytes, int] | None = {} if finds_by_message_id else None
        self.next_number = DeliveryNumber(1)

    def __len__(self) -> int:
        return len(self._runs)

    def was_given(self, number: int) -> bool:
        return 0 < number < self.next_number

    def number_of(self, message_id: bytes) -> int | None:
        """The number under which a message was last sent."""
        assert self._by_message_id is not None
        return self._by_message_id.get(message_id)

    def __iter__(self) -> Iterator[Run[R]]:
        return iter(self._runs)

    def add(
        self, reading: R, first: Offset, messages: Sequence[Message], *, sent_at_ns: int, put_at_bytes: int
    ) -> None:
        """These messages, from offset `first` on, have been sent under the next numbers."""
        if self._by_message_id is not None:
            for number, message in enumerate(messages, self.next_number):
                self._by_message_id[message.message_id] = number
        self._runs.append(Run(self.next_number, reading, first, len(messages), sent_at_ns, put_at_bytes))
        self._firsts.append(self.next_number)
        self.next_number = DeliveryNumber(self.next_number + len(messages))

    def parts(self, first: int, stop: int) -> list[Part[R]]:
        """What was sent under the numbers first..stop-1."""
        return [part for _, part in self.numbered_parts(first, stop)]

    def numbered_parts(self, first: int, stop: int) -> list[tuple[int, Part[R]]]:
        """The same, each with the number of its first delivery."""
        found: list[tuple[int, Part[R]]] = []
        for index in range(max(bisect_right(self._firsts, first) - 1, 0), len(self._runs)):
            run = self._runs[index]
            if run.first_number >= stop:
                break
            low = max(first, run.first_number)
            high = min(stop, run.first_number + run.count)
            if low < high:
                to_offset = run.first_offset - run.first_number
                found.append((low, Part(run.reading, low + to_offset, high + to_offset, run.sent_at_ns)))
        return found

    def numbers_of(self, reading: R, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The numbers, first and last, under which messages were sent. Looks at all runs."""
        found: list[tuple[int, int]] = []
        for run in self._runs if ranges else ():
            for start, stop in ranges if run.reading is reading else ():
                low, high = max(start, run.first_offset), min(stop, run.first_offset + run.count)
                if low < high:
                    to_number = run.first_number - run.first_offset
                    found.append((low + to_number, high - 1 + to_number))
        return found

    def sent_at_ns(self, reading: R, offset: int) -> int | None:
        """When a message was last sent. Looks at all runs."""
        for run in reversed(self._runs):
            if run.reading is reading and run.first_offset <= offset < run.first_offset + run.count:
                return run.sent_at_ns
        return None

    @property
    def oldest_sent_ns(self) -> int | None:
        """When the oldest unsettled delivery was sent."""
        return next((run.sent_at_ns for run in self._runs if not run.is_settled), None)

    def is_unsettled(self, number: int) -> bool:
        parts = self.parts(number, number + 1)
        return any(not part.reading.cursor.is_settled(part.start, part.stop) for part in parts)

    def forget_settled(self) -> None:
        """Drop settled runs: those at the front at once, others when they have piled up."""
        settled = 0
        while settled < len(self._runs) and self._runs[settled].is_settled:
            settled += 1
        if settled:
            del self._runs[:settled], self._firsts[:settled]
        if len(self._runs) + len(self._by_message_id or ()) <= self._clear_at:
            return
        self._runs = [run for run in self._runs if not run.is_settled]
        if len(self._runs) > MAX_RUNS:
            self._runs = [run for run in self._runs if not run.is_superseded]
        self._firsts = [run.first_number for run in self._runs]
        if self._by_message_id is not None:
            self._by_message_id = {
                message_id: number for message_id, number in self._by_message_id.items() if self.is_unsettled(number)
            }
        self._clear_at = 2 * (len(self._runs) + len(self._by_message_id or ())) + SLACK

    def check_invariants(self) -> None:
        assert self._firsts == [run.first_number for run in self._runs]
        stops = [run.first_number + run.count for run in self._runs]
        assert all(stop <= first for stop, first in zip(stops, [*self._firsts, self.next_number][1:], strict=True))
