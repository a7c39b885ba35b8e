"""The last value of a topic, which newcomers get before anything else.

Law: keeps one message for each topic that has one, in memory and, through the journal, in a table of its own. It pins
nothing of the topic's log, and is nobody's backlog: a value is shown outside of cursors, so an answer to it settles
nothing, and the ledger does not know of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

from stompbroker.delivery.consumer import SLICE_MESSAGES
from stompbroker.delivery.sink import Particulars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.destination import Pattern
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import Message


class LastValue(NamedTuple):
    destination: Pattern
    message: Message
    #: Rises with each value that is set.
    number: int


@final
@dataclass(slots=True, eq=False)
class LastValues:
    """
    Invariants:
        size_bytes == the sizes of all values together, and is charged to the budget
        each is under the key of its destination; those that expire are in `expiring` until they are on their way out
    """

    _budget: MemoryBudget
    #: What new values may fill; those on their way through the journal may exceed it.
    max_bytes: int
    #: Whether they outlive the process.
    is_stored: bool
    _by_key: dict[str, LastValue] = field(default_factory=dict)
    expiring: dict[str, None] = field(default_factory=dict)
    size_bytes: int = 0
    _next_number: int = 1

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[LastValue]:
        return iter(self._by_key.values())

    def get(self, key: str) -> LastValue | None:
        return self._by_key.get(key)

    def set(self, destination: Pattern, message: Message) -> None:
        self.remove(destination.key)
        self._by_key[destination.key] = LastValue(destination, message, self._next_number)
        self._next_number += 1
        if message.origin.can_expire:
            self.expiring[destination.key] = None
        self._charge(message.size_bytes)

    def remove(self, key: str) -> None:
        value = self._by_key.pop(key, None)
        if value is not None:
            self.expiring.pop(key, None)
            self._charge(-value.message.size_bytes)

    def greeting(self, pattern: Pattern) -> Greeting | None:
        """What somebody who begins to read these topics now is shown first; None if that is nothing."""
        keys = deque({pattern.key} & self._by_key.keys() if pattern.is_exact else self._by_key)
        return Greeting(self, pattern, keys, self._next_number) if keys else None

    def _charge(self, difference_bytes: int) -> None:
        self.size_bytes += difference_bytes
        self._budget.adjust(difference_bytes)

    def check_invariants(self) -> None:
        assert self.size_bytes == sum(value.message.size_bytes for value in self)
        assert all(key == value.destination.key for key, value in self._by_key.items())
        assert self.expiring.keys() <= {key for key, value in self._by_key.items() if value.message.origin.can_expire}


@final
@dataclass(slots=True, eq=False)
class Greeting:
    """The values that one subscription is still to be shown.

    Invariants:
        it is shown no value that was set after it began: it gets that as any other message
    """

    _values: LastValues
    _pattern: Pattern
    #: Keys of values that it may be shown, a reference each: as many as there were.
    _left: deque[str]
    #: Values with this number or a higher one were set afterwards.
    _before: int

    def deliver_slice(self, consumer: Consumer, now_ns: int) -> None:
        """Show the next values, lots of keys at a time; the consumer queues up for the rest, and then for messages."""
        subscription, left = consumer.subscription, self._left
        own = subscription.connection_name if subscription.is_no_local else None
        shown: list[Message] = []
        size_bytes, room_bytes = 0, consumer.sink.outlet.room_bytes
        for _ in range(min(len(left), SLICE_MESSAGES)):
            value = self._values.get(left.popleft())
            if value is None or value.number >= self._before or not self._pattern.matches(value.destination):
                continue
            message = value.message
            if message.has_expired(now_ns) or message.origin.publisher == own:
                continue
            shown.append(message)
            size_bytes += len(message.tail)
            if size_bytes >= room_bytes:
                break
        if shown:
            consumer.delivered += len(shown)
            subscription.counters.delivered += len(shown)
            first_number = consumer.sent.take_numbers(len(shown))
            consumer.sink.deliver(shown, first_number, Particulars(is_last_value=True))
        if not left:
            subscription.greeting = None
        consumer.wake()
