"""Everything one can ask of, or do to, a running broker.

Law: one interface, used by the command line through the control socket, and by HTTP. Methods take and return plain
JSON values; what they return is bounded, and looked at in short steps, between which others run: each entry is
consistent. What changes something returns when the change is durable.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

from stompbroker import __version__
from stompbroker.changes import StoreState
from stompbroker.clock import NANOSECONDS, iso_time
from stompbroker.control.backlog import BacklogLook
from stompbroker.control.connection_methods import ConnectionMethods
from stompbroker.control.dead_letters import DeadLetterMethods
from stompbroker.control.explaining import ExplainingMethods
from stompbroker.control.kept import KeptMessages, stored_messages
from stompbroker.control.ledger_methods import LedgerMethods
from stompbroker.control.looking import Looking
from stompbroker.control.request import ControlError, optional_truth
from stompbroker.control.sampling import Sampler
from stompbroker.control.subscription_methods import SubscriptionMethods
from stompbroker.control.topic_methods import TopicMethods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.changes import MemoryJournal
    from stompbroker.clock import Clock
    from stompbroker.control.ledger_methods import LedgerParts
    from stompbroker.control.request import Methods
    from stompbroker.delivery import Registry
    from stompbroker.ids import ConnectionId
    from stompbroker.journal import StoreJournal
    from stompbroker.loop_gauge import LoopGauge
    from stompbroker.message_ids import MessageIds
    from stompbroker.sessions import Session
    from stompbroker.storage import Store
    from stompbroker.totals import Totals

__all__ = ["BrokerParts", "Control"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """The parts of a broker that numbers are read from."""

    registry: Registry
    sessions: Mapping[ConnectionId, Session]
    journal: StoreJournal | MemoryJournal
    totals: Totals
    stretches: LoopGauge
    clock: Clock
    #: None: this broker keeps none.
    ledger: LedgerParts | None


@final
class Control:
    __slots__ = ("_ledger", "_methods", "_started_at_ns", "backlog", "is_stopping", "looking", "parts", "sampler")

    def __init__(self, parts: BrokerParts, *, message_ids: MessageIds, store: Store | None) -> None:
        registry, sessions, journal, clock = parts.registry, parts.sessions, parts.journal, parts.clock
        #: For whoever turns numbers into metrics: to look at.
        self.parts = parts
        self._started_at_ns = clock.now_ns()
        #: Set by the composition root when the broker has been asked to stop.
        self.is_stopping = False
        self.looking = Looking()
        self.sampler = Sampler(registry, sessions, parts.totals, clock, self.looking)
        self._ledger = LedgerMethods(parts.ledger)
        kept = KeptMessages(registry, store, self.looking)
        #: For whoever writes down how far behind subscriptions are.
        self.backlog = BacklogLook(registry, kept)
        self._methods: Methods = {
            "overview": (self._overview, frozenset({"exact"})),
            "run_collector": (self._run_collector, frozenset()),
            **TopicMethods(registry, kept, self.sampler, self.looking).methods,
            **SubscriptionMethods(registry, journal, kept, self.sampler, clock, looking=self.looking).methods,
            **ConnectionMethods(sessions, self.looking).methods,
            **DeadLetterMethods(registry, journal, kept, message_ids, clock).methods,
            **ExplainingMethods(registry, kept, message_ids, clock).methods,
            **self._ledger.methods,
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

    async def _overview(self, exact: object = False) -> dict[str, Any]:
        """What flows and how the broker is; sums are as of a moment ago, or of now if they are to be exact."""
        sample = await self.sampler.recent(is_exact=bool(optional_truth("exact", exact)))
        parts, registry = self.parts, self.parts.registry
        return {
            "broker": {
                "version": __version__,
                "state": "stopping" if self.is_stopping else "running",
                "started_at": iso_time(self._started_at_ns),
                "uptime_s": round((parts.clock.now_ns() - self._started_at_ns) / NANOSECONDS, 3),
            },
            "sampled_at": iso_time(sample.at_ns),
            "totals": dict(sample.totals),
            "rates": {name: round(rate, 1) for name, rate in sample.rates.items()},
            "now": {
                "connections": len(parts.sessions),
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
                "lag_ms": round(self.sampler.lag_s * 1000, 3),
                "longest_stretch_ms": round(parts.stretches.longest_s * 1000, 3),
                "longest_stretch_actor": parts.stretches.longest_actor,
            },
            "store": self._describe_store(),
            "ledger": self._ledger.describe(),
        }

    def _describe_store(self) -> dict[str, Any]:
        described = asdict(self.parts.journal.statistics())
        since_ns = described.pop("since_ns")
        described["since"] = None if since_ns is None else iso_time(since_ns)
        return described | {"state": described["state"].value}

    def why_not_ready(self) -> str | None:
        """Why no messages should be sent here now; None if they may."""
        if self.is_stopping:
            return "the broker is stopping"
        store = self.parts.journal.statistics()
        return None if store.state is StoreState.OK else f"the store is {store.state.value}: {store.reason}"

    def warnings(self) -> list[str]:
        """What somebody should look at although messages flow. Nothing in it is secret: anybody may ask for health."""
        ledger = self._ledger.warning()
        return [] if ledger is None else [ledger]

    async def _run_collector(self) -> dict[str, Any]:
        """The garbage collector looks now, and not only at its next round."""
        self.parts.registry.collection_wanted.wake()
        return {"started": True}
