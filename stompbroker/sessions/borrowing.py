"""Credit that deliveries acknowledged in an open transaction give back before it ends.

Law: keeps, per transaction, which deliveries were answered in it, and `consumer.borrowed` in step with that. Without
it a client that acknowledges in transactions larger than its prefetch would wait for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from stompbroker.delivery import Consumer
    from stompbroker.sessions.consumers import Named

__all__ = ["Borrowing"]


@final
class Borrowing:
    """The answers given in one open transaction."""

    __slots__ = ("_answered", "_borrowed", "_highest")

    def __init__(self) -> None:
        #: What was answered one by one.
        self._answered: set[Named] = set()
        #: Up to which number deliveries were answered cumulatively.
        self._highest: dict[Consumer, int] = {}
        self._borrowed: dict[Consumer, int] = {}

    def add(self, delivery: Named) -> None:
        """A delivery was answered in the transaction: its credit is free at once."""
        consumer, number = delivery
        if consumer.is_cumulative:
            highest = self._highest.get(consumer, 0)
            count = consumer.count_in_flight_between(highest + 1, number)
            self._highest[consumer] = max(highest, number)
        else:
            count = delivery not in self._answered
            self._answered.add(delivery)
        consumer.borrowed += count
        self._borrowed[consumer] = self._borrowed.get(consumer, 0) + count
        consumer.wake()

    def end(self) -> None:
        """The transaction is over: what was answered is either settled now, or in flight again under the same ids."""
        for consumer, count in self._borrowed.items():
            consumer.borrowed -= count
            consumer.wake()
