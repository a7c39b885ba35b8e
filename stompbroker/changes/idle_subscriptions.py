"""Durable subscriptions that nobody attaches to.

Law: warns once per absence. Deletes only if the policy says so, and with unsettled messages only if it says that too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog

from stompbroker.changes.effects import Removed
from stompbroker.changes.unit import Unit
from stompbroker.clock import NANOSECONDS, iso_time
from stompbroker.ledger.outcome import Outcome

if TYPE_CHECKING:
    from stompbroker.changes.journal import Journal
    from stompbroker.clock import Clock
    from stompbroker.delivery import Registry, Subscription

__all__ = ["IdleSubscriptions"]

log = structlog.get_logger()


@final
class IdleSubscriptions:
    def __init__(self, registry: Registry, journal: Journal, clock: Clock) -> None:
        self._registry = registry
        self._journal = journal
        self._clock = clock

    def look_at(self, subscription: Subscription) -> None:
        """Warn of it or delete it, if its time has come."""
        durability = subscription.durability
        if durability is None or subscription.consumers or subscription.is_closed:
            return
        policy = self._registry.policies.find(subscription.pattern).idle
        idle_s = (self._clock.now_ns() - durability.last_seen_at_ns) / NANOSECONDS
        if 0 < policy.delete_after_s <= idle_s:
            if subscription.identity not in self._registry.durable:
                return  # it is being removed
            if policy.deletes_unsettled or not (subscription.unsettled or self._is_sent_to(subscription)):
                self._delete(subscription)
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

    def _is_sent_to(self, subscription: Subscription) -> bool:
        """Whether something for it is on its way through the journal."""
        pattern = subscription.pattern
        return any(
            topic.pending_units > 0 and pattern.matches(topic.destination) for topic in self._registry.topics.values()
        )

    def _delete(self, subscription: Subscription) -> None:
        key, unsettled = subscription.key, subscription.unsettled

        def say() -> None:
            log.warning("deleted a durable subscription that nobody attached to", subscription=key, unsettled=unsettled)

        def say_not(reason: str) -> None:
            log.error("a durable subscription cannot be deleted", subscription=key, reason=reason)

        removed = Removed(subscription, self._registry, Outcome.EVICTED)
        self._journal.submit(Unit([removed], then=say, refused=say_not))
