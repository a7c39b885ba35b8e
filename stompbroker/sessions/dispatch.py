"""Delivers in turns: ready consumers get a slice each, and the outboxes they fill are flushed.

Law: synchronous. Topics are changed within a `with` block of it, which ends with a turn, so that messages leave before
the next checkpoint and no task has to be woken. Consumers that a turn has no time for are left to the distributor, and
bytes that the kernel has no room for to the writers.

If consumers were ready before the block, it takes no turn but leaves delivery to the distributor. Otherwise a hundred
small publishers would each deliver for a millisecond from a long backlog before the first of them is read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import appending, sending

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.delivery import Consumer, ReadyQueue, Topic
    from stompbroker.sessions.outbox import FlushQueue

#: How long slices are handed out in one turn. One slice takes 0.1 to 0.5 ms.
TURN_S: Final = 0.001


@final
@dataclass(slots=True, eq=False)
class Dispatch:
    """
    Invariants:
        the ready queue and the flush queue are attended exactly within a block or a turn; there is no await in either
        if a consumer is ready when a block begins, the distributor was woken
    """

    _ready: ReadyQueue[Consumer, Topic]
    _flush_queue: FlushQueue
    _clock: Clock
    #: Whether consumers were ready when the block began.
    _is_behind_others: bool = False

    def __enter__(self) -> None:
        self._is_behind_others = len(self._ready) > 0
        self._ready.is_attended = True
        self._flush_queue.is_attended = True

    def __exit__(self, _type: object, _error: object, _where: object) -> None:
        if not self._is_behind_others:
            self.take_turn()
            return
        try:
            self._flush_queue.send()
        finally:
            self._flush_queue.leave()
            self._ready.leave()

    def take_turn(self) -> None:
        """Deliver to ready consumers, one slice each, for TURN_S."""
        ready, flush_queue = self._ready, self._flush_queue
        ready.is_attended = flush_queue.is_attended = True
        try:
            now_ns = self._clock.now_ns()
            ends_at_s = perf_counter() + TURN_S
            while True:
                while len(ready):
                    sending.deliver_slice(ready.take(), now_ns)
                    if perf_counter() > ends_at_s:
                        break
                # This settles what was sent in `auto` mode, and may make room for more.
                flush_queue.send()
                if not len(ready) or perf_counter() > ends_at_s:
                    break
            for topic in ready.take_moved():
                appending.try_to_unblock(topic, now_ns)
        finally:
            flush_queue.leave()
            ready.leave()
