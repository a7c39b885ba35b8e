"""Gathers what the frames of one chunk change, and makes one unit of it for the journal.

Law: joins answers of neighbouring numbers into ranges, and is emptied as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.changes import Answer, Appended, Unit, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.changes import Lane
    from stompbroker.delivery import Consumer, Refusal, Topic
    from stompbroker.message import Message

__all__ = ["UnitBuilder"]


@final
class UnitBuilder:
    __slots__ = ("_acknowledging", "_answers", "_first", "_last", "publications", "receipts")

    def __init__(self) -> None:
        #: Messages by topic, each in the order they were sent. Written by the session's hot loop.
        self.publications: dict[Topic, list[Message]] = {}
        self.receipts: list[str] = []
        self._answers: list[Answer] = []
        # The range of acknowledgements being gathered.
        self._acknowledging: Consumer | None = None
        self._first = 0
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self.publications or self.receipts or self._answers or self._acknowledging)

    def acknowledge(self, consumer: Consumer, first: int, last: int) -> None:
        """The deliveries numbered first..last are acknowledged."""
        if consumer is not self._acknowledging or first != self._last + 1:
            self._close_range()
            self._acknowledging = consumer
            self._first = first
        self._last = last

    def refuse(self, consumer: Consumer, first: int, last: int, refusal: Refusal) -> None:
        """The deliveries numbered first..last are refused; each of them only if its consumer's answers are not
        cumulative."""
        self._close_range()
        before = self._answers[-1] if self._answers else None
        if (
            before is not None
            and before.verdict is Verdict.NACK
            and before.consumer is consumer
            and before.last + 1 == first
            and before.refusal == refusal
            and not consumer.is_cumulative
        ):
            self._answers[-1] = before._replace(last=last)
        else:
            self._answers.append(Answer(consumer, Verdict.NACK, first, last, refusal))

    def take(self, lane: Lane, then: Callable[[list[str]], None]) -> Unit:
        """Everything gathered, as a unit; `then` will be given the receipts that it owes."""
        self._close_range()
        receipts = self.receipts
        unit = Unit(
            [Appended(topic, messages) for topic, messages in self.publications.items()],
            self._answers,
            then=lambda: then(receipts),
            lane=lane,
            owes_receipt=bool(receipts),
        )
        self.publications = {}
        self.receipts = []
        self._answers = []
        return unit

    def _close_range(self) -> None:
        if self._acknowledging is not None:
            self._answers.append(Answer(self._acknowledging, Verdict.ACK, self._first, self._last))
            self._acknowledging = None
