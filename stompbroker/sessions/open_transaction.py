"""One open transaction of a client.

Law: since when it is open, which deliveries its ACKs and NACKs named, and the credit that these give back before it
ends, which `consumer.borrowed` is kept in step with. Without that credit a client that acknowledges in transactions
larger than its prefetch would wait for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.delivery import answering

if TYPE_CHECKING:
    from stompbroker.delivery import Consumer
    from stompbroker.sessions.consumers import Named

__all__ = ["OpenTransaction"]


@final
class OpenTransaction:
    __slots__ = ("_acknowledged", "_borrowed", "_highest", "begun_at_ns", "deliveries")

    def __init__(self, begun_at_ns: int) -> None:
        self.begun_at_ns = begun_at_ns
        #: What its ACKs and NACKs named, in their order: found out when they came, so that COMMIT cannot fail halfway.
        self.deliveries: list[Named | None] = []
        #: What was acknowledged one by one.
        self._acknowledged: set[Named] = set()
        #: Up to which number deliveries were acknowledged cumulatively.
        self._highest: dict[Consumer, int] = {}
        self._borrowed: dict[Consumer, int] = {}

    def borrow(self, delivery: Named) -> None:
        """A delivery was acknowledged in the transaction: its credit is free at once."""
        consumer, number = delivery
        if consumer.is_cumulative:
            highest = self._highest.get(consumer, 0)
            count = answering.count_in_flight_between(consumer, highest + 1, number)
            self._highest[consumer] = max(highest, number)
        else:
            count = delivery not in self._acknowledged
            self._acknowledged.add(delivery)
        consumer.borrowed += count
        self._borrowed[consumer] = self._borrowed.get(consumer, 0) + count
        consumer.wake()

    def end(self) -> None:
        """What was acknowledged is either settled now, or in flight again under the same ids."""
        for consumer, count in self._borrowed.items():
            consumer.borrowed -= count
            consumer.wake()
