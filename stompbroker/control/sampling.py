"""What flows, measured from time to time.

Law: the counters on the hot path only grow; here they are looked at every few seconds, in short steps, and the
difference is a rate. One sample serves everybody who asks until the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.clock import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stompbroker.clock import Clock
    from stompbroker.ids import ConnectionId
    from stompbroker.sessions import Session
    from stompbroker.topics import Registry, Subscription, Topic
    from stompbroker.totals import Totals

__all__ = ["Flow", "Sample", "Sampler"]

#: How long counters are read between two checkpoints.
STEP_S: Final = 0.001
#: Counters of subscriptions that are added up.
COUNTERS: Final = (
    "delivered",
    "redelivered",
    "acked",
    "nacked",
    "overdue",
    "dead",
    "discarded",
    "expired",
    "dropped",
    "late",
)


@final
@dataclass(frozen=True, slots=True)
class Flow:
    """A topic's or subscription's counters at one moment, and what they grew by in a second before it."""

    counts: tuple[int, ...]
    rates: tuple[float, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_ns: int
    #: Sums over everything there is and was.
    totals: Mapping[str, int]
    #: What the totals grew by in a second, since the sample before.
    rates: Mapping[str, float]
    #: Sums over what there is now.
    in_flight: int = 0
    waiting: int = 0
    backlog: int = 0
    #: Published; and delivered, acked.
    topics: Mapping[Topic, Flow] = field(default_factory=dict)
    subscriptions: Mapping[Subscription, Flow] = field(default_factory=dict)


@final
class Sampler:
    __slots__ = ("_clock", "_registry", "_sessions", "_totals", "lag_s", "latest", "watchers")

    def __init__(
        self, registry: Registry, sessions: Mapping[ConnectionId, Session], totals: Totals, clock: Clock
    ) -> None:
        self._registry = registry
        self._sessions = sessions
        self._totals = totals
        self._clock = clock
        self.latest = Sample(at_ns=clock.now_ns(), totals={}, rates={})
        #: How many look at it live: then it is taken more often.
        self.watchers = 0
        #: How late the event loop last came to something that was due.
        self.lag_s = 0.0

    async def take(self) -> Sample:
        """A new one."""
        before, now_ns = self.latest, self._clock.now_ns()
        elapsed_s = max((now_ns - before.at_ns) / NANOSECONDS, 1e-9)
        sums = dict.fromkeys(COUNTERS, 0)
        topics: dict[Topic, Flow] = {}
        subscriptions: dict[Subscription, Flow] = {}
        published = published_bytes = in_flight = waiting = backlog = 0
        pause = _Pause()
        for topic in list(self._registry.topics.values()):
            published += topic.published
            published_bytes += topic.published_bytes
            topics[topic] = _flow((topic.published, topic.published_bytes), before.topics.get(topic), elapsed_s)
            if pause.is_due:
                await pause.make()
        for subscription in list(self._registry.subscriptions):
            counters = subscription.counters
            for name in COUNTERS:
                sums[name] += getattr(counters, name)
            in_flight += 0 if subscription.consumer is None else subscription.consumer.in_flight
            waiting += subscription.waiting
            backlog += subscription.backlog
            counts = counters.delivered, counters.acked
            subscriptions[subscription] = _flow(counts, before.subscriptions.get(subscription), elapsed_s)
            if pause.is_due:
                await pause.make()
        totals = {
            "published": self._totals.published + published,
            "published_bytes": self._totals.published_bytes + published_bytes,
            **{name: count + self._totals.counters[name] for name, count in sums.items()},
            "bytes_in": self._totals.bytes_in + _sum(session.bytes_in for session in self._sessions.values()),
            "bytes_out": self._totals.bytes_out
            + _sum(session.outbox.sent_bytes for session in self._sessions.values()),
            "connections_opened": self._totals.connections_opened,
        }
        self.latest = Sample(
            at_ns=now_ns,
            totals=totals,
            rates={name: (count - before.totals.get(name, count)) / elapsed_s for name, count in totals.items()},
            in_flight=in_flight,
            waiting=waiting,
            backlog=backlog,
            topics=topics,
            subscriptions=subscriptions,
        )
        return self.latest


class _Pause:
    """Between short steps others run."""

    __slots__ = ("_began_at_s",)

    def __init__(self) -> None:
        self._began_at_s = perf_counter()

    @property
    def is_due(self) -> bool:
        return perf_counter() - self._began_at_s > STEP_S

    async def make(self) -> None:
        await trio.lowlevel.checkpoint()
        self._began_at_s = perf_counter()


def _flow(counts: tuple[int, ...], before: Flow | None, elapsed_s: float) -> Flow:
    if before is None:
        return Flow(counts, tuple(0.0 for _ in counts))
    return Flow(counts, tuple((now - then) / elapsed_s for now, then in zip(counts, before.counts, strict=True)))


def _sum(numbers: Iterable[int]) -> int:
    return sum(numbers)
