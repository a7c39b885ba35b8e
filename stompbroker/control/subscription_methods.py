"""Lists, shows, pauses, moves and removes subscriptions.

Law: a change returns when it is durable, or at once where nothing has to be. A client that is attached to a
subscription that is removed or moved is disconnected, and told why.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Literal

from stompbroker.changes import Removed, StoreState
from stompbroker.clock import NANOSECONDS, iso_time, iso_time_if_any
from stompbroker.control.explaining import DELIVERY_STATE, describe_delivery
from stompbroker.control.kept import Place
from stompbroker.control.listing import described, list_params, page_of, take_page
from stompbroker.control.records import DESTINATION_KIND, Record, Shown, alike
from stompbroker.control.request import ControlError, Method, NotFound, Param, Unavailable, make_durable, named_topic
from stompbroker.control.topic_methods import READING
from stompbroker.delivery import Counters, withdrawing
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.sessions import StartKind, read_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import Consumer, Durability, Reading, Subscription

#: Unsettled messages, and topics, that are listed with one subscription.
MAX_UNSETTLED: Final = 100
MAX_TOPICS: Final = 100
#: Topics, among the first MAX_TOPICS, in which the oldest unsettled message is looked up.
MAX_LOOKED_UP: Final = 3


def _of_durable(find: Callable[[Durability], Any]) -> Callable[[BrokerParts, Subscription], Any]:
    return lambda _, one: None if one.durability is None else find(one.durability)


def _of_attached(find: Callable[[Consumer], Any]) -> Callable[[BrokerParts, Subscription], Any]:
    return lambda _, one: None if one.consumer is None else find(one.consumer)


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
        "durable_name": Shown(str | None, _of_durable(lambda durability: durability.identity.name)),
        "destination": Shown(str),
        "kind": Shown(DESTINATION_KIND, lambda _, one: one.pattern.kind.value, "Of what it subscribes to."),
        "durable": Shown(bool, lambda _, one: one.is_durable),
        "ack": Shown(Literal["auto", "client", "client-individual"], lambda _, one: one.ack_mode.value),
        "ordered": Shown(bool, lambda _, one: one.is_ordered),
        "paused": Shown(bool, lambda _, one: one.is_paused),
        "connected": Shown(bool, lambda _, one: one.consumer is not None),
        "connection": Shown(int | None, _of_attached(lambda consumer: consumer.subscription.connection_id)),
        "peer": Shown(str | None, _of_attached(lambda consumer: consumer.subscription.peer)),
        "prefetch": Shown(int | None, _of_attached(lambda consumer: consumer.credit.max_messages)),
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
        "oldest_unacknowledged_at": Shown(
            str | None, _of_attached(lambda consumer: iso_time_if_any(consumer.sent.oldest_sent_ns))
        ),
        "drain_s": Shown(float | None, says="How long its backlog takes at the present rate of acknowledgements."),
    },
)
_SORT_FIELDS: Final = _SUBSCRIPTION.sorted_by(
    "key", "backlog", "in_flight", "waiting", "delivered", "rate", "redelivered", "dead"
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
    {**_SUBSCRIPTION.fields, "topics": Shown([_SUBSCRIPTION_TOPIC]), "unsettled": Shown([_UNSETTLED])},
)
_MOVED: Final[Record[Any]] = Record("MovedSubscription", {**_SUBSCRIPTION.fields, "offset": Shown(int)})
_REMOVED: Final[Record[Any]] = Record("RemovedSubscription", {**alike(str, "id", "key"), "backlog": Shown(int)})


# Looking --------------------------------------------------------------------------------------------------------------


async def _list(
    broker: BrokerParts, durable: bool | None = None, topic: str | None = None, **wanted: Any
) -> dict[str, Any]:
    """Subscriptions, durable and transient."""
    read = None if topic is None else broker.registry.topics.get(named_topic(topic).key)
    page = await take_page(
        broker,
        [
            subscription
            for subscription in broker.registry.subscriptions
            if durable in (None, subscription.is_durable) and (topic is None or read in subscription.readings)
        ],
        lambda subscription: [subscription.public_id, subscription.key, subscription.destination],
        _SORT_FIELDS,
        **wanted,
    )
    return page.answer("subscriptions", await _describe_all(broker, page.items))


async def _show(broker: BrokerParts, id: str) -> dict[str, Any]:
    """One subscription, with what it has not settled."""
    subscription = _find(broker, id)
    readings = list(islice(subscription.readings.values(), MAX_TOPICS))
    return {
        **await _describe(broker, subscription),
        "topics": [_SUBSCRIPTION_TOPIC.describe(broker, reading) for reading in readings],
        "unsettled": [entry for reading in readings for entry in _unsettled(reading)][:MAX_UNSETTLED],
    }


def _find(broker: BrokerParts, public_id: str) -> Subscription:
    for subscription in broker.registry.subscriptions:
        if subscription.public_id == public_id:
            return subscription
    raise NotFound(f"there is no subscription {public_id!r}")


async def _describe(broker: BrokerParts, subscription: Subscription) -> dict[str, Any]:
    (entry,) = await _describe_all(broker, [subscription])
    return entry


async def _describe_all(broker: BrokerParts, subscriptions: list[Subscription]) -> list[dict[str, Any]]:
    oldest_ns = await _oldest_unsettled_ns(broker, subscriptions)
    now_ns = broker.clock.now_ns()

    def describe(one: Subscription) -> dict[str, Any]:
        ack_rate = broker.sampler.latest.rates_of(one)[1]
        lag_s = round(max(0, now_ns - oldest_ns[one]) / NANOSECONDS, 3) if one in oldest_ns else None
        drain_s = round(one.backlog / ack_rate, 1) if ack_rate > 0 else None
        return _SUBSCRIPTION.describe(broker, one, lag_s=lag_s, drain_s=drain_s)

    return await described(describe, subscriptions, broker.looking)


async def _oldest_unsettled_ns(broker: BrokerParts, subscriptions: Iterable[Subscription]) -> dict[Subscription, int]:
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


async def _pause(broker: BrokerParts, id: str) -> dict[str, Any]:
    """Send nothing to it until it is resumed, or the broker started anew."""
    subscription = _find(broker, id)
    subscription.is_paused = True
    return await _describe(broker, subscription)


async def _resume(broker: BrokerParts, id: str) -> dict[str, Any]:
    """Send to it again."""
    subscription = _find(broker, id)
    subscription.resume()
    return await _describe(broker, subscription)


async def _move(broker: BrokerParts, id: str, to: str) -> dict[str, Any]:
    """Have a durable subscription to one topic read on from another place."""
    subscription = _find(broker, id)
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


async def _remove(broker: BrokerParts, id: str) -> dict[str, Any]:
    """Delete a subscription; whoever is attached to it is disconnected."""
    subscription = _find(broker, id)
    # Described first: a transient one gets its id from its consumer, which goes.
    removed = {"id": subscription.public_id, "key": subscription.key, "backlog": subscription.backlog}
    if subscription.is_durable:
        _check_store(broker)
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
    consumer = subscription.consumer
    if consumer is not None:
        summary = f"subscription {why.partition(' by ')[0]}"
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
    "remove_subscription": Method(_remove, _REMOVED, _ID),
}
