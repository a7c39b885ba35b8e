"""Rates and totals, sampled from counters that only grow.

Law: a sample is taken every few seconds, in short steps, and serves everybody until the next. Nobody waits for one
while samples are taken every second. No total ever falls: whatever goes while we look is counted once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from stompbroker.clock import NANOSECONDS
from stompbroker.control.history import History
from stompbroker.delivery import COUNTER_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stompbroker.clock import Clock
    from stompbroker.control.looking import Look, Looking
    from stompbroker.counting import Totals
    from stompbroker.delivery import Consumer, Registry, Subscription, Topic
    from stompbroker.ids import ConnectionId
    from stompbroker.sessions import Session

#: How old counts may be; and how old while the next sample is being taken, or will be within a second.
RECENT_NS: Final = NANOSECONDS
EXPECTED_NS: Final = 2 * NANOSECONDS
#: Members of groups and consumers of queues with a rate of their own, over the whole broker. A look at one takes about
#: a microsecond and keeps 200 bytes.
MAX_MEMBERS: Final = 10_000


class Flow(NamedTuple):
    """Two counters of a topic, a subscription or a member at one moment, and their growth per second before it."""

    counts: tuple[int, int]
    rates: tuple[float, float]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_ns: int
    #: Sums over everything there is and was.
    totals: Mapping[str, int]
    #: Growth of the totals per second, since the sample before.
    rates: Mapping[str, float]
    #: Sums over what there is now.
    in_flight: int = 0
    waiting: int = 0
    backlog: int = 0
    #: How many of the topics are queues.
    queues: int = 0
    #: Messages and bytes published to a topic; messages delivered and acknowledged of a subscription.
    flows: Mapping[Topic | Subscription, Flow] = field(default_factory=dict)
    #: Messages delivered to a member of a group; the second counter is always 0.
    members: Mapping[Consumer, Flow] = field(default_factory=dict)

    def rates_of(self, one: Topic | Subscription) -> tuple[float, float]:
        flow = self.flows.get(one)
        return (0.0, 0.0) if flow is None else flow.rates

    def rate_of_member(self, member: Consumer) -> float | None:
        """Messages per second; None if it has just come, or there are too many members."""
        flow = self.members.get(member)
        return None if flow is None else flow.rates[0]


@final
@dataclass(slots=True, eq=False)
class Sampler:
    _registry: Registry
    _sessions: Mapping[ConnectionId, Session]
    _totals: Totals
    _clock: Clock
    _looking: Looking
    latest: Sample = field(init=False)
    history: History = field(default_factory=History)
    #: Counted since for somebody who asked.
    _counted: Sample = field(init=False)
    #: One look at a time: an earlier one never replaces a later one.
    _turn: trio.Lock = field(default_factory=trio.Lock)
    #: How many watch live; while somebody does, samples are taken more often.
    watchers: int = 0
    #: Whether anybody has asked since the last sample: whoever keeps asking counts as a watcher.
    is_asked: bool = False
    #: How late the event loop last came to something that was due.
    lag_s: float = 0.0

    def __post_init__(self) -> None:
        self.latest = self._counted = Sample(at_ns=self._clock.now_ns(), totals={}, rates={})

    async def take(self) -> Sample:
        async with self._turn:
            self.latest = await self._look(self.latest, self._looking.by_and_by())
            await self.history.note(self.latest, self._looking.by_and_by())
            return self.latest

    async def recent(self, *, is_exact: bool = False) -> Sample:
        """Counts of a moment ago, or of now if they must be exact. The rates are those of the latest sample: over a
        moment there are none."""
        is_expected = self.is_asked or self.watchers > 0 or self._turn.locked()
        self.is_asked = True
        if not is_exact and self._has_newer_than(EXPECTED_NS if is_expected else RECENT_NS):
            return self._newest
        async with self._turn:
            if not self._newest.totals:
                self.latest = await self._look(self.latest, self._looking.at_once())
            elif is_exact or not self._has_newer_than(RECENT_NS):
                fresh = await self._look(self.latest, self._looking.at_once())
                self._counted = replace(fresh, rates=self.latest.rates, flows={}, members={})
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
        # Read together with the lists: whatever goes while we go through them adds to these, and is in the lists too.
        totals = self._totals_of_the_gone()
        topics, subscriptions = list(self._registry.topics.values()), list(self._registry.subscriptions)
        sums = [0] * len(COUNTER_NAMES)
        flows: dict[Topic | Subscription, Flow] = {}
        members: dict[Consumer, Flow] = {}
        in_flight = waiting = backlog = queues = 0
        async with look:
            for topic in topics:
                totals["published"] += topic.published
                totals["published_bytes"] += topic.published_bytes
                queues += topic.is_queue
                flows[topic] = _flow((topic.published, topic.published_bytes), before.flows.get(topic), elapsed_s)
                await look.pause_if_over()
            for subscription in subscriptions:
                counters = subscription.counters
                counted = counters.values()
                if any(counted):
                    sums = list(map(add, sums, counted))
                in_flight += subscription.in_flight
                waiting += subscription.waiting
                backlog += subscription.backlog
                counts = counters.delivered, counters.acked
                flows[subscription] = _flow(counts, before.flows.get(subscription), elapsed_s)
                await look.pause_if_over()
                for member in _members_of(subscription, MAX_MEMBERS - len(members)):
                    members[member] = _flow((member.delivered, 0), before.members.get(member), elapsed_s)
                    await look.pause_if_over()
        for name, count in zip(COUNTER_NAMES, sums, strict=True):
            totals[name] += count
        return Sample(
            at_ns=now_ns,
            totals=totals,
            rates={name: (count - before.totals.get(name, count)) / elapsed_s for name, count in totals.items()},
            in_flight=in_flight,
            waiting=waiting,
            backlog=backlog,
            queues=queues,
            flows=flows,
            members=members,
        )

    def _totals_of_the_gone(self) -> dict[str, int]:
        """Of topics and subscriptions that are gone, and of all connections, past and present."""
        gone, sessions = self._totals, self._sessions.values()
        return {
            "published": gone.published,
            "published_bytes": gone.published_bytes,
            **{name: gone.counters[name] for name in COUNTER_NAMES},
            "bytes_in": gone.bytes_in + sum(session.bytes_in for session in sessions),
            "bytes_out": gone.bytes_out + sum(session.outbox.sent_bytes for session in sessions),
            "connections_opened": gone.connections_opened,
            "outcomes_told": gone.outcomes_told,
            "outcomes_lost": gone.outcomes_lost,
        }


def _members_of(subscription: Subscription, limit: int) -> Iterable[Consumer]:
    """All of a group or a queue, or none if there are too many: a part would be another one each time, since members
    change places. A list, since they come and go between two steps."""
    has_rates = subscription.is_shared and len(subscription.consumers) <= limit
    return list(subscription.consumers) if has_rates else ()


def _flow(counts: tuple[int, int], before: Flow | None, elapsed_s: float) -> Flow:
    if before is None:
        return Flow(counts, (0.0, 0.0))
    if counts == before.counts and not any(before.rates):
        return before  # most are idle
    (first, second), (first_before, second_before) = counts, before.counts
    return Flow(counts, ((first - first_before) / elapsed_s, (second - second_before) / elapsed_s))
