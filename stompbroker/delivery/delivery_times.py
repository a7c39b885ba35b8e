"""How long deliveries take, over all topics.

Law: filled once per run, with what the run has in common.
"""

from __future__ import annotations

from typing import final

from stompbroker.clock import NANOSECONDS
from stompbroker.counting import SECONDS_BOUNDS, Histogram


@final
class DeliveryTimes:
    __slots__ = ("to_acknowledgement", "to_delivery")

    def __init__(self) -> None:
        #: Seconds from publication to the first time a message is handed to a consumer's outbox.
        self.to_delivery = Histogram(SECONDS_BOUNDS)
        #: Seconds from there to its acknowledgement.
        self.to_acknowledgement = Histogram(SECONDS_BOUNDS)

    def note_delivered(self, published_at_ns: int, now_ns: int, count: int) -> None:
        self.to_delivery.add((now_ns - published_at_ns) / NANOSECONDS, count)

    def note_acknowledged(self, sent_at_ns: int, now_ns: int, count: int) -> None:
        self.to_acknowledgement.add((now_ns - sent_at_ns) / NANOSECONDS, count)
