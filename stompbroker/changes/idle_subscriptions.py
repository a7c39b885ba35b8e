"""Durable subscriptions that nobody attaches to.

Law: warns once per absence. Deletes only if the policy says so, and with unsettled messages only if it says that too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from stompbroker.changes.effects import Removed
from stompbroker.changes.unit import Unit
from stompbroker.clock import NANOSECONDS, iso_time
from stompbroker.ledger.outcome import Outcome

if TYPE_CHECKING:
    from stompbroker.changes.journal import Journal
    from stompbroker.clock import Clock
    from stompbroker.delivery import Registry, Subscription

log = structlog.get_logger()


def warn_or_delete_idle(subscription: Subscription, registry: Registry, journal: Journal, clock: Clock) -> None:
    """If its time has come."""
    durability = subscription.durability
    if durability is None or subscription.consumers or subscription.is_closed:
        return
    policy = registry.policies.find(subscription.pattern).idle
    idle_s = (clock.now_ns() - durability.last_seen_at_ns) / NANOSECONDS
    if 0 < policy.delete_after_s <= idle_s:
        if subscription.identity not in registry.durable:
            return  # it is being removed
        if policy.deletes_unsettled or not (subscription.unsettled or _is_sent_to(subscription, registry)):
            _delete(subscription, registry, journal)
            return
    if 0 < policy.warn_after_s <= idle_s and not durability.is_warned_of:
        durability.is_warned_of = True
        log.warning(
            "nobody has attached to a durable subscription for long; it keeps what it has not acknowledged",
            subscription=subscription.key,
            destination=subscription.destination,
            last_seen_at=iso_time(durability.last_seen_at_ns),
            unsettled=subscription.unsettled,
        )


def _is_sent_to(subscription: Subscription, registry: Registry) -> bool:
    """Whether something for it is on its way through the journal."""
    pattern = subscription.pattern
    return any(topic.pending_units > 0 and pattern.matches(topic.destination) for topic in registry.topics.values())


def _delete(subscription: Subscription, registry: Registry, journal: Journal) -> None:
    key, unsettled = subscription.key, subscription.unsettled

    def say() -> None:
        log.warning("deleted a durable subscription that nobody attached to", subscription=key, unsettled=unsettled)

    def say_not(reason: str) -> None:
        log.error("a durable subscription cannot be deleted", subscription=key, reason=reason)

    journal.submit(Unit([Removed(subscription, registry, Outcome.EVICTED)], then=say, refused=say_not))
