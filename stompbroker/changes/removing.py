"""The end of a durable subscription.

Law: from the moment it is asked for nobody can subscribe to it; from the moment that is durable it is gone; and if the
store does not let it go, it is as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.changes.unit import Unit
from stompbroker.ledger.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.changes.unit import Lane
    from stompbroker.clock import Clock
    from stompbroker.delivery import Registry, Subscription

__all__ = ["removal"]


def removal(
    subscription: Subscription,
    registry: Registry,
    clock: Clock,
    *,
    then: Callable[[], None],
    refused: Callable[[str], None],
    lane: Lane | None = None,
    outcome: Outcome = Outcome.UNSUBSCRIBED,
) -> Unit:
    """The unit that removes it, and then calls `then`; `outcome` is what becomes of what it has not settled. Nobody may
    be attached to it."""
    assert not subscription.consumers
    registry.forget_durable(subscription)

    def finish() -> None:
        registry.remove_durable(subscription, clock.now_ns())
        then()

    def put_back(reason: str) -> None:
        registry.remember_durable(subscription)
        refused(reason)

    return Unit({}, [], finish, lane=lane, removed=subscription, removed_as=outcome, refused=put_back)
