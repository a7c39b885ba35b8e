"""Topics, subscriptions and connections as plain values.

Law: looks and changes nothing. A list is bounded, and made in short steps between which others run: each entry is
consistent.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stompbroker.clock import iso_time
from stompbroker.delivery import IdentityKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stompbroker.control.looking import Looking
    from stompbroker.delivery import Subscription, Topic
    from stompbroker.sessions import Session

__all__ = [
    "MAX_ENTRIES",
    "describe_connection",
    "describe_durable",
    "describe_subscription",
    "describe_topic",
    "described",
]

#: Entries of one kind in one answer: a broker with a hundred thousand topics must not stop to list them all.
MAX_ENTRIES: Final = 1000

Item = TypeVar("Item")


async def described(
    describe: Callable[[Item], dict[str, Any]], items: Iterable[Item], looking: Looking
) -> list[dict[str, Any]]:
    """The first MAX_ENTRIES of them."""
    found = []
    async with looking.at_once() as look:
        for item in list(islice(items, MAX_ENTRIES)):
            found.append(describe(item))
            if look.is_over:
                await look.pause()
    return found


def describe_topic(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "published": topic.published,
        "bytes": topic.published_bytes,
        "subscribers": len(topic.readings),
        "kept_messages": topic.log.message_count,
        "kept_bytes": topic.log.size_bytes,
        "next_offset": topic.log.end_offset,
        "blocked": topic.is_blocked,
        "stored": topic.is_stored,
    }


def describe_subscription(subscription: Subscription) -> dict[str, Any]:
    counters, consumer = subscription.counters, subscription.consumer
    return {
        "id": subscription.name,
        "connection": subscription.connection_id if consumer is not None else None,
        "destination": subscription.destination,
        "ack": subscription.ack_mode.value,
        "prefetch": consumer.credit.max_messages if consumer is not None else None,
        "in_flight": consumer.in_flight if consumer is not None else 0,
        "waiting": subscription.waiting,
        "backlog": subscription.backlog,
        "durable": subscription.key if subscription.is_durable else None,
        "delivered": counters.delivered,
        "acked": counters.acked,
        "nacked": counters.nacked,
        "redelivered": counters.redelivered,
        "overdue": counters.overdue,
        "dead": counters.dead,
        "discarded": counters.discarded,
        "expired": counters.expired,
        "dropped": counters.dropped,
        "late_acks": counters.late,
    }


def describe_durable(subscription: Subscription) -> dict[str, Any]:
    durability, consumer = subscription.durability, subscription.consumer
    assert durability is not None
    identity = durability.identity
    return {
        "key": identity.key,
        "kind": identity.kind.value,
        "client_id": identity.scope or None if identity.kind is IdentityKind.NAMED else None,
        "name": identity.name,
        "destination": subscription.destination,
        "ack": subscription.ack_mode.value,
        "connected": consumer is not None,
        "peer": subscription.peer if consumer is not None else None,
        "last_seen_at": iso_time(durability.last_seen_at_ns),
        "created_at": iso_time(durability.created_at_ns),
        "backlog": subscription.backlog,
        "in_flight": consumer.in_flight if consumer is not None else 0,
        "waiting": subscription.waiting,
    }


def describe_connection(session: Session) -> dict[str, Any]:
    statistics = session.statistics()
    return {
        "id": statistics.id,
        "peer": statistics.peer,
        "version": statistics.version,
        "subscriptions": statistics.subscriptions,
        "bytes_in": statistics.bytes_in,
        "bytes_out": statistics.bytes_out,
        "connected_at": iso_time(statistics.connected_at_ns),
        "held_back": statistics.is_held_back,
        "late_acks": statistics.late_answers,
    }
