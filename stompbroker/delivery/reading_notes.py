"""What a reading notes of unsettled messages beside its cursor: which consumer has them, and what is remembered.

Law: knows offsets, consumers and messages, and decides nothing. The reading keeps its notes in step with the cursor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, cast, final
from weakref import ref

from stompbroker.commitlog import OffsetRanges
from stompbroker.ids import Offset
from stompbroker.message import MESSAGE_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from stompbroker.commitlog import Cursor
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import Message


def _nobody() -> None:
    """A weak reference to nobody."""


Owner = TypeVar("Owner")
Range = tuple[int, int]

_CORRELATION: Final = b"\ncorrelation-id:"
_origin_of: Final = attrgetter("origin")


class Asked(NamedTuple):
    """What a publisher that asks what becomes of a message is told of it."""

    #: The key of the destination where it is told.
    to: str
    message_id: bytes
    #: The line of this header, as in the message; empty if it has none.
    correlation_id: bytes

    @property
    def size_bytes(self) -> int:
        return MESSAGE_OVERHEAD_BYTES + len(self.message_id) + len(self.correlation_id)


def asked_by(message: Message) -> Asked | None:
    """None if nobody asks. Headers are enough: the message may be without its body."""
    to, tail = message.origin.outcome_to, message.tail
    if to is None:
        return None
    end = tail.find(b"\n\n") + 1 or len(tail)
    start = tail.find(_CORRELATION, 0, end) + 1
    return Asked(to, message.message_id, tail[start : tail.index(b"\n", start) + 1] if start else b"")


def asks_for_outcomes(messages: Iterable[Message]) -> bool:
    """Whether the publisher of any of these asks what becomes of it."""
    return any(origin.outcome_to is not None for origin in set(map(_origin_of, messages)))


@final
class Owners(Generic[Owner]):
    """Which consumer has which messages in flight. While one has all of them (the hot path), only its name is kept, and
    the cursor knows the rest. Once a second one takes something, each has its own ranges, until one has everything.

    Invariants:
        if anything is in flight there is a holder, or `_shares`
        while there are `_shares`, they share no offset, and together are what is in flight
    """

    __slots__ = ("_held_by", "_shares")

    def __init__(self) -> None:
        #: Who has everything in flight, while there are no shares. A weak reference: a consumer that leaves tells only
        #: readings with something in flight to it, and the others must not keep it in memory.
        self._held_by: Callable[[], Owner | None] = _nobody
        self._shares: dict[Owner, OffsetRanges] | None = None

    def is_alone(self, owner: Owner) -> bool:
        """Whether everything in flight is this one's."""
        return self._held_by() is owner and self._shares is None

    def expect(self, owner: Owner, cursor: Cursor) -> None:
        """Something is about to be sent to this one. Called before the cursor moves."""
        if self._shares is not None or self._held_by() is owner:
            return
        if not cursor.in_flight:
            self._held_by = ref(owner)
        else:
            self._begin_shares(cursor)

    def expect_all(self, owners: Collection[Owner], cursor: Cursor) -> None:
        if len(owners) > 1 and self._shares is None:
            self._begin_shares(cursor)
        for owner in owners:
            self.expect(owner, cursor)

    def _begin_shares(self, cursor: Cursor) -> None:
        self._shares = {}
        holder = self._held_by()
        if holder is not None:
            share = self._shares[holder] = OffsetRanges()
            for start, stop in cursor.in_flight_ranges():
                share.add(start, stop)

    def note(self, owner: Owner, start: int, stop: int) -> None:
        """These are in flight to this one from now on; `expect` was called."""
        if self._shares is not None:
            self._shares.setdefault(owner, OffsetRanges()).add(start, stop)

    def has(self, owner: Owner, offset: int) -> bool:
        """Whether this one has that offset, if it is in flight."""
        if self._shares is None:
            return self._held_by() is owner
        return owner in self._shares and offset in self._shares[owner]

    def within(self, owner: Owner, ranges: list[Range]) -> list[Range]:
        """The parts of these ranges that this one has, as far as they are in flight."""
        if self._shares is None:
            return ranges if self._held_by() is owner else []
        share = self._shares.get(owner)
        return [] if share is None else [part for start, stop in ranges for part in share.common(start, stop)]

    def split(self, ranges: list[Range]) -> list[tuple[Owner, list[Range]]]:
        """Which owner has which part of these ranges, all of them in flight."""
        holder = self._held_by()
        owners = self._shares or ([] if holder is None else [holder])
        found = [(owner, self.within(owner, ranges)) for owner in owners]
        return [(owner, parts) for owner, parts in found if parts]

    def take_away(self, ranges: Iterable[Range], in_flight: int) -> list[tuple[Owner, int]]:
        """`in_flight` of these offsets have ended: how many of them each owner had."""
        if self._shares is None:
            holder = self._held_by()
            return [(holder, in_flight)] if holder is not None and in_flight else []
        taken: list[tuple[Owner, int]] = []
        ranges = list(ranges)
        for owner, share in self._shares.items():
            count = share.count
            for start, stop in ranges:
                share.discard(start, stop)
            if share.count < count:
                taken.append((owner, count - share.count))
        self._forget_empty()
        return taken

    def leave(self, owner: Owner, cursor: Cursor) -> list[Range]:
        """This one is gone. Returns what was in flight to it."""
        if self._shares is None:
            if self._held_by() is not owner:
                return []
            self._held_by = _nobody
            return cursor.in_flight_ranges()
        found = list(self._shares.pop(owner, ()))
        self._forget_empty()
        return found

    def count_of(self, owner: Owner, cursor: Cursor) -> int:
        if self._shares is None:
            return cursor.in_flight if self._held_by() is owner else 0
        return self._shares[owner].count if owner in self._shares else 0

    def _forget_empty(self) -> None:
        assert self._shares is not None
        self._shares = {owner: share for owner, share in self._shares.items() if share}
        if len(self._shares) <= 1:
            self._held_by = next(map(ref, self._shares), _nobody)
            self._shares = None

    def check_invariants(self, cursor: Cursor) -> None:
        if self._shares is None:
            assert self._held_by() is not None or not cursor.in_flight
            return
        found = OffsetRanges()
        for share in self._shares.values():
            share.check_invariants()
            for start, stop in share:
                assert found.add(start, stop) == stop - start, "in flight to two at once"
        assert list(found) == cursor.in_flight_ranges()


@final
@dataclass(slots=True, eq=False)
class Remembered:
    """*Held* messages have left the log and are in no store. *Stubs* are messages without bodies, for the ledger, of
    which only the store has the rest. Of messages whose consumer has left, the time of the first delivery is kept. All
    of it goes when the message is settled.

    Invariants:
        held_bytes is the size of what is held and of who asks, and is charged to the budget
    """

    _budget: MemoryBudget
    _held: dict[Offset, Message] = field(default_factory=dict)
    _stubs: dict[Offset, Message] = field(default_factory=dict)
    _first_sent: dict[Offset, int] = field(default_factory=dict)
    #: Whose publishers want to be told what becomes of them, of what was sent since the start.
    asking: dict[Offset, Asked] = field(default_factory=dict)
    held_bytes: int = 0

    def __iter__(self) -> Iterator[Offset]:
        """The offsets of everything remembered; some come more than once."""
        return iter([*self._held, *self._stubs, *self._first_sent, *self.asking])

    def get(self, offset: Offset) -> Message | None:
        """A message that is held."""
        return self._held.get(offset)

    def recalled(self, start: int, stop: int) -> list[tuple[Offset, Message]]:
        """The held messages and stubs at these offsets; sorted."""
        found = {offset: self._stubs[offset] for offset in offsets_between(self._stubs, start, stop)}
        found.update({offset: self._held[offset] for offset in offsets_between(self._held, start, stop)})
        return sorted(found.items())

    def hold(self, messages: Mapping[Offset, Message]) -> None:
        self._held.update(messages)
        self._charge(sum(message.size_bytes for message in messages.values()))

    def _charge(self, difference_bytes: int) -> None:
        self.held_bytes += difference_bytes
        self._budget.adjust(difference_bytes)

    def note_asking(self, first: Offset, messages: Sequence[Message]) -> None:
        """These messages in a row are about to be sent, or settled."""
        if not asks_for_outcomes(messages):
            return
        for offset, message in enumerate(messages, first):
            asked = asked_by(message)
            if asked is not None and offset not in self.asking:
                self.asking[Offset(offset)] = asked
                self._charge(asked.size_bytes)

    def asked_between(self, start: int, stop: int) -> list[tuple[Offset, Asked]]:
        return [(offset, self.asking[offset]) for offset in sorted(offsets_between(self.asking, start, stop))]

    def keep_stub(self, offset: Offset, message: Message) -> None:
        """Nothing to do if the message is held."""
        if offset not in self._held:
            self._stubs[offset] = message.without_body()

    def drop_stub(self, offset: Offset) -> None:
        self._stubs.pop(offset, None)

    def note_first_sent(self, offsets: Iterable[Offset], sent_at_ns: int) -> None:
        """The earliest noted time counts."""
        for offset in offsets:
            self._first_sent.setdefault(offset, sent_at_ns)

    def first_sent_ns(self, offset: Offset) -> int | None:
        return self._first_sent.get(offset)

    def first_sent_between(self, start: int, stop: int) -> list[Offset]:
        return offsets_between(self._first_sent, start, stop) if self._first_sent else []

    def forget(self, start: int, stop: int) -> None:
        """These are settled."""
        if self._first_sent:
            for offset in offsets_between(self._first_sent, start, stop):
                del self._first_sent[offset]
        if self._stubs:
            for offset in offsets_between(self._stubs, start, stop):
                del self._stubs[offset]
        if self._held:
            self._charge(-sum(self._held.pop(offset).size_bytes for offset in offsets_between(self._held, start, stop)))
        if self.asking:
            self._charge(
                -sum(self.asking.pop(offset).size_bytes for offset in offsets_between(self.asking, start, stop))
            )

    def clear(self) -> None:
        """Nobody reads here any more."""
        if self.held_bytes:
            self._charge(-self.held_bytes)
        self._held.clear()
        self.asking.clear()
        self._stubs.clear()
        self._first_sent.clear()

    def check_invariants(self) -> None:
        held_bytes = sum(message.size_bytes for message in self._held.values())
        assert self.held_bytes == held_bytes + sum(asked.size_bytes for asked in self.asking.values())


def offsets_between(kept: Mapping[Offset, object], start: int, stop: int) -> list[Offset]:
    """The keys within [start, stop). Goes through whichever is smaller, the range or the keys. Hot path of those who
    refuse now and then: the range is gone through in C."""
    if stop - start <= len(kept):
        return cast("list[Offset]", list(filter(kept.__contains__, range(start, stop))))
    return [offset for offset in kept if start <= offset < stop]
