"""Lists, shows, pauses, moves and removes subscriptions.

Law: a change returns when it is durable, or at once where nothing has to be. A client that is attached to a
subscription that is removed or moved is disconnected, and told why.
"""

from __future__ import annotations

from functools import partial
from heapq import nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Literal

from stompbroker.access import NAME_RULE, is_name
from stompbroker.changes import Removed, StoreState
from stompbroker.clock import NANOSECONDS, iso_time, iso_time_if_any
from stompbroker.control.explaining import DELIVERY_STATE, describe_delivery
from stompbroker.control.kept import Place
from stompbroker.control.listing import described, list_params, page_of, seen, take_page
from stompbroker.control.records import DESTINATION_KIND, Record, Shown, alike
from stompbroker.control.request import ControlError, Method, NotFound, Param, Unavailable, make_durable, named_topic
from stompbroker.control.topic_methods import READING
from stompbroker.delivery import AckMode, Counters, withdrawing
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.sessions import StartKind, read_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stompbroker.control.caller import Caller
    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import Consumer, Durability, Reading, Subscription

#: Unsettled messages, and topics, that are listed with one subscription.
MAX_UNSETTLED: Final = 100
MAX_TOPICS: Final = 100
#: Topics, among the first MAX_TOPICS, in which the oldest unsettled message is looked up.
MAX_LOOKED_UP: Final = 3
#: Members of a group that are listed with it, those with the lowest connections.
MAX_MEMBERS: Final = 100
_ACK_MODE: Final = Literal["auto", "client", "client-individual"]


def _of_durable(find: Callable[[Durability], Any]) -> Callable[[BrokerParts, Subscription], Any]:
    return lambda _, one: None if one.durability is None else find(one.durability)


def _of_only(find: Callable[[Consumer], Any]) -> Callable[[BrokerParts, Subscription], Any]:
    """Of the one that is attached. A group has several: its details list them."""
    return lambda _, one: None if one.consumer is None or one.is_shared else find(one.consumer)


def _sharing(one: Subscription) -> str:
    return "exclusive" if one.is_exclusive else "shared" if one.is_shared else "none"


def _oldest_unacknowledged_at(one: Subscription) -> str | None:
    times = (consumer.sent.oldest_sent_ns for consumer in one.consumers)
    return iso_time_if_any(min((time for time in times if time is not None), default=None))


def _ack_mode_of(member: Consumer) -> AckMode:
    """Members of a group may differ."""
    if not member.expects_acks:
        return AckMode.AUTO
    return AckMode.CLIENT if member.is_cumulative else AckMode.INDIVIDUAL


def _member_rate(broker: BrokerParts, member: Consumer) -> float | None:
    sample, subscription = broker.sampler.latest, member.subscription
    rate = sample.rate_of_member(member) if subscription.is_shared else sample.rates_of(subscription)[0]
    return None if rate is None else round(rate, 1)


_SUBSCRIPTION: Final[Record[Subscription]] = Record(
    "Subscription",
    {
        "id": Shown(str, lambda _, one: one.public_id),
        "key": Shown(str, says="How people name it."),
        "name": Shown(str | None, says="The id of its SUBSCRIBE."),
        "client_id": Shown(
            str | None,
            _of_durable(lambda durability: durability.identity.client_id),
            "Whose it is, if it is durable by a name within a client id.",
        ),
        "owner": Shown(
            str | None,
            _of_durable(lambda durability: durability.identity.owner or None),
            "The user whose it is, if it is durable and was made with login.",
        ),
        "durable_name": Shown(str | None, _of_durable(lambda durability: durability.identity.name)),
        "destination": Shown(str),
        "kind": Shown(DESTINATION_KIND, lambda _, one: one.pattern.kind.value, "Of what it subscribes to."),
        "durable": Shown(bool, lambda _, one: one.is_durable),
        "ack": Shown(_ACK_MODE, lambda _, one: one.ack_mode.value),
        "ordered": Shown(bool, lambda _, one: one.is_ordered),
        "paused": Shown(bool, lambda _, one: one.is_paused),
        "connected": Shown(bool, lambda _, one: one.consumer is not None),
        "sharing": Shown(
            Literal["none", "shared", "exclusive"],
            lambda _, one: _sharing(one),
            "shared: a group or queue, each message goes to one member; exclusive: always to the same one.",
        ),
        "browser": Shown(
            bool, lambda _, one: one.browser is not None, "Whether it looks at a queue and takes nothing."
        ),
        "members": Shown(int, lambda _, one: len(one.consumers), "How many are attached."),
        "connection": Shown(
            int | None, _of_only(lambda consumer: consumer.connection_id), "null also for a group: see its consumers."
        ),
        "peer": Shown(str | None, _of_only(lambda consumer: consumer.peer), "As connection."),
        "prefetch": Shown(int | None, _of_only(lambda consumer: consumer.credit.max_messages), "As connection."),
        "created_at": Shown(str | None, _of_durable(lambda durability: iso_time(durability.created_at_ns))),
        "last_seen_at": Shown(str | None, _of_durable(lambda durability: iso_time(durability.last_seen_at_ns))),
        "backlog": Shown(int, says="Messages it has still to get, for the first time or again."),
        "lag_s": Shown(float | None, says="Age of the oldest message it has not settled."),
        "in_flight": Shown(int),
        "waiting": Shown(int, says="Failed, and not yet due again."),
        **{
            name: Shown(int, partial(lambda name, _, one: getattr(one.counters, name), name))
            for name in Counters.__slots__
        },
        "rate": Shown(float, lambda broker, one: round(broker.sampler.latest.rates_of(one)[0], 1)),
        "ack_rate": Shown(float, lambda broker, one: round(broker.sampler.latest.rates_of(one)[1], 1)),
        "oldest_unacknowledged_at": Shown(str | None, lambda _, one: _oldest_unacknowledged_at(one)),
        "drain_s": Shown(float | None, says="How long its backlog takes at the present rate of acknowledgements."),
    },
)
_SORT_FIELDS: Final = _SUBSCRIPTION.sorted_by(
    "key", "backlog", "in_flight", "waiting", "delivered", "rate", "redelivered", "dead"
)
_MEMBER: Final[Record[Consumer]] = Record(
    "Member",
    {
        "connection": Shown(int | None, lambda _, member: member.connection_id),
        "peer": Shown(str | None),
        "id": Shown(str | None, lambda _, member: member.name, "Of its SUBSCRIBE."),
        "member": Shown(str | None, says="Of a group or queue: its name in the ledger and in the report."),
        "ack": Shown(_ACK_MODE, lambda _, member: _ack_mode_of(member).value),
        "prefetch": Shown(int, lambda _, member: member.credit.max_messages),
        "in_flight": Shown(int),
        "delivered": Shown(int, says="Redeliveries among them."),
        "rate": Shown(float | None, _member_rate, "null: it has just come, or there are too many."),
        "active": Shown(
            bool,
            lambda _, member: not member.subscription.is_exclusive or member.subscription.consumer is member,
            "false: it stands by, since another member has everything.",
        ),
    },
)
_SUBSCRIPTION_TOPIC: Final[Record[Reading]] = Record(
    "SubscriptionTopic",
    {
        "topic": Shown(str, lambda _, reading: reading.topic.destination.key),
        "end_offset": Shown(int, lambda _, reading: reading.topic.log.end_offset),
        **READING.fields,
    },
)
_UNSETTLED: Final[Record[Any]] = Record(
    "Unsettled", {"topic": Shown(str), "offset": Shown(int), **DELIVERY_STATE.fields}
)
_DETAILS: Final[Record[Any]] = Record(
    "SubscriptionDetails",
    {
        **_SUBSCRIPTION.fields,
        "consumers": Shown([_MEMBER], says=f"Who is attached; of a group the first {MAX_MEMBERS} members."),
        "topics": Shown([_SUBSCRIPTION_TOPIC]),
        "unsettled": Shown([_UNSETTLED]),
        "can_change": Shown(bool, says="Whether the caller may pause, move, give or delete it."),
    },
)
_MOVED: Final[Record[Any]] = Record("MovedSubscription", {**_SUBSCRIPTION.fields, "offset": Shown(int)})
_REMOVED: Final[Record[Any]] = Record("RemovedSubscription", {**alike(str, "id", "key"), "backlog": Shown(int)})


# Looking --------------------------------------------------------------------------------------------------------------


async def _list(
    broker: BrokerParts,
    caller: Caller,
    durable: bool | None = None,
    shared: bool | None = None,
    topic: str | None = None,
    **wanted: Any,
) -> dict[str, Any]:
    """Subscriptions, durable and transient, groups and queues."""
    read = None if topic is None else broker.registry.topics.get(named_topic(topic).key)
    wanted_ones = (
        subscription
        for subscription in broker.registry.subscriptions
        if durable in (None, subscription.is_durable)
        and shared in (None, subscription.is_shared)
        and (topic is None or read in subscription.readings)
    )
    page = await take_page(
        broker,
        await seen(broker, caller, wanted_ones, lambda subscription: subscription.pattern),
        lambda subscription: [subscription.public_id, subscription.key, subscription.destination],
        _SORT_FIELDS,
        **wanted,
    )
    return page.answer("subscriptions", _shown_to(caller, await _describe_all(broker, page.items)))


async def _show(broker: BrokerParts, caller: Caller, id: str) -> dict[str, Any]:
    """One subscription, with its members and what it has not settled."""
    subscription = find(broker, caller, id)
    readings = list(islice(subscription.readings.values(), MAX_TOPICS))
    (described_one,) = _shown_to(caller, await _describe_all(broker, [subscription]))
    # Not the first of `consumers`, where each goes to the end when it is served.
    members = nsmallest(MAX_MEMBERS, subscription.consumers, key=lambda each: (each.connection_id or 0, each.ordinal))
    return {
        **described_one,
        "consumers": _shown_to(caller, [_MEMBER.describe(broker, member) for member in members]),
        "topics": [_SUBSCRIPTION_TOPIC.describe(broker, reading) for reading in readings],
        "can_change": caller.changes(subscription.pattern),
        "unsettled": [entry for reading in readings for entry in _unsettled(reading)][:MAX_UNSETTLED],
    }


def _shown_to(caller: Caller, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Connections concern the whole broker."""
    hidden = ("connection", "peer", "member") if caller.is_restricted else ()
    return [entry | {name: None for name in hidden if name in entry} for entry in entries]


def find(broker: BrokerParts, caller: Caller, public_id: str) -> Subscription:
    """Raises NotFound."""
    for subscription in broker.registry.subscriptions:
        if subscription.public_id == public_id and caller.sees(subscription.pattern):
            return subscription
    raise NotFound(f"there is no subscription {public_id!r}")


def _find_to_change(broker: BrokerParts, caller: Caller, public_id: str) -> Subscription:
    subscription = find(broker, caller, public_id)
    caller.check_changes(subscription.pattern)
    return subscription


async def _describe(broker: BrokerParts, subscription: Subscription) -> dict[str, Any]:
    (entry,) = await _describe_all(broker, [subscription])
    return entry


async def _describe_all(broker: BrokerParts, subscriptions: list[Subscription]) -> list[dict[str, Any]]:
    oldest_ns = await oldest_unsettled_ns(broker, subscriptions)
    now_ns = broker.clock.now_ns()

    def describe(one: Subscription) -> dict[str, Any]:
        ack_rate = broker.sampler.latest.rates_of(one)[1]
        lag_s = round(max(0, now_ns - oldest_ns[one]) / NANOSECONDS, 3) if one in oldest_ns else None
        drain_s = round(one.backlog / ack_rate, 1) if ack_rate > 0 else None
        return _SUBSCRIPTION.describe(broker, one, lag_s=lag_s, drain_s=drain_s)

    return await described(describe, subscriptions, broker.looking)


async def oldest_unsettled_ns(broker: BrokerParts, subscriptions: Iterable[Subscription]) -> dict[Subscription, int]:
    """When the oldest message was published that each has not settled. What the store cannot tell now is left out:
    whoever asks while it fails wants to see the rest."""
    places: dict[Subscription, list[Place]] = {}
    async with broker.looking.at_once() as look:
        for one in subscriptions:
            first = islice(one.readings.values(), MAX_TOPICS)
            behind = (Place(reading.topic, reading.cursor.ack_floor) for reading in first if not reading.is_idle)
            places[one] = list(islice(behind, MAX_LOOKED_UP))
            await look.pause_if_over()
    known = await broker.kept.first_published_ns(chain(*places.values()), asks_store=not _is_store_failing(broker))
    found = {one: [known[place] for place in behind if place in known] for one, behind in places.items()}
    return {one: min(times) for one, times in found.items() if times}


def _unsettled(reading: Reading) -> list[dict[str, Any]]:
    """The first messages that were sent and are not settled, with the state of each."""
    cursor = reading.cursor
    offsets = (
        Offset(offset)
        for start, stop in cursor.unsettled(cursor.ack_floor, cursor.next_offset)
        for offset in range(start, stop)
    )
    return [
        {"topic": reading.topic.destination.key, "offset": offset, **describe_delivery(reading, offset)}
        for offset in islice(offsets, MAX_UNSETTLED)
    ]


# Changing -------------------------------------------------------------------------------------------------------------


async def _pause(broker: BrokerParts, caller: Caller, id: str) -> dict[str, Any]:
    """Send nothing to it until it is resumed, or the broker started anew."""
    subscription = _find_to_change(broker, caller, id)
    subscription.is_paused = True
    return await _describe(broker, subscription)


async def _resume(broker: BrokerParts, caller: Caller, id: str) -> dict[str, Any]:
    """Send to it again."""
    subscription = _find_to_change(broker, caller, id)
    subscription.resume()
    return await _describe(broker, subscription)


async def _move(broker: BrokerParts, caller: Caller, id: str, to: str) -> dict[str, Any]:
    """Have a durable subscription to one topic read on from another place."""
    subscription = _find_to_change(broker, caller, id)
    if not subscription.is_durable or not subscription.pattern.is_exact:
        raise ControlError("only a durable subscription to one topic can be moved")
    try:
        start = read_start({"from": to})
    except PeerViolation as violation:
        raise ControlError(f"to: {violation.detail}") from None
    assert start is not None
    _check_store(broker)
    if not subscription.has_begun:
        raise ControlError("it is only just being made; try again")
    (reading,) = subscription.readings.values()
    topic, clock = reading.topic, broker.clock
    _detach(broker, subscription, "was moved by an operator")
    match start.kind:
        case StartKind.EARLIEST:
            position = topic.collected_up_to
        case StartKind.LATEST:
            position = topic.log.end_offset
        case StartKind.OFFSET:
            position = Offset(min(start.number, topic.log.end_offset))
        case _:
            position = await broker.kept.first_since(topic, start.since_ns(clock.now_ns()))
    while subscription.pending:
        # Units on their way decide its place; once they are stored, nothing holds it there.
        await broker.journal.wait_idle()
    if subscription.is_closed or subscription.consumer is not None:
        raise ControlError("somebody attached to it, or deleted it, in the meantime; try again")
    # Nothing is below, and more may have been collected while we looked.
    position = max(position, topic.collected_up_to)
    withdrawing.move_to(reading, position, clock.now_ns())
    await broker.journal.wait_idle()
    return {"id": subscription.public_id, "offset": position, **await _describe(broker, subscription)}


async def _give(broker: BrokerParts, caller: Caller, id: str, owner: str) -> dict[str, Any]:
    """Make a durable subscription a user's own; whoever is attached to it is disconnected."""
    subscription = _find_to_change(broker, caller, id)
    if subscription.identity is None or subscription.identity.is_shared_by_all:
        raise ControlError("only a durable subscription has an owner; who may use groups and queues, permissions say")
    if not is_name(owner):
        raise ControlError(f"owner cannot be a user: {NAME_RULE}")
    identity = subscription.identity._replace(owner=owner)
    if not broker.registry.can_adopt(subscription, identity):
        raise ControlError(
            f"{owner!r} has a durable subscription of that name already, or had one that is being deleted: "
            f"{identity.key!r}"
        )
    _check_store(broker)
    _detach(broker, subscription, "was given to another user by an operator")
    broker.registry.adopt(subscription, identity)
    await broker.journal.wait_idle()
    return await _describe(broker, subscription)


async def _remove(broker: BrokerParts, caller: Caller, id: str) -> dict[str, Any]:
    """Delete a subscription; whoever is attached to it is disconnected."""
    subscription = _find_to_change(broker, caller, id)
    # Described first: a transient one gets its id from its consumer, which goes.
    removed = {"id": subscription.public_id, "key": subscription.key, "backlog": subscription.backlog}
    if subscription.is_durable:
        _check_store(broker)
    elif subscription.is_queue:
        raise ControlError("this queue is kept in memory; it goes by itself when it is empty and nobody uses it")
    _detach(broker, subscription, "was deleted by an operator")
    if subscription.is_durable and subscription.identity in broker.registry.durable:
        removed_for_good = Removed(subscription, broker.registry)
        await make_durable(broker.journal, [removed_for_good], what=f"let {subscription.key!r} go")
    return removed


def _is_store_failing(broker: BrokerParts) -> bool:
    return broker.journal.statistics().state is StoreState.FAILING


def _check_store(broker: BrokerParts) -> None:
    """Raises Unavailable while the store fails: the change would wait for it to come back. If the store is only full,
    a deletion makes room."""
    if _is_store_failing(broker):
        raise Unavailable(f"{broker.journal.gate.why}; try again later")


def _detach(broker: BrokerParts, subscription: Subscription, why: str) -> None:
    summary = f"subscription {why.partition(' by ')[0]}"
    for consumer in list(subscription.consumers):
        consumer.sink.disconnect(PeerViolation(summary, f"{subscription.key!r} {why}"))
        broker.registry.leave([consumer], broker.clock.now_ns())


_ID: Final = {"id": Param(says="The id of a subscription.", is_required=True)}
METHODS: Final = {
    "subscriptions": Method(
        _list,
        page_of("subscriptions", _SUBSCRIPTION),
        list_params(_SORT_FIELDS)
        | {
            "durable": Param(says="Only durable ones, or only others.", kind=bool),
            "shared": Param(says="Only groups and queues, or only others.", kind=bool),
            "topic": Param(says="Only those that read this topic."),
        },
    ),
    "subscription": Method(_show, _DETAILS, _ID),
    "pause_subscription": Method(_pause, _SUBSCRIPTION, _ID),
    "resume_subscription": Method(_resume, _SUBSCRIPTION, _ID),
    "move_subscription": Method(
        _move,
        _MOVED,
        _ID
        | {"to": Param(says="earliest, latest, offset=N, an ISO 8601 time, or an age such as 1h.", is_required=True)},
    ),
    "give_subscription": Method(
        _give, _SUBSCRIPTION, _ID | {"owner": Param(says="The name of a user.", is_required=True)}
    ),
    "remove_subscription": Method(_remove, _REMOVED, _ID),
}
