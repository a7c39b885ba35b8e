"""What has changed in memory since the store was last told.

Law: names what changed, not how: the journal reads the state when it writes it, so ten thousand ACKs are one row.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, final

from stompbroker.signals import Signal

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
        `filled` was woken when the first thing was noted (unless `is_looked_at`), and when it became pressing
    """

    __slots__ = ("collectable", "filled", "is_looked_at", "readings", "records", "removed_topics", "subscriptions")

    def __init__(self) -> None:
        self.readings: dict[R, None] = {}
        self.subscriptions: dict[S, None] = {}
        #: Topics some of whose stored messages may be settled by everybody.
        self.collectable: dict[T, None] = {}
        #: Store ids of topics that are gone.
        self.removed_topics: list[int] = []
        #: How many deliveries were settled or refused since the last write.
        self.records = 0
        self.filled = Signal()
        #: Whether the journal looks soon by itself and need not be woken.
        self.is_looked_at = False

    def __bool__(self) -> bool:
        return bool(self.readings or self.subscriptions or self.removed_topics)

    @property
    def is_pressing(self) -> bool:
        """Whether so much has changed that it should be written at once."""
        return self.records >= MANY_RECORDS

    def note_reading(self, reading: R, records: int) -> None:
        """The cursor of a durable subscription has moved, by so many deliveries."""
        is_pressing_now = self.records < MANY_RECORDS <= self.records + records
        if is_pressing_now or not (self or self.is_looked_at):
            self.filled.wake()
        self.readings[reading] = None
        self.records += records

    def note_record(self, reading: R) -> None:
        """A durable subscription has settled something that the ledger does not have yet."""
        if not (self or self.is_looked_at):
            self.filled.wake()
        self.readings[reading] = None

    def note_subscription(self, subscription: S) -> None:
        """The row of a durable subscription has changed."""
        self.subscriptions[subscription] = None
        self.filled.wake()

    def note_removed_topic(self, topic: T, store_id: int) -> None:
        self.removed_topics.append(store_id)
        self.collectable.pop(topic, None)
        self.filled.wake()

    def take(self) -> tuple[list[R], list[S]]:
        readings, subscriptions = list(self.readings), list(self.subscriptions)
        self.readings, self.subscriptions = {}, {}
        self.records = 0
        return readings, subscriptions

    def take_removed_topics(self) -> list[int]:
        removed_topics, self.removed_topics = self.removed_topics, []
        return removed_topics
