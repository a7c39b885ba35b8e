"""What a reading remembers of unsettled messages beside its cursor.

Law: *held* messages have left the log and are in no store. *Stubs* are messages without bodies, for the ledger, of
which only the store has the rest. Of messages whose consumer has left, the time of the first delivery is kept. All of
it goes when the message is settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.ids import Offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import Message


@final
class Remembered:
    """
    Invariants:
        held_bytes is the size of what is held, and is charged to the budget
    """

    __slots__ = ("_budget", "_first_sent", "_held", "_stubs", "held_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held: dict[Offset, Message] = {}
        self._stubs: dict[Offset, Message] = {}
        self._first_sent: dict[Offset, int] = {}
        self.held_bytes = 0

    def __iter__(self) -> Iterator[Offset]:
        """The offsets of everything remembered; some come more than once."""
        return iter([*self._held, *self._stubs, *self._first_sent])

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
        size_bytes = sum(message.size_bytes for message in messages.values())
        self.held_bytes += size_bytes
        self._budget.adjust(size_bytes)

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
            size_bytes = sum(self._held.pop(offset).size_bytes for offset in offsets_between(self._held, start, stop))
            self.held_bytes -= size_bytes
            self._budget.adjust(-size_bytes)

    def clear(self) -> None:
        """Nobody reads here any more."""
        if self._held:
            self._budget.adjust(-self.held_bytes)
            self.held_bytes = 0
            self._held.clear()
        self._stubs.clear()
        self._first_sent.clear()

    def check_invariants(self) -> None:
        assert self.held_bytes == sum(message.size_bytes for message in self._held.values())


def offsets_between(kept: Mapping[Offset, object], start: int, stop: int) -> list[Offset]:
    """The keys within [start, stop). Goes through whichever is smaller, the range or the keys."""
    if stop - start <= len(kept):
        return [offset for offset in map(Offset, range(start, stop)) if offset in kept]
    return [offset for offset in kept if start <= offset < stop]
