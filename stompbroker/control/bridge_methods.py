"""Lists the bridges of a broker: each direction, how it goes, and what it has still to send; and what is kept for those
that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from stompbroker.access import BRIDGE_PREFIX
from stompbroker.bridges import Direction
from stompbroker.clock import NANOSECONDS, iso_time
from stompbroker.control.records import Record, Shown, alike
from stompbroker.control.request import Method
from stompbroker.control.subscription_methods import oldest_unsettled_ns
from stompbroker.delivery import DestinationKind, Identity, IdentityKind, parse_pattern, queue_identity

if TYPE_CHECKING:
    from stompbroker.bridges import Crossing
    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import Subscription

_NS_PER_MS: Final = 1_000_000
_STATE: Final = Literal["connecting", "connected", "retrying"]
_SHORT: Final[dict[str, Shown[Crossing]]] = {
    "name": Shown(str, lambda _, crossing: crossing.plan.name),
    "direction": Shown(Literal["receive", "send"], lambda _, crossing: crossing.direction.value),
    "state": Shown(_STATE, lambda _, crossing: crossing.state.value),
    "since": Shown(str, lambda _, crossing: iso_time(crossing.since_ns)),
    "problem": Shown(str | None, says="Why it is, or was last, disconnected, or what is wrong although it is not."),
    "backlog": Shown(
        int | None,
        lambda broker, crossing: _backlog(broker, crossing),
        "Messages that the other broker has not confirmed. null: those wait there, which this broker cannot see.",
    ),
}
#: As the overview has it.
SHORT_BRIDGE: Final[Record[Crossing]] = Record("ShortBridge", _SHORT)
_BRIDGE: Final[Record[Crossing]] = Record(
    "Bridge",
    {
        **_SHORT,
        "lag_s": Shown(float | None, says="Age of the oldest of them, or of what is on its way. null: not known."),
        "kind": Shown(
            Literal["stompbroker", "rabbitmq", "activemq"],
            lambda _, crossing: crossing.plan.kind.value,
            "What the other broker is.",
        ),
        "guarantee": Shown(
            Literal["once", "at-least-once"],
            lambda _, crossing: "once" if crossing.plan.is_ours else "at-least-once",
            "Between two stompbrokers a repeated message is found; from or to another broker it may arrive twice.",
        ),
        "urls": Shown([str], lambda _, crossing: list(crossing.plan.urls)),
        "patterns": Shown([str], lambda _, crossing: list(crossing.plan.patterns(crossing.direction))),
        "connections": Shown(int, says="Made since the start."),
        "failures": Shown(int, says="Attempts in a row that failed."),
        "received": Shown(int, says="Messages taken from where they come from, repeated ones among them."),
        "sent": Shown(int, says="Confirmed as new where they go."),
        "duplicates": Shown(int, says="Confirmed, but they were there: by another way, or before a failure."),
        "circles": Shown(int, says="Dropped, since they had been there before they came here."),
        "refused": Shown(int, says="Refused where they go; they are tried again."),
        **alike(int, "in_flight"),
    },
)


_LEFT: Final[Record[Subscription]] = Record(
    "LeftByBridge",
    {
        "subscription": Shown(str, lambda _, one: one.key, "Its key, by which it can be deleted."),
        "backlog": Shown(int, lambda _, one: one.backlog + one.in_flight, "Messages that it keeps, for ever."),
    },
)


async def _list(broker: BrokerParts) -> dict[str, Any]:
    """Bridges to other brokers, each direction by itself."""
    kept = {crossing: _subscriptions(broker, crossing) for crossing in broker.crossings}
    oldest_ns = await oldest_unsettled_ns(broker, [one for found in kept.values() for one in found])
    now_ns = broker.clock.now_ns()

    def lag_s(crossing: Crossing) -> float | None:
        times = [oldest_ns[one] for one in kept[crossing] if one in oldest_ns]
        if not times and crossing.oldest_published_ms is not None:
            times = [crossing.oldest_published_ms * _NS_PER_MS]
        if times:
            return round(max(0, now_ns - min(times)) / NANOSECONDS, 3)
        return 0.0 if kept[crossing] and not _backlog(broker, crossing) else None

    described = [_BRIDGE.describe(broker, crossing, lag_s=lag_s(crossing)) for crossing in broker.crossings]
    left = [_LEFT.describe(broker, one) for one in left_by_bridges(broker)]
    return {"total": len(described), "bridges": described, "left": left}


def left_by_bridges(broker: BrokerParts) -> list[Subscription]:
    """What is kept here for bridges, or for patterns of theirs, that the settings have no more."""
    used = {one for crossing in broker.crossings for one in _subscriptions(broker, crossing)}
    owned = (one for identity, one in broker.registry.durable.items() if identity.owner.startswith(BRIDGE_PREFIX))
    return [one for one in owned if one not in used]


def _backlog(broker: BrokerParts, crossing: Crossing) -> int | None:
    if crossing.direction is Direction.RECEIVE:
        return None
    return sum(one.backlog + one.in_flight for one in _subscriptions(broker, crossing))


def _subscriptions(broker: BrokerParts, crossing: Crossing) -> list[Subscription]:
    """What is kept here to be sent."""
    plan = crossing.plan
    if crossing.direction is Direction.RECEIVE:
        return []
    identities = []
    for text in plan.send:
        pattern = parse_pattern(text)
        if pattern.kind is DestinationKind.QUEUE:
            identities.append(queue_identity(pattern))
        else:
            name = plan.durable_name(text, is_ours=True)
            identities.append(Identity(BRIDGE_PREFIX + plan.name, IdentityKind.NAMED, plan.client_id, name))
    return [broker.registry.durable[each] for each in identities if each in broker.registry.durable]


_BRIDGES: Final[Record[Any]] = Record(
    "Bridges",
    {
        "total": Shown(int),
        "bridges": Shown([_BRIDGE]),
        "left": Shown([_LEFT], says="Kept for bridges or patterns that the settings have no more; delete them."),
    },
)
METHODS: Final = {"bridges": Method(_list, _BRIDGES)}
