"""What flows, measured from time to time.

Law: the counters on the hot path only grow; here they are looked at every few seconds, in short steps, and the
difference is a rate. One sample serves everybody who asks until the next, and what is counted in between for whoever
wants to know serves everybody for a while. No total ever falls: what goes while we look is counted once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.clock import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.clock import Clock
    from stompbroker.ids import ConnectionId
    from stompbroker.sessions import Session
    from stompbroker.topics import Registry, Subscription, Topic
    from stompbroker.totals import Totals

__all__ = ["Flow", "Sample", "Sampler"]

#: How long counters are read between two checkpoints.
STEP_S: Final = 0.001
#: How old counts may be for whoever asks.
RECENT_NS: Final = NANOSECONDS
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
    __slots__ = ("_clock", "_counted", "_registry", "_sessions", "_totals", "_turn", "lag_s", "latest", "watchers")

    def __init__(
        self, registry: Registry, sessions: Mapping[ConnectionId, Session], totals: Totals, clock: Clock
    ) -> None:
        self._registry = registry
        self._sessions = sessions
        self._totals = totals
        self._clock = clock
        self.latest = Sample(at_ns=clock.now_ns(), totals={}, rates={})
        #: What was counted for whoever asked, if that is newer.
        self._counted = self.latest
        #: One looks at a time, so that what was looked at later is never replaced by what was earlier.
        self._turn = trio.Lock()
        #: How many look at it live: then it is taken more often.
        self.watchers = 0
        #: How late the event loop last came to something that was due.
        self.lag_s = 0.0

    async def take(self) -> Sample:
        """A new one."""
        async with self._turn:
            self.latest = await self._look(self.latest)
            return self.latest

    async def recent(self) -> Sample:
        """What has been counted up to now, or a moment ago; its rates are those of the latest sample, since over a
        moment there are none."""
        async with self._turn:
            newest = max(self.latest, self._counted, key=lambda sample: sample.at_ns)
            if not newest.totals:
                self.latest = newest = await self._look(self.latest)
            elif self._clock.now_ns() - newest.at_ns >= RECENT_NS:
                fresh = await self._look(self.latest)
                self._counted = newest = replace(fresh, rates=self.latest.rates, topics={}, subscriptions={})
            return newest

    async def _look(self, before: Sample) -> Sample:
        now_ns = self._clock.now_ns()
        elapsed_s = max((now_ns - before.at_ns) / NANOSECONDS, 1e-9)
        # Read together with the lists: what goes while we go through them adds to these, and is in the lists too.
        totals = self._sums_of_the_gone()
        all_topics, all_subscriptions = list(self._registry.topics.values()), list(self._registry.subscriptions)
        sums = dict.fromkeys(COUNTERS, 0)
        topics: dict[Topic, Flow] = {}
        subscriptions: dict[Subscription, Flow] = {}
        published = published_bytes = in_flight = waiting = backlog = 0
        pause = _Pause()
        for topic in all_topics:
            published += topic.published
            published_bytes += topic.published_bytes
            topics[topic] = _flow((topic.published, topic.published_bytes), before.topics.get(topic), elapsed_s)
            if pause.is_due:
                await pause.make()
        for subscription in all_subscriptions:
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
        totals["published"] += published
        totals["published_bytes"] += published_bytes
        for name, count in sums.items():
            totals[name] += count
        return Sample(
            at_ns=now_ns,
            totals=totals,
            rates={name: (count - before.totals.get(name, count)) / elapsed_s for name, count in totals.items()},
            in_flight=in_flight,
            waiting=waiting,
            backlog=backlog,
            topics=topics,
            subscriptions=subscriptions,
        )

    def _sums_of_the_gone(self) -> dict[str, int]:
        """Of topics and subscriptions that are gone; and of connections, also of those that are there."""
        gone, sessions = self._totals, self._sessions.values()
        return {
            "published": gone.published,
            "published_bytes": gone.published_bytes,
            **{name: gone.counters[name] for name in COUNTERS},
            "bytes_in": gone.bytes_in + sum(session.bytes_in for session in sessions),
            "bytes_out": gone.bytes_out + sum(session.outbox.sent_bytes for session in sessions),
            "connections_opened": gone.connections_opened,
        }


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
