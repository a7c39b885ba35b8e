"""Delivers in turns: consumers that are ready get a slice each, and what they are owed goes to the kernel.

Law: synchronous. Whoever is about to change topics does so within a `with` block of it, and takes a turn behind the
change, in the same stretch: what is published leaves before anybody else has to be woken. What a turn has no time for
is left to the distributor, and what the kernel has no room for to the writers.

Who finds others ready before him takes no turn, since the distributor is about to: otherwise a hundred who publish a
little would each deliver for a millisecond of somebody's long backlog before the first of them is read again.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import appending, sending

if TYPE_CHECKING:
    from types import TracebackType

    from stompbroker.clock import Clock
    from stompbroker.delivery import Consumer, ReadyQueue, Topic
    from stompbroker.sessions.outbox import FlushQueue

__all__ = ["Dispatch"]

#: How long slices are handed out in one turn. One slice takes 0.1 to 0.5 ms.
TURN_S: Final = 0.001


@final
class Dispatch:
    """
    Invariants:
        consumers and outboxes are attended exactly within a block or a turn; there is no await in either
        if anybody is ready when a block begins, the distributor was woken
    """

    __slots__ = ("_clock", "_flush_queue", "_is_behind_others", "_ready")

    def __init__(self, ready: ReadyQueue[Consumer, Topic], flush_queue: FlushQueue, clock: Clock) -> None:
        self._ready = ready
        self._flush_queue = flush_queue
        self._clock = clock
        #: Whether somebody was ready when the block began.
        self._is_behind_others = False

    def __enter__(self) -> None:
        self._is_behind_others = len(self._ready) > 0
        self._ready.is_attended = True
        self._flush_queue.is_attended = True

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self._is_behind_others:
            self._send_answers()
        else:
            self.take_turn()

    def _send_answers(self) -> None:
        """Hand over what is owed by now, and leave those who are ready to the distributor."""
        try:
            self._flush_queue.send()
        finally:
            self._flush_queue.leave()
            self._ready.leave()

    def take_turn(self) -> None:
        """Deliver to whoever is ready, in turn, for a written time."""
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
                # What was sent in `auto` mode is settled by that, and may make room for more.
                flush_queue.send()
                if not len(ready) or perf_counter() > ends_at_s:
                    break
            for topic in ready.take_moved():
                appending.try_to_unblock(topic, now_ns)
        finally:
            flush_queue.leave()
            ready.leave()
