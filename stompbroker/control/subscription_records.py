"""What is said of subscriptions, their members and topics.

Law: each field with how it is found, for the command line, HTTP and the page alike; nothing changes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from stompbroker.clock import iso_time, iso_time_if_any
from stompbroker.control.explaining import DELIVERY_STATE
from stompbroker.control.records import DESTINATION_KIND, Record, Shown, alike
from stompbroker.control.topic_methods import READING
from stompbroker.delivery import COUNTER_NAMES, AckMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import Consumer, Durability, Reading, Subscription

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


SUBSCRIPTION: Final[Record[Subscription]] = Record(
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
        "held_up": Shown(int, says="Behind another message of their key, in a group or queue."),
        "keys_held_up": Shown(int, says="How many keys have such messages."),
        **{name: Shown(int, partial(lambda name, _, one: getattr(one.counters, name), name)) for name in COUNTER_NAMES},
        "rate": Shown(float, lambda broker, one: round(broker.sampler.latest.rates_of(one)[0], 1)),
        "ack_rate": Shown(float, lambda broker, one: round(broker.sampler.latest.rates_of(one)[1], 1)),
        "oldest_unacknowledged_at": Shown(str | None, lambda _, one: _oldest_unacknowledged_at(one)),
        "drain_s": Shown(float | None, says="How long its backlog takes at the present rate of acknowledgements."),
    },
)
SORT_FIELDS: Final = SUBSCRIPTION.sorted_by(
    "key", "backlog", "in_flight", "waiting", "delivered", "rate", "redelivered", "dead"
)
MEMBER: Final[Record[Consumer]] = Record(
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
SUBSCRIPTION_TOPIC: Final[Record[Reading]] = Record(
    "SubscriptionTopic",
    {
        "topic": Shown(str, lambda _, reading: reading.topic.destination.key),
        "end_offset": Shown(int, lambda _, reading: reading.topic.log.end_offset),
        **READING.fields,
    },
)
UNSETTLED: Final[Record[Any]] = Record(
    "Unsettled", {"topic": Shown(str), "offset": Shown(int), **DELIVERY_STATE.fields}
)
DETAILS: Final[Record[Any]] = Record(
    "SubscriptionDetails",
    {
        **SUBSCRIPTION.fields,
        "consumers": Shown([MEMBER], says=f"Who is attached; of a group the first {MAX_MEMBERS} members."),
        "topics": Shown([SUBSCRIPTION_TOPIC]),
        "unsettled": Shown([UNSETTLED]),
        "can_change": Shown(bool, says="Whether the caller may pause, move, give or delete it."),
    },
)
MOVED: Final[Record[Any]] = Record("MovedSubscription", {**SUBSCRIPTION.fields, "offset": Shown(int)})
REMOVED: Final[Record[Any]] = Record("RemovedSubscription", {**alike(str, "id", "key"), "backlog": Shown(int)})
