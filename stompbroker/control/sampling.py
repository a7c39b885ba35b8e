"""What flows, measured from time to time.

Law: the counters on the hot path only grow; here they are looked at every few seconds, in short steps, and the
difference is a rate. One sample serves everybody who asks until the next, and what is counted in between for whoever
wants to know serves everybody for a while. While samples are taken every second nobody waits for one. No total ever
falls: what goes while we look is counted once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import add, attrgetter
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.clock import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.clock import Clock
    from stompbroker.control.looking import Look, Looking
    from stompbroker.delivery import Registry, Subscription, Topic
    from stompbroker.ids import ConnectionId
    from stompbroker.sessions import Session
    from stompbroker.totals import Totals

__all__ = ["COUNTERS", "Flow", "Sample", "Sampler", "counters_of"]

#: How old counts may be for whoever asks; and while the next sample is taken, or soon will be.
RECENT_NS: Final = NANOSECONDS
EXPECTED_NS: Final = 2 * NANOSECONDS
#: Counters of a subscription, in the order in which they are told.
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
counters_of: Final = attrgetter(*COUNTERS)


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
    __slots__ = (
        "_clock",
        "_counted",
        "_looking",
        "_registry",
        "_sessions",
        "_totals",
        "_turn",
        "is_asked",
        "lag_s",
        "latest",
        "watchers",
    )

    def __init__(
        self,
        registry: Registry,
        sessions: Mapping[ConnectionId, Session],
        totals: Totals,
        clock: Clock,
        looking: Looking,
    ) -> None:
        self._looking = looking
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
        #: Whether anybody has asked since somebody last looked here: who asks often watches, too.
        self.is_asked = False
        #: How late the event loop last came to something that was due.
        self.lag_s = 0.0

    async def take(self) -> Sample:
        """A new one."""
        async with self._turn:
            self.latest = await self._look(self.latest, self._looking.by_and_by())
            return self.latest

    async def recent(self, *, is_exact: bool = False) -> Sample:
        """What has been counted a moment ago, or up to now where that is asked for; its rates are those of the latest
        sample, since over a moment there are none."""
        # One will be taken within a second, or is being taken.
        is_expected = self.is_asked or self.watchers > 0 or self._turn.locked()
        self.is_asked = True
        if not is_exact and self._has_newer_than(EXPECTED_NS if is_expected else RECENT_NS):
            return self._newest
        async with self._turn:
            if not self._newest.totals:
                self.latest = await self._look(self.latest, self._looking.at_once())
            elif is_exact or not self._has_newer_than(RECENT_NS):
                fresh = await self._look(self.latest, self._looking.at_once())
                self._counted = replace(fresh, rates=self.latest.rates, topics={}, subscriptions={})
                return self._counted
            return self._newest

    @property
    def _newest(self) -> Sample:
        return max(self.latest, self._counted, key=lambda sample: sample.at_ns)

    def _has_newer_than(self, age_ns: int) -> bool:
        return bool(self._newest.totals) and self._clock.now_ns() - self._newest.at_ns < age_ns

    async def _look(self, before: Sample, look: Look) -> Sample:
        now_ns = self._clock.now_ns()
        elapsed_s = max((now_ns - before.at_ns) / NANOSECONDS, 1e-9)
        # Read together with the lists: what goes while we go through them adds to these, and is in the lists too.
        totals = self._sums_of_the_gone()
        all_topics, all_subscriptions = list(self._registry.topics.values()), list(self._registry.subscriptions)
        sums = [0] * len(COUNTERS)
        topics: dict[Topic, Flow] = {}
        subscriptions: dict[Subscription, Flow] = {}
        published = published_bytes = in_flight = waiting = backlog = 0
        async with look:
            for topic in all_topics:
                published += topic.published
                published_bytes += topic.published_bytes
                topics[topic] = _flow((topic.published, topic.published_bytes), before.topics.get(topic), elapsed_s)
                if look.is_over:
                    await look.pause()
            for subscription in all_subscriptions:
                counters = subscription.counters
                counted = counters_of(counters)
                if any(counted):
                    sums = list(map(add, sums, counted))
                in_flight += 0 if subscription.consumer is None else subscription.consumer.in_flight
                waiting += subscription.waiting
                backlog += subscription.backlog
                counts = counters.delivered, counters.acked
                subscriptions[subscription] = _flow(counts, before.subscriptions.get(subscription), elapsed_s)
                if look.is_over:
                    await look.pause()
        totals["published"] += published
        totals["published_bytes"] += published_bytes
        for name, count in zip(COUNTERS, sums, strict=True):
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


def _flow(counts: tuple[int, ...], before: Flow | None, elapsed_s: float) -> Flow:
    if before is None:
        return Flow(counts, (0.0,) * len(counts))
    if counts == before.counts and not any(before.rates):
        return before  # most of many are idle
    return Flow(counts, tuple((now - then) / elapsed_s for now, then in zip(counts, before.counts, strict=True)))
