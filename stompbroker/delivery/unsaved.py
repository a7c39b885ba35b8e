"""What has changed in memory since the store was last told.

Law: a set of things to look at, not of changes: the journal reads their state when it writes them, so ten thousand
acknowledgements are one row. Noting is synchronous and costs a look-up or two per run.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, final

from stompbroker.signals import Signal

__all__ = ["Unsaved"]

#: Deliveries that may be settled before their cursors are written at once.
MANY_RECORDS: Final = 500


R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


@final
class Unsaved(Generic[R, S, T]):
    """
    Invariants:
        every reading and subscription in it is a durable one
        `filled` was woken when the first thing was noted, unless somebody looks soon anyway, and when it had become
        pressing
    """

    __slots__ = ("collectable", "filled", "is_looked_at", "readings", "records", "removed_topics", "subscriptions")

    def __init__(self) -> None:
        self.readings: dict[R, None] = {}
        self.subscriptions: dict[S, None] = {}
        #: Topics some of whose stored messages may be settled by everybody.
        self.collectable: dict[T, None] = {}
        #: Numbers in the store of topics that are gone.
        self.removed_topics: list[int] = []
        #: How many deliveries were settled or refused since the last write.
        self.records = 0
        #: Woken when there is something to write, or something pressing.
        self.filled = Signal()
        #: Whether the journal looks within a moment by itself: what can wait that long need not wake it.
        self.is_looked_at = False

    def __bool__(self) -> bool:
        return bool(self.readings or self.subscriptions or self.removed_topics)

    @property
    def is_pressing(self) -> bool:
        """Whether so much has changed that it should be written without waiting for company."""
        return self.records >= MANY_RECORDS

    def note_reading(self, reading: R, records: int) -> None:
        """A durable subscription's cursor in a stored topic has moved, by so many deliveries."""
        is_pressing_now = self.records < MANY_RECORDS <= self.records + records
        if is_pressing_now or not (self or self.is_looked_at):
            self.filled.wake()
        self.readings[reading] = None
        self.records += records

    def note_record(self, reading: R) -> None:
        """A durable subscription has settled something, which the ledger does not know yet."""
        if not (self or self.is_looked_at):
            self.filled.wake()
        self.readings[reading] = None

    def note_subscription(self, subscription: S) -> None:
        """What is kept about a durable subscription has changed."""
        self.subscriptions[subscription] = None
        self.filled.wake()

    def note_removed_topic(self, topic: T, store_id: int) -> None:
        self.removed_topics.append(store_id)
        self.collectable.pop(topic, None)
        self.filled.wake()

    def take(self) -> tuple[list[R], list[S]]:
        """What has moved or was seen."""
        readings, subscriptions = list(self.readings), list(self.subscriptions)
        self.readings, self.subscriptions = {}, {}
        self.records = 0
        return readings, subscriptions

    def take_removed_topics(self) -> list[int]:
        removed_topics, self.removed_topics = self.removed_topics, []
        return removed_topics
