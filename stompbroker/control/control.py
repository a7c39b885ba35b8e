"""Everything one can ask of, or do to, a running broker.

Law: one interface, for the command line through the control socket and for HTTP. Methods take and return plain JSON
values. An answer is bounded and made in short steps; each entry is consistent. A change is durable when it returns.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker import __version__
from stompbroker.changes import StoreState
from stompbroker.clock import NANOSECONDS, iso_time, iso_time_if_any
from stompbroker.control import connection_methods, dead_letters, explaining, subscription_methods, topic_methods
from stompbroker.control.kept import stored_messages
from stompbroker.control.parts import BrokerParts
from stompbroker.control.request import ControlError, Method, Param, Unavailable
from stompbroker.ledger import RoundFailed

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
class Control(BrokerParts):
    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Call a method by its name. Raises ControlError if there is none, or it does not take these parameters."""
        known = METHODS.get(method)
        if known is None:
            raise ControlError(f"there is no method {method!r}; this broker knows: {', '.join(METHODS)}")
        known.check(params)
        return await known.function(self, **params)

    def why_not_ready(self) -> str | None:
        """Why no messages should be sent here now; None if they may."""
        if self.is_stopping:
            return "the broker is stopping"
        store = self.journal.statistics()
        return None if store.state is StoreState.OK else f"the store is {store.state.value}: {store.reason}"

    def warnings(self) -> list[str]:
        """What an operator should look at although messages flow. Anybody may see it, so it does not name the lake."""
        since_ns = None if self.ledger is None else self.ledger.rounds.statistics().failing_since_ns
        if since_ns is None:
            return []
        return [f"the lake cannot be written since {iso_time(since_ns)}; the ledger waits in the store"]


async def _overview(broker: BrokerParts, exact: bool = False) -> dict[str, Any]:
    """What flows, and how the broker is."""
    sample = await broker.sampler.recent(is_exact=exact)
    registry = broker.registry
    store = asdict(broker.journal.statistics())
    return {
        "broker": {
            "version": __version__,
            "state": "stopping" if broker.is_stopping else "running",
            "started_at": iso_time(broker.started_at_ns),
            "uptime_s": round((broker.clock.now_ns() - broker.started_at_ns) / NANOSECONDS, 3),
        },
        "sampled_at": iso_time(sample.at_ns),
        "totals": dict(sample.totals),
        "rates": {name: round(rate, 1) for name, rate in sample.rates.items()},
        "now": {
            "connections": len(broker.sessions),
            "topics": len(registry.topics),
            "subscriptions": len(registry.subscriptions),
            "durable_subscriptions": len(registry.durable),
            "in_flight": sample.in_flight,
            "waiting": sample.waiting,
            "backlog": sample.backlog,
            "blocked_topics": len(registry.blocked),
            "dead_letters": sum(
                stored_messages(topic) or topic.log.message_count for topic in registry.topics_of_dead_letters
            ),
        },
        "memory": {
            "used_bytes": registry.budget.used_bytes,
            "peak_bytes": registry.budget.peak_bytes,
            "limit_bytes": registry.budget.limit_bytes,
        },
        "event_loop": {
            "lag_ms": round(broker.sampler.lag_s * 1000, 3),
            "longest_stretch_ms": round(broker.stretches.longest_s * 1000, 3),
            "longest_stretch_actor": broker.stretches.longest_actor,
        },
        "store": {"since": iso_time_if_any(store.pop("since_ns")), **store, "state": store["state"].value},
        "ledger": _described_ledger(broker),
    }


def _described_ledger(broker: BrokerParts) -> dict[str, Any] | None:
    if broker.ledger is None:
        return None
    rounds, waiting = broker.ledger.rounds.statistics(), broker.ledger.exports.waiting()
    return {
        "lake": broker.ledger.lake,
        "state": "ok" if rounds.failure is None else "failing",
        "reason": rounds.failure,
        "since": iso_time_if_any(rounds.failing_since_ns),
        "waiting_records": waiting.records,
        "waiting_bytes": waiting.payload_bytes,
        "waiting_since": iso_time_if_any(waiting.oldest_ns),
        "last_export_at": iso_time_if_any(rounds.last_done_ns),
        "complete_until": iso_time_if_any(rounds.complete_until_ns),
    }


async def _export_ledger(broker: BrokerParts) -> dict[str, Any]:
    """Bring what is settled by now to the lake; answered when it is there."""
    if broker.ledger is None:
        raise ControlError("this broker keeps no ledger: it has no store, or is set to ledger = false")
    try:
        result = await broker.ledger.rounds.export_now()
    except RoundFailed as failure:
        raise Unavailable(str(failure)) from failure
    return {
        "lake": broker.ledger.lake,
        "files": list(result.files),
        "records": result.records,
        "complete_until": iso_time(result.complete_until_ns),
    }


async def _run_collector(broker: BrokerParts) -> dict[str, Any]:
    """Have the garbage collector look now."""
    broker.registry.collection_wanted.wake()
    return {"started": True}


METHODS: Final[Mapping[str, Method]] = {
    "overview": Method(_overview, {"exact": Param(says="Count now, not a moment ago.", kind=bool)}),
    "run_collector": Method(_run_collector),
    "export_ledger": Method(_export_ledger),
    **topic_methods.METHODS,
    **subscription_methods.METHODS,
    **connection_methods.METHODS,
    **dead_letters.METHODS,
    **explaining.METHODS,
}
