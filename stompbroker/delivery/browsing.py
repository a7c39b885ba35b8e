"""Browsing: shows a consumer what a queue holds, and takes nothing.

Law: a browser walks the offsets that the queue's group had not settled when it began, a slice at a time, and steps over
what is settled, expired or gone when it comes there. It belongs to a subscription that no topic knows, so nothing is
kept, counted or held up for it. After the last message, or in front of what the store has lost, it shows an end marker.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, final

from stompbroker.delivery.consumer import SLICE_MESSAGES
from stompbroker.delivery.sending import SLICE_BYTES
from stompbroker.delivery.sink import Deliveries
from stompbroker.ids import Offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.commitlog import Cursor
    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.policy import Failure
    from stompbroker.delivery.reading import Reading
    from stompbroker.message import Message


@final
@dataclass(slots=True, eq=False)
class Browsing:
    """
    Invariants:
        `_left` holds rising ranges, no more than the group's cursor had when it began
        it is true exactly if its consumer can be shown something now, be it the end
    """

    #: Makes the marker, told whether the store has lost what would come next.
    _end_marker: Callable[[bool], Message]
    #: That of the queue's group; None if there is no such queue.
    _group: Reading | None = None
    _left: deque[tuple[int, int]] = field(default_factory=deque)
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
            self._left.extend(group.unsettled_ranges())

    def deliver_slice(self, consumer: Consumer, now_ns: int) -> None:
        """Show the next slice, or the end; then queue up for what comes next."""
        group = self._group
        if group is None or group.subscription.is_closed or not self._left:
            self._is_under_way = False
            self._group = None
            self._left.clear()
            consumer.sink.deliver(Deliveries([self._end_marker(self._is_cut_short)], 0))
            return
        for failure, messages in self._next_runs(group, consumer, now_ns):
            consumer.delivered += len(messages)
            consumer.subscription.counters.delivered += len(messages)
            consumer.sink.deliver(Deliveries(messages, 0, is_again=failure is not None, failure=failure))
        consumer.wake()

    def _next_runs(self, group: Reading, consumer: Consumer, now_ns: int) -> list[tuple[Failure | None, list[Message]]]:
        """Messages in order, those together that have failed alike. None if there are none among the offsets looked
        at, or if the page they are on has to be read first."""
        start, end = self._left.popleft()
        start = max(start, group.cursor.ack_floor)
        runs: list[tuple[Failure | None, list[Message]]] = []
        size_bytes = 0
        for offset in map(Offset, range(start, min(end, start + SLICE_MESSAGES))):
            if _is_unsettled(group.cursor, offset):
                message, is_known = group.get(offset)
                if not is_known:
                    self._await_page(group, consumer, offset)
                if not is_known or size_bytes >= SLICE_BYTES:
                    self._left.appendleft((offset, end))
                    return runs
                if message is not None and not message.has_expired(now_ns):
                    failure = group.failures.get(offset)
                    if not runs or runs[-1][0] is not failure:
                        runs.append((failure, []))
                    runs[-1][1].append(message)
                    size_bytes += len(message.tail)
        if start + SLICE_MESSAGES < end:
            self._left.appendleft((start + SLICE_MESSAGES, end))
        return runs

    def _await_page(self, group: Reading, consumer: Consumer, offset: Offset) -> None:
        self._awaits_page = True
        pages = group.topic.context.pages
        pages.call_when_read(
            group.topic, offset, partial(self._resume, consumer), if_lost=partial(self._cut_short, consumer)
        )

    def _resume(self, consumer: Consumer) -> None:
        self._awaits_page = False
        consumer.wake()

    def _cut_short(self, consumer: Consumer) -> None:
        self._is_cut_short = True
        self._left.clear()
        self._resume(consumer)


def _is_unsettled(cursor: Cursor, offset: Offset) -> bool:
    if offset >= cursor.next_offset:
        return cursor.is_unsent(offset)
    return not cursor.is_settled(offset, offset + 1)
