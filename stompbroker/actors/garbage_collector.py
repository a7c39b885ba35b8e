"""Trims topics of settled messages, drops unused topics and pages, and disconnects subscribers that block a topic.

A round every second, in short slices. It also lets blocked topics go on when memory has eased, looks after durable
subscriptions that nobody attaches to, and forgets idle producers and expired last values. `upkeep` looks after messages
that are only in the store.

It runs the interpreter's search for reference cycles in quiet moments only: with a few thousand connections that takes
a tenth of a second (p99 beside a flood was 51 ms with it, 13 ms without). Our own objects are freed without it
(`tests/sessions/test_what_ends_is_freed.py`); it is for what libraries leave behind.
"""

from __future__ import annotations

import gc
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
import trio

from stompbroker.changes import Unit, ValueChanged, warn_or_delete_idle
from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import appending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.changes import Journal, Producers
    from stompbroker.clock import Clock
    from stompbroker.counting import LoopGauge
    from stompbroker.delivery import Registry, Topic
    from stompbroker.transport import Traffic

#: Time between two rounds, in seconds.
ROUND_S: Final = 1.0
#: Seconds between two searches for reference cycles in quiet and in busy times; and how long a search should take:
#: after one that took n times as long, n times as much time passes before the next.
MIN_BETWEEN_S: Final = 60.0
MAX_BETWEEN_S: Final = 1800.0
SEARCH_S: Final = 0.05
#: New objects after which the interpreter searches these for reference cycles, and after how many such searches it
#: searches all objects since the last larger one. Few: 15,000 took up to 30 ms where several programs shared a
#: processor, and the searches find next to nothing.
YOUNG_OBJECTS, YOUNG_SEARCHES = 1_000, 2
#: How long it works between two checkpoints, in seconds; a topic takes about 3 µs, unless it has very many readings.
SLICE_S: Final = 0.001

Item = TypeVar("Item")

log = structlog.get_logger()


def take_over_cycles() -> None:
    """Let the interpreter search only young objects for reference cycles by itself; `run` searches all of them, in
    quiet moments. Exempt what is loaded by now: unless a start has held the searches off, without its cycles. Those of
    a start are 1.3 MiB, and looking for them takes a twentieth of it."""
    if gc.isenabled():
        gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_SEARCHES, 1_000_000)


async def run(
    registry: Registry,
    producers: Producers,
    journal: Journal,
    clock: Clock,
    stretches: LoopGauge,
    traffic: Traffic,
    *,
    topic_idle_ns: int,
) -> None:
    """Collect until cancelled. Cancelling between two slices only leaves work for the next round."""
    cycles = _Cycles()
    look_at_idle = partial(warn_or_delete_idle, registry=registry, journal=journal, clock=clock)
    while True:
        with trio.move_on_after(ROUND_S) as round_time:
            await registry.budget.eased.wait_either(registry.collection_wanted)
        if not round_time.cancelled_caught:
            # Memory has eased: wake consumers that were given nothing because of it.
            await _in_slices(lambda subscription: subscription.wake(), list(registry.subscriptions), stretches)
        began_at_s = perf_counter()
        _look_after_blocked(registry, clock.now_ns())
        stretches.note("garbage collector", began_at_s)
        now_ns = clock.now_ns()
        collect = partial(_collect, registry=registry, now_ns=now_ns, unused_since_ns=now_ns - topic_idle_ns)
        await _in_slices(collect, list(registry.topics.values()), stretches)
        await _in_slices(look_at_idle, list(registry.durable.values()), stretches)
        producers.forget_idle(journal, now_ns)
        forget = partial(_forget_expired, registry=registry, journal=journal, now_ns=now_ns)
        await _in_slices(forget, list(registry.last_values.expiring), stretches)
        registry.pages.forget_unused()
        cycles.collect_if_quiet(traffic.reads)


class _Cycles:
    """When to search all objects for reference cycles: MIN_BETWEEN_S after the last search if no client has sent
    anything since the last round, otherwise after MAX_BETWEEN_S. Both grow where a search takes long. In real time,
    whatever the broker's clock."""

    def __init__(self) -> None:
        self._reads = -1
        self._searched_at_s = perf_counter()
        self._took_s = 0.0

    def collect_if_quiet(self, reads: int) -> None:
        """`reads` counts the chunks that all clients have sent."""
        is_quiet = reads == self._reads
        self._reads = reads
        between_s = (MIN_BETWEEN_S if is_quiet else MAX_BETWEEN_S) * max(1.0, self._took_s / SEARCH_S)
        began_at_s = perf_counter()
        if began_at_s - self._searched_at_s > between_s:
            gc.collect()
            self._searched_at_s = perf_counter()
            self._took_s = self._searched_at_s - began_at_s


def _look_after_blocked(registry: Registry, now_ns: int) -> None:
    for topic in list(registry.blocked):
        appending.try_to_unblock(topic, now_ns)
        topic.gate.is_overdue = False
        if not topic.gate.is_blocked or now_ns - topic.progress_at_ns < topic.policy.block_timeout_s * NANOSECONDS:
            continue
        topic.progress_at_ns = now_ns
        if topic.is_queue:
            # Its consumers may be few, or none; they are never to blame.
            topic.gate.refuse()
            continue
        for reading in appending.disconnect_slowest(topic):
            log.warning(
                "disconnected a subscriber that blocked its topic",
                topic=topic.name,
                subscription=reading.subscription.name,
                connection=reading.subscription.connection_id,
                blocked_for_s=topic.policy.block_timeout_s,
            )


def _forget_expired(key: str, *, registry: Registry, journal: Journal, now_ns: int) -> None:
    value = registry.last_values.get(key)
    if value is not None and value.message.has_expired(now_ns):
        del registry.last_values.expiring[key]  # it is on its way out
        effect = ValueChanged(registry.last_values, value.destination, expired=value)
        journal.submit(Unit([effect], owes_receipt=False))


def _collect(topic: Topic, *, registry: Registry, now_ns: int, unused_since_ns: int) -> None:
    if not topic.is_removed:  # between two slices
        registry.collect(topic, now_ns, unused_since_ns=unused_since_ns)


async def _in_slices(step: Callable[[Item], None], items: Sequence[Item], stretches: LoopGauge) -> None:
    """Call `step` for each item, with a checkpoint whenever SLICE_S has passed."""
    began_at_s = perf_counter()
    for item in items:
        step(item)
        if perf_counter() - began_at_s > SLICE_S:
            stretches.note("garbage collector", began_at_s)
            await trio.lowlevel.checkpoint()
            began_at_s = perf_counter()
    stretches.note("garbage collector", began_at_s)
