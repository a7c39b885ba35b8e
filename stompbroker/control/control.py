"""Everything one can ask of, or do to, a running broker.

Law: one interface, for the command line through the control socket and for HTTP. Methods take and return plain JSON
values. An answer is bounded and made in short steps; each entry is consistent. A change is durable when it returns.
"""

from __future__ import annotations

from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any, Final, Literal, final

from stompbroker import __version__
from stompbroker.access import Right
from stompbroker.changes import JournalStatistics, StoreState
from stompbroker.clock import NANOSECONDS, iso_time, iso_time_if_any
from stompbroker.control import (
    bridge_methods,
    connection_methods,
    dead_letters,
    explaining,
    last_values,
    subscription_methods,
    topic_methods,
)
from stompbroker.control.caller import OPERATOR
from stompbroker.control.history import BUSIEST, POINTS, STEP_S, kind_of, names_of
from stompbroker.control.kept import dead_letter_count
from stompbroker.control.listing import described
from stompbroker.control.parts import BrokerParts
from stompbroker.control.records import Record, Shown, alike, fields_of
from stompbroker.control.request import ControlError, Method, Param, Unavailable
from stompbroker.ledger import RoundFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.control.caller import Caller
    from stompbroker.control.history import Point
    from stompbroker.control.sampling import Sample
    from stompbroker.counting import LoopGauge
    from stompbroker.memory_budget import MemoryBudget


@final
class Control(BrokerParts):
    async def call(self, method: str, params: Mapping[str, Any], caller: Caller = OPERATOR) -> Any:
        """Call a method by its name. Raises ControlError if there is none, it does not take these parameters, or the
        caller may not do that."""
        known = METHODS.get(method)
        if known is None:
            raise ControlError(f"there is no method {method!r}; this broker knows: {', '.join(METHODS)}")
        known.check(params)
        if known.keeps_to_caller:
            return await known.function(self, caller, **params)
        caller.check_whole()
        return await known.function(self, **params)

    def why_not_ready(self, *, tells_all: bool) -> str | None:
        """Why no messages should be sent here now; None if they may. All of it may name a topic that is damaged."""
        if self.is_stopping:
            return "the broker is stopping"
        store = self.journal.statistics()
        if store.state is StoreState.OK:
            return None
        return f"the store is {store.state.value}" + (f": {store.reason}" if tells_all else "")

    def warnings(self) -> list[str]:
        """What an operator should look at although messages flow. Anybody may see it, so it does not name the lake."""
        since_ns = None if self.ledger is None else self.ledger.rounds.statistics().failing_since_ns
        if since_ns is None:
            return []
        return [f"the lake cannot be written since {iso_time(since_ns)}; the ledger waits in the store"]


_BROKER: Final[Record[Sample]] = Record(
    "Broker",
    {
        "version": Shown(str, lambda *_: __version__),
        "state": Shown(Literal["running", "stopping"], lambda broker, _: ("running", "stopping")[broker.is_stopping]),
        "started_at": Shown(str, lambda broker, _: iso_time(broker.started_at_ns)),
        "uptime_s": Shown(
            float, lambda broker, _: round((broker.clock.now_ns() - broker.started_at_ns) / NANOSECONDS, 3)
        ),
    },
)
_NOW: Final[Record[Sample]] = Record(
    "Now",
    {
        "connections": Shown(int, lambda broker, _: len(broker.sessions)),
        "topics": Shown(int, lambda broker, _: len(broker.registry.topics), "Queues among them."),
        "queues": Shown(int),
        "subscriptions": Shown(int, lambda broker, _: len(broker.registry.subscriptions)),
        "durable_subscriptions": Shown(int, lambda broker, _: len(broker.registry.durable)),
        **alike(int, "in_flight", "waiting", "backlog"),
        "blocked_topics": Shown(int, lambda broker, _: len(broker.registry.blocked)),
        "dead_letters": Shown(
            int, lambda broker, _: sum(map(dead_letter_count, broker.registry.topics_of_dead_letters))
        ),
        "last_values": Shown(int, lambda broker, _: len(broker.registry.last_values)),
    },
)
_MEMORY: Final[Record[MemoryBudget]] = Record(
    "Memory",
    {
        **alike(int, "used_bytes", "peak_bytes", "limit_bytes"),
        "last_values_bytes": Shown(int, lambda broker, _: broker.registry.last_values.size_bytes, "Part of the used."),
        "last_values_limit_bytes": Shown(int, lambda broker, _: broker.registry.last_values.max_bytes),
    },
)
_EVENT_LOOP: Final[Record[LoopGauge]] = Record(
    "EventLoop",
    {
        "lag_ms": Shown(float, lambda broker, _: round(broker.sampler.lag_s * 1000, 3)),
        "longest_stretch_ms": Shown(float, lambda _, gauge: round(gauge.longest_s * 1000, 3)),
        "longest_stretch_actor": Shown(str, lambda _, gauge: gauge.longest_actor),
    },
)
_STORE: Final[Record[JournalStatistics]] = Record(
    "Store",
    {
        "since": Shown(str | None, lambda _, store: iso_time_if_any(store.since_ns)),
        **{name: shown for name, shown in fields_of(JournalStatistics).items() if name != "since_ns"},
        # A compiled class says of a union only that it is a type.
        "reason": Shown(str | None),
        "stored_bytes": Shown(int | None),
        "engine": Shown(Literal["memory", "sqlite", "postgresql"]),
        "damages": Shown(int, says="Damages that were met since the start."),
        "check": Shown(
            Literal["running", "done"] | None,
            says="Whether the store is checked, since its last broker did not close it.",
        ),
    },
)
_LEDGER: Final[Record[Any]] = Record(
    "Ledger",
    {
        "lake": Shown(str),
        "state": Shown(Literal["ok", "failing"], says="Whether the last export worked."),
        **alike(str | None, "reason", "since"),
        "waiting_records": Shown(int, says="In the store, and not yet in the lake."),
        "waiting_bytes": Shown(int),
        "waiting_since": Shown(str | None, says="When the oldest of these was made."),
        "last_export_at": Shown(str | None, says="The last one that worked, since the start."),
        "complete_until": Shown(str | None, says="Up to when everything was in the lake then."),
    },
)
_OVERVIEW: Final[Record[Sample]] = Record(
    "Overview",
    {
        "broker": Shown(_BROKER, _BROKER.describe),
        "listening": Shown([str], lambda broker, _: list(broker.listening), "Where clients can connect, as URLs."),
        "sampled_at": Shown(str, lambda _, sample: iso_time(sample.at_ns)),
        "totals": Shown(dict[str, int], lambda _, sample: dict(sample.totals)),
        "rates": Shown(
            dict[str, float], lambda _, sample: {name: round(rate, 1) for name, rate in sample.rates.items()}
        ),
        "now": Shown(_NOW, _NOW.describe),
        "memory": Shown(_MEMORY, lambda broker, _: _MEMORY.describe(broker, broker.registry.budget)),
        "event_loop": Shown(_EVENT_LOOP, lambda broker, _: _EVENT_LOOP.describe(broker, broker.stretches)),
        "store": Shown(_STORE, lambda broker, _: _STORE.describe(broker, broker.journal.statistics())),
        "ledger": Shown((_LEDGER, None), lambda broker, _: _describe_ledger(broker), "null: this broker keeps none."),
        "bridges": Shown(
            [bridge_methods.SHORT_BRIDGE],
            lambda broker, _: [bridge_methods.SHORT_BRIDGE.describe(broker, each) for each in broker.crossings],
            "To other brokers; each direction by itself.",
        ),
    },
)


_POINT: Final[Record[Point]] = Record(
    "Point",
    {
        "at": Shown(str, lambda _, point: iso_time(point[0])),
        "values": Shown(
            list[float | None],
            lambda _, point: [None if isnan(value) else round(value, 1) for value in point[1]],
            "In the order of names. null: not known, as between two points around a time without samples.",
        ),
    },
)
_HISTORY: Final[Record[Any]] = Record(
    "History",
    {
        "of": Shown(Literal["broker", "topic", "subscription"]),
        "name": Shown(str | None),
        "is_kept": Shown(bool, says="false: it is not among the busiest, and has no points."),
        "busiest": Shown(int, says="How many topics, queues and subscriptions have a history: so many of each."),
        "step_s": Shown(int, says="Time between two points."),
        "names": Shown([str], says="Growth per second since the point before; backlog, in_flight, waiting: so many."),
        "points": Shown([_POINT], says="The oldest first."),
    },
)


_ME: Final[Record[Caller]] = Record(
    "Me",
    {
        "user": Shown(str | None, lambda _, caller: caller.grant.user or None, "null: there is no login."),
        "roles": Shown([str], lambda _, caller: sorted(caller.grant.roles)),
        "is_operator": Shown(bool, says="Whether it may change anything."),
        "is_restricted": Shown(bool, says="Whether it has patterns, and sees only what is within them."),
        **{
            right.value: Shown([str], partial(lambda right, _, caller: _patterns(caller, right), right))
            for right in (Right.READ, Right.MANAGE)
        },
    },
)


def _patterns(caller: Caller, right: Right) -> list[str]:
    return [str(pattern) for pattern in caller.grant.permissions.patterns.get(right, ())]


async def _me(broker: BrokerParts, caller: Caller) -> dict[str, Any]:
    """Who asks, and what that user may do."""
    return _ME.describe(broker, caller)


async def _overview(broker: BrokerParts, caller: Caller, exact: bool = False) -> dict[str, Any]:
    """What flows, and how the broker is.

    A restricted caller is told numbers, and no texts, which might name what it does not see.
    """
    sample = await broker.sampler.recent(is_exact=exact)
    if not caller.is_restricted:
        return _OVERVIEW.describe(broker, sample)
    store = _STORE.describe(broker, broker.journal.statistics()) | {"reason": None}
    return _OVERVIEW.describe(broker, sample, listening=[], store=store, ledger=None, bridges=[])


async def _history(
    broker: BrokerParts, caller: Caller, of: str = "broker", name: str | None = None, seconds: int = POINTS * STEP_S
) -> dict[str, Any]:
    """Up to an hour of the broker, or of one of the busiest topics, queues or subscriptions."""
    if (of == "broker") != (name is None):
        raise ControlError("name says which topic or subscription; of=broker has none")
    find: Any = {"topic": topic_methods.find, "subscription": subscription_methods.find}.get(of)
    thing = None if name is None else find(broker, caller, name)
    points = broker.sampler.history.points(thing, broker.clock.now_ns() - seconds * NANOSECONDS)
    return {
        "of": of,
        "name": name,
        "is_kept": points is not None,
        "busiest": BUSIEST,
        "step_s": STEP_S,
        "names": list(names_of(kind_of(thing))),
        "points": await described(partial(_POINT.describe, broker), points or (), broker.looking),
    }


def _describe_ledger(broker: BrokerParts) -> dict[str, Any] | None:
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
    complete_until = iso_time(result.complete_until_ns)
    return _EXPORT.describe(
        broker, result, lake=broker.ledger.lake, files=list(result.files), complete_until=complete_until
    )


async def _run_collector(broker: BrokerParts) -> dict[str, Any]:
    """Have the garbage collector look now."""
    broker.registry.collection_wanted.wake()
    return {"started": True}


_EXPORT: Final[Record[Any]] = Record(
    "LedgerExport",
    {"lake": Shown(str), "files": Shown([str]), "records": Shown(int), "complete_until": Shown(str)},
)
_CHANGING: Final = (
    *("pause_subscription", "resume_subscription", "move_subscription", "give_subscription", "remove_subscription"),
    *("redrive_dead_letters", "purge_dead_letters", "remove_last_value", "purge_last_values"),
    *("close_connection", "run_collector", "export_ledger"),
)
_KEEPING_TO_CALLER: Final = {
    "me": Method(_me, _ME),
    "overview": Method(_overview, _OVERVIEW, {"exact": Param(says="Count now, not a moment ago.", kind=bool)}),
    "history": Method(
        _history,
        _HISTORY,
        {
            "of": Param(says="Of what; broker if not given.", choices=("broker", "topic", "subscription")),
            "name": Param(says="A topic such as orders.paid, a queue such as /queue/jobs, or a subscription's id."),
            "seconds": Param(says="How far back.", kind=int, low=1, high=POINTS * STEP_S),
        },
    ),
    **topic_methods.METHODS,
    **subscription_methods.METHODS,
    **dead_letters.METHODS,
    **last_values.METHODS,
    **explaining.METHODS,
}
_WHOLE_BROKER: Final = {
    "run_collector": Method(_run_collector, Record("CollectorRun", {"started": Shown(bool)})),
    "export_ledger": Method(_export_ledger, _EXPORT),
    **connection_methods.METHODS,
    **bridge_methods.METHODS,
}
METHODS: Final[Mapping[str, Method]] = {
    name: method._replace(keeps_to_caller=name in _KEEPING_TO_CALLER, changes=name in _CHANGING)
    for name, method in {**_KEEPING_TO_CALLER, **_WHOLE_BROKER}.items()
}
