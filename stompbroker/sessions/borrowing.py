"""Credit that deliveries acknowledged in an open transaction give back before it ends.

Law: keeps, per transaction, which deliveries were answered in it, and `consumer.borrowed` in step with that. Without
it a client that acknowledges in transactions larger than its prefetch would wait for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.topics import AckMode

if TYPE_CHECKING:
    from stompbroker.sessions.consumers import Named
    from stompbroker.topics import Consumer

__all__ = ["Borrowing"]


@final
class Borrowing:
    """The answers given in one open transaction."""

    __slots__ = ("_answered", "_borrowed")

    def __init__(self) -> None:
        self._answered: dict[Consumer, set[int]] = {}
        self._borrowed: dict[Consumer, int] = {}

    def add(self, delivery: Named) -> None:
        """A delivery was answered in the transaction: its credit is free at once."""
        consumer, number = delivery
        answered = self._answered.setdefault(consumer, set())
        answered.add(number)
        if consumer.subscription.ack_mode is AckMode.CLIENT:
            count = consumer.count_in_flight_up_to(max(answered))
        else:
            count = len(answered)
        self._borrow(consumer, count)

    def end(self) -> None:
        """The transaction is over: what was answered is either settled now, or in flight again under the same ids."""
        for consumer in self._answered:
            self._borrow(consumer, 0)

    def _borrow(self, consumer: Consumer, count: int) -> None:
        consumer.borrowed += count - self._borrowed.get(consumer, 0)
        self._borrowed[consumer] = count
        consumer.wake()
