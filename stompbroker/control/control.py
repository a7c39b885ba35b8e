"""Everything one can ask of, or do to, a running broker.

Law: one interface, used by the command line through the control socket, and by HTTP. Methods take and return plain
JSON values; what they return is bounded, and looked at in short steps, between which others run: each entry is
consistent. What changes something returns when the change is durable.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, final

import trio

from stompbroker import __version__
from stompbroker.clock import NANOSECONDS, iso_time
from stompbroker.control.dead_letters import DeadLetterMethods
from stompbroker.control.describing import (
    MAX_ENTRIES,
    describe_connection,
    describe_durable,
    describe_subscription,
    describe_topic,
    described,
)
from stompbroker.control.errors import ControlError
from stompbroker.control.explaining import CollectionMethods
from stompbroker.control.kept import KeptMessages
from stompbroker.control.tracing import TraceMethods
from stompbroker.errors import PeerViolation
from stompbroker.topics import removal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stompbroker.clock import Clock
    from stompbroker.ids import ConnectionId
    from stompbroker.journal import StoreJournal
    from stompbroker.message_ids import MessageIds
    from stompbroker.sessions import Session
    from stompbroker.storage import Store
    from stompbroker.stretches import StretchGauge
    from stompbroker.topics import MemoryJournal, Registry
    from stompbroker.totals import Totals

__all__ = ["Control"]


@final
class Control:
    __slots__ = (
        "_clock",
        "_journal",
        "_methods",
        "_registry",
        "_sessions",
        "_started_at_ns",
        "_stretches",
        "_totals",
        "is_stopping",
    )

    def __init__(
        self,
        registry: Registry,
        sessions: Mapping[ConnectionId, Session],
        journal: StoreJournal | MemoryJournal,
        totals: Totals,
        stretches: StretchGauge,
        clock: Clock,
        *,
        message_ids: MessageIds,
        store: Store | None = None,
    ) -> None:
        self._registry = registry
        self._sessions = sessions
        self._journal = journal
        self._totals = totals
        self._stretches = stretches
        self._clock = clock
        self._started_at_ns = clock.now_ns()
        #: Set by the composition root when the broker has been asked to stop.
        self.is_stopping = False
        kept = KeptMessages(registry, store)
        self._methods: Mapping[str, tuple[Callable[..., Awaitable[Any]], frozenset[str]]] = {
            "statistics": (self.statistics, frozenset()),
            "durable_subscriptions": (self._durable_subscriptions, frozenset({"after", "limit"})),
            "delete_subscription": (self._delete_subscription, frozenset({"key"})),
            **DeadLetterMethods(registry, journal, kept, message_ids, clock).methods,
            **CollectionMethods(registry, kept, clock).methods,
            **TraceMethods(registry, kept, message_ids).methods,
        }

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Call a method by its name. Raises ControlError if there is none, or it does not take these parameters."""
        known = self._methods.get(method)
        if known is None:
            raise ControlError(f"there is no method {method!r}; this broker knows: {', '.join(self._methods)}")
        function, allowed = known
        if unknown := params.keys() - allowed:
            takes = f"takes {', '.join(sorted(allowed))}" if allowed else "takes no parameters"
            raise ControlError(f"{method} {takes}; given: {', '.join(sorted(unknown))}")
        return await function(**params)

    # Durable subscriptions -------------------------------------------------------------------------------------------

    async def _durable_subscriptions(self, after: object = "", limit: object = MAX_ENTRIES) -> dict[str, Any]:
        """Sorted by key; `after` is the last key of the answer before."""
        if not isinstance(after, str) or not isinstance(limit, int) or not 0 < limit <= MAX_ENTRIES:
            raise ControlError(f"after is a key, and limit a number from 1 to {MAX_ENTRIES}")
        by_key = {subscription.key: subscription for subscription in self._registry.durable.values()}
        keys = sorted(by_key)
        first = bisect_right(keys, after)
        shown = await described(describe_durable, [by_key[key] for key in keys[first : first + limit]])
        return {"total": len(keys), "subscriptions": shown}

    async def _delete_subscription(self, key: object = None) -> dict[str, Any]:
        """Whoever is attached to it is disconnected. Returns when that is durable."""
        registry = self._registry
        subscription = next((each for each in registry.durable.values() if each.key == key), None)
        if subscription is None:
            raise ControlError(f"there is no durable subscription {key!r}; list them with: stompbroker subscriptions")
        if subscription.consumer is not None:
            reason = f"{subscription.key!r} was deleted by an operator"
            consumer = subscription.consumer
            consumer.disconnect(PeerViolation("durable subscription deleted", reason))
            registry.leave([consumer], self._clock.now_ns())
        backlog = subscription.backlog
        done = trio.Event()
        refusals: list[str] = []

        def refuse(reason: str) -> None:
            refusals.append(reason)
            done.set()

        self._journal.submit(removal(subscription, registry, self._clock, then=done.set, refused=refuse))
        await done.wait()
        if refusals:
            raise ControlError(f"the store does not let {subscription.key!r} go: {refusals[0]}")
        return {"key": subscription.key, "backlog": backlog}

    # Statistics ------------------------------------------------------------------------------------------------------

    async def statistics(self) -> dict[str, Any]:
        """How the broker is, and what it holds; at most MAX_ENTRIES of each kind are listed."""
        registry, sessions = self._registry, self._sessions
        now_ns = self._clock.now_ns()
        return {
            "broker": {
                "version": __version__,
                "state": "stopping" if self.is_stopping else "running",
                "started_at": iso_time(self._started_at_ns),
                "uptime_s": (now_ns - self._started_at_ns) / NANOSECONDS,
                "memory_used_bytes": registry.budget.used_bytes,
                "memory_peak_bytes": registry.budget.peak_bytes,
                "memory_limit_bytes": registry.budget.limit_bytes,
                "longest_stretch_ms": self._stretches.longest_s * 1000,
                "longest_stretch_actor": self._stretches.longest_actor,
            },
            "store": self.describe_store(),
            "totals": {
                "published": self._totals.published + sum(topic.published for topic in registry.topics.values()),
                "delivered": self._totals.delivered
                + sum(subscription.counters.delivered for subscription in registry.subscriptions),
                "bytes_in": self._totals.bytes_in + sum(session.bytes_in for session in sessions.values()),
                "bytes_out": self._totals.bytes_out + sum(session.outbox.sent_bytes for session in sessions.values()),
                "connections_opened": self._totals.connections_opened,
            },
            "topics_total": len(registry.topics),
            "topics": await described(describe_topic, registry.topics.values()),
            "subscriptions_total": len(registry.subscriptions),
            "subscriptions": await described(describe_subscription, registry.subscriptions),
            "connections_total": len(sessions),
            "connections": await described(describe_connection, sessions.values()),
        }

    def describe_store(self) -> dict[str, Any]:
        statistics = self._journal.statistics()
        return {
            "engine": statistics.engine,
            "state": statistics.state.value,
            "reason": statistics.reason,
            "since": None if statistics.since_ns is None else iso_time(statistics.since_ns),
            "backlog_units": statistics.backlog_units,
            "backlog_bytes": statistics.backlog_bytes,
            "batches": statistics.batches,
            "stored_bytes": statistics.stored_bytes,
        }
