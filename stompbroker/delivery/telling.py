"""Telling publishers what became of their messages: what has ended, and the messages that say so.

Law: knows who asked and how it ended; what a message about it looks like is decided above. One that is about a stored
subscription waits beside what the ledger has yet to get, and goes into the store with the same cursor. The others are
told at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.ledger.records import Outcome
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stompbroker.delivery.accounting import Accountable
    from stompbroker.delivery.reading_notes import Asked
    from stompbroker.message import Message

#: What becomes of a message itself. An operator who skips it, and a subscription that ends, tell nothing.
TOLD: Final = frozenset(
    {Outcome.ACKED, Outcome.SENT, Outcome.DEAD, Outcome.DISCARDED, Outcome.EXPIRED, Outcome.DROPPED}
)


class Ended(NamedTuple):
    """How a message ended whose publisher asks."""

    asked: Asked
    outcome: Outcome
    #: Where it was, as a client writes it; and how people name the subscription that ended it.
    destination: str
    subscription: str
    attempts: int = 0
    #: Of the last refusal.
    reason: str = ""


class Untold(NamedTuple):
    """A message to a publisher."""

    #: The key of its destination.
    to: str
    message: Message


def ended(
    reading: Accountable, subscription: str, ranges: Iterable[tuple[int, int]], outcome: Outcome, *, was_sent: bool
) -> list[Ended]:
    """Of the messages at these offsets, all about to be settled, those whose publishers ask. `was_sent`: those in
    flight count that as an attempt, as in the ledger."""
    party = reading.party
    destination = f"/{party.kind}/{party.topic}"
    found: list[Ended] = []
    for start, stop in ranges if outcome in TOLD else ():
        for offset, asked in reading.remembered.asked_between(start, stop):
            failure = reading.failures.get(offset)
            failed, reason = (0, "") if failure is None else (failure.count, failure.reason)
            attempts = failed + (was_sent and reading.cursor.is_in_flight(offset))
            attempts = attempts or int(bool(reading.first_sent_ns(offset)))
            found.append(Ended(asked, outcome, destination, subscription, attempts, reason))
    return found


@final
@dataclass(slots=True, eq=False)
class Telling:
    """What all topics share.

    Invariants:
        `filled` was woken when the first message came to `at_once`
    """

    #: Makes messages of what has ended; set by the composition root.
    render: Callable[[list[Ended]], list[Untold]] = lambda _ended: []
    #: About subscriptions that no store has.
    at_once: list[Untold] = field(default_factory=list)
    #: Whether there were ever messages that go with a unit, so that a batch has to look for them.
    is_in_units: bool = False
    filled: Signal = field(default_factory=Signal)

    def put(self, untold: list[Untold]) -> None:
        self.at_once += untold
        self.filled.wake()

    def take(self) -> list[Untold]:
        taken, self.at_once = self.at_once, []
        return taken
