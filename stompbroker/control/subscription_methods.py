"""Lists, shows, pauses, moves and removes subscriptions.

Law: a change returns when it is durable, or at once where nothing has to be. A client that is attached to a
subscription that is removed or moved is disconnected, and told why.
"""

from __future__ import annotations

from heapq import nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from stompbroker.access import NAME_RULE, is_name
from stompbroker.changes import Removed
from stompbroker.clock import NANOSECONDS
from stompbroker.control.explaining import describe_delivery
from stompbroker.control.kept import Place
from stompbroker.control.listing import described, list_params, page_of, seen, take_page
from stompbroker.control.request import (
    ControlError,
    Method,
    NotFound,
    Param,
    check_store,
    is_store_failing,
    make_durable,
    named_topic,
)
from stompbroker.control.subscription_records import (
    DETAILS,
    MAX_MEMBERS,
    MEMBER,
    MOVED,
    REMOVED,
    SORT_FIELDS,
    SUBSCRIPTION,
    SUBSCRIPTION_TOPIC,
)
from stompbroker.delivery import withdrawing
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.sessions import StartKind, read_start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.control.caller import Caller
    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import Reading, Subscription

#: Unsettled messages, and topics, that are listed with one subscription.
MAX_UNSETTLED: Final = 100
MAX_TOPICS: Final = 100
#: Topics, among the first MAX_TOPICS, in which the oldest unsettled message is looked up.
MAX_LOOKED_UP: Final = 3


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
        SORT_FIELDS,
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
        "consumers": _shown_to(caller, [MEMBER.describe(broker, member) for member in members]),
        "topics": [SUBSCRIPTION_TOPIC.describe(broker, reading) for reading in readings],
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
        return SUBSCRIPTION.describe(broker, one, lag_s=lag_s, drain_s=drain_s)

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
    known = await broker.kept.first_published_ns(
        chain(*places.values()), asks_store=not is_store_failing(broker.journal)
    )
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
    check_store(broker.journal)
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
    check_store(broker.journal)
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
        check_store(broker.journal)
    elif subscription.is_queue:
        raise ControlError("this queue is kept in memory; it goes by itself when it is empty and nobody uses it")
    _detach(broker, subscription, "was deleted by an operator")
    if subscription.is_durable and subscription.identity in broker.registry.durable:
        removed_for_good = Removed(subscription, broker.registry)
        await make_durable(broker.journal, [removed_for_good], what=f"let {subscription.key!r} go")
    return removed


def _detach(broker: BrokerParts, subscription: Subscription, why: str) -> None:
    summary = f"subscription {why.partition(' by ')[0]}"
    for consumer in list(subscription.consumers):
        consumer.sink.disconnect(PeerViolation(summary, f"{subscription.key!r} {why}"))
        broker.registry.leave([consumer], broker.clock.now_ns())


_ID: Final = {"id": Param(says="The id of a subscription.", is_required=True)}
METHODS: Final = {
    "subscriptions": Method(
        _list,
        page_of("subscriptions", SUBSCRIPTION),
        list_params(SORT_FIELDS)
        | {
            "durable": Param(says="Only durable ones, or only others.", kind=bool),
            "shared": Param(says="Only groups and queues, or only others.", kind=bool),
            "topic": Param(says="Only those that read this topic."),
        },
    ),
    "subscription": Method(_show, DETAILS, _ID),
    "pause_subscription": Method(_pause, SUBSCRIPTION, _ID),
    "resume_subscription": Method(_resume, SUBSCRIPTION, _ID),
    "move_subscription": Method(
        _move,
        MOVED,
        _ID
        | {"to": Param(says="earliest, latest, offset=N, an ISO 8601 time, or an age such as 1h.", is_required=True)},
    ),
    "give_subscription": Method(
        _give, SUBSCRIPTION, _ID | {"owner": Param(says="The name of a user.", is_required=True)}
    ),
    "remove_subscription": Method(_remove, REMOVED, _ID),
}
