"""How the members of a group share its messages.

Law: decides who gets how many, and changes nothing. Members that can take something are kept level in what they have in
flight, so a slow one gets less; what one has failed with is left to the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.reading import Reading
    from stompbroker.ids import Offset

#: Messages that a member of a group leaves to others before it takes what it has failed with itself.
MAX_LEFT_TO_OTHERS: Final = 1024


def others_that_can_take(consumer: Consumer) -> list[Consumer]:
    """The other members of its group that have credit."""
    members = consumer.subscription.consumers
    return [each for each in members if each is not consumer and each.is_open and each.free_credit > 0]


def fair_share(count: int, consumer: Consumer, others: list[Consumer]) -> int:
    """How many of these to give to one member, so that all that can take some have as much in flight; one at least."""
    in_flight = consumer.in_flight + sum(each.in_flight for each in others)
    return max(1, -(-(count + in_flight) // (len(others) + 1)) - consumer.in_flight)


def not_failed_with(consumer: Consumer, reading: Reading, limit: int) -> list[Offset]:
    """The lowest offsets that go again, without those that this member has failed with last."""
    found: list[Offset] = []
    for offset in reading.cursor.lowest_free(limit + MAX_LEFT_TO_OTHERS):
        failure = reading.failures.get(offset)
        if failure is None or failure.failed_with is None or failure.failed_with() is not consumer:
            found.append(offset)
            if len(found) == limit:
                break
    return found
