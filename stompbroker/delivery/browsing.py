"""Browsing: shows a consumer what a queue holds, and takes nothing.

Law: a browser walks up to where the queue ended when it began, a slice at a time. It steps over what the queue's group
has settled, what has expired and what is gone when it comes there. It belongs to a subscription that no topic knows, so
nothing is kept, counted or held up for it. After the last message, or in front of what the store has lost, it shows an
end marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, final

from stompbroker.delivery.consumer import SLICE_MESSAGES
from stompbroker.delivery.sink import Particulars

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.policy import Failure
    from stompbroker.delivery.reading import Reading
    from stompbroker.ids import Offset
    from stompbroker.message import Message


@final
@dataclass(slots=True, eq=False)
class Browsing:
    """
    Invariants:
        everything below `_next` was shown or stepped over; what is at `_end` or above came later
        it is true exactly if its consumer can be shown something now, be it the end
    """

    #: Makes the marker, told whether the store has lost what would come next.
    _end_marker: Callable[[bool], Message]
    #: That of the queue's group; None if there is no such queue.
    _group: Reading | None = None
    _next: int = 0
    _end: int = 0
    _is_under_way: bool = False
    _awaits_page: bool = False
    _is_cut_short: bool = False

    def __bool__(self) -> bool:
        return self._is_under_way and not self._awaits_page

    def begin(self, group: Reading | None) -> None:
        """From now on it shows what this group has not settled at this moment."""
        self._is_under_way = True
        self._group = group
        if group is not None:
            self._next, self._end = group.cursor.ack_floor, group.log.end_offset

    def deliver_slice(self, consumer: Consumer, now_ns: int) -> None:
        """Show the next slice, or the end; then queue up for what comes next."""
        group = self._group
        if group is None or group.subscription.is_closed or group.cursor.unsettled_from(self._next) >= self._end:
            self._is_under_way = False
            self._group = None
            consumer.sink.deliver([self._end_marker(self._is_cut_short)], 0)
            return
        for failure, messages in self._next_runs(group, consumer, now_ns):
            consumer.delivered += len(messages)
            consumer.subscription.counters.delivered += len(messages)
            consumer.sink.deliver(messages, 0, Particulars(is_again=failure is not None, failure=failure))
        consumer.wake()

    def _next_runs(self, group: Reading, consumer: Consumer, now_ns: int) -> list[tuple[Failure | None, list[Message]]]:
        """Messages in order, those together that have failed alike. None if there are none at the offsets looked at,
        or if the page they are on has to be read first."""
        runs: list[tuple[Failure | None, list[Message]]] = []
        looked_at, size_bytes, room_bytes = 0, 0, consumer.sink.outlet.room_bytes
        offset = group.cursor.unsettled_from(self._next)
        while offset < self._end and looked_at < SLICE_MESSAGES and size_bytes < room_bytes:
            message, is_known = group.get(offset)
            if not is_known:
                self._await_page(group, consumer, offset)
                break
            if message is not None and not message.has_expired(now_ns):
                failure = group.failures.get(offset)
                if not runs or runs[-1][0] is not failure:
                    runs.append((failure, []))
                runs[-1][1].append(message)
                size_bytes += len(message.tail)
            looked_at += 1
            offset = group.cursor.unsettled_from(offset + 1)
        self._next = offset
        return runs

    def _await_page(self, group: Reading, consumer: Consumer, offset: Offset) -> None:
        self._awaits_page = True
        resume, cut_short = partial(self._resume, consumer), partial(self._cut_short, consumer)
        group.topic.context.pages.call_when_read(group.topic, offset, resume, if_lost=cut_short)

    def _resume(self, consumer: Consumer) -> None:
        self._awaits_page = False
        consumer.wake()

    def _cut_short(self, consumer: Consumer) -> None:
        self._is_cut_short = True
        self._end = 0
        self._resume(consumer)
