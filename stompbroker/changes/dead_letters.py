"""What is done with a message that is not tried again for a subscription.

Law: a dead letter is one step: the message is settled for its subscription and lies with the dead letters of its topic,
or neither. Until then it waits, so whoever kills the broker in between finds it waiting. No dead letter is made of one.
All of it is the broker's own doing and is never held back by a full topic; but while the journal takes nothing, what
would have to be stored waits with everybody else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from stompbroker.changes.effects import Appended, Removed, claim_settled
from stompbroker.changes.letters import letter_of
from stompbroker.changes.unit import Unit
from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import Waiting, WhenUsedUp, withdrawing
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.ledger.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.changes.effects import SettledDeliveries
    from stompbroker.changes.journal import Journal
    from stompbroker.clock import Clock
    from stompbroker.delivery import Registry, Subscription, Topic
    from stompbroker.message import Message
    from stompbroker.message_ids import MessageIds

__all__ = ["DeadLetters"]

#: What is buried in one unit: bytes of letters. It is one step when it is completed.
MAX_UNIT_BYTES: Final = 256 * 1024
#: How long what cannot be buried now waits before it is tried again; and what the store will not have.
RETRY_NS: Final = NANOSECONDS // 4
REFUSED_RETRY_NS: Final = 300 * NANOSECONDS

log = structlog.get_logger()


@final
class DeadLetters:
    """
    Invariants:
        a message is on its way to the dead letters at most once at a time: it is pending
    """

    __slots__ = ("_clock", "_journal", "_message_ids", "_registry")

    def __init__(self, registry: Registry, journal: Journal, message_ids: MessageIds, clock: Clock) -> None:
        self._registry = registry
        self._journal = journal
        self._message_ids = message_ids
        self._clock = clock

    def give_up(self, used_up: Sequence[Waiting]) -> None:
        """These are not tried again: do with them what their policies say."""
        publications: dict[Topic, list[Message]] = {}
        deaths: list[SettledDeliveries] = []
        size_bytes = 0
        for entry in used_up:
            reading, offset = entry
            if not reading.is_waiting(offset):
                continue  # settled in the meantime, or gone with its subscription, perhaps just now
            failure = reading.failures[offset]
            what = reading.policy.when_used_up
            if what is WhenUsedUp.EVICT and not failure.is_final:
                if deaths:
                    # Those that have their letter are dead, and not evicted.
                    self._submit(publications, deaths)
                    publications, deaths, size_bytes = {}, [], 0
                self._evict(entry, failure.count)
                continue
            is_discarded = reading.topic.is_of_dead_letters or what is WhenUsedUp.DISCARD
            if not is_discarded and self._journal.gate.is_blocked:
                self._try_again(entry, RETRY_NS)
                continue
            message, is_known = reading.get(offset)
            if not is_known and (reading.is_recorded or not is_discarded):
                reading.topic.context.pages.call_when_read(reading.topic, offset, partial(self._try_again, entry, 0))
                continue
            if message is not None:
                reading.remember(offset, message)
            if is_discarded or message is None:  # purged, or its topic's store had not kept it
                withdrawing.discard(reading, offset, self._clock.now_ns())
                continue
            topic = self._topic_for(reading.topic)
            letter = letter_of(
                message,
                failure,
                reading,
                message_id=self._message_ids.make(),
                destination=str(topic.destination),
                now_ns=self._clock.now_ns(),
            )
            publications.setdefault(topic, []).append(letter)
            deaths.append(claim_settled(reading, [(offset, offset + 1)], Outcome.DEAD, self._clock.now_ns()))
            size_bytes += letter.size_bytes
            if size_bytes >= MAX_UNIT_BYTES:
                self._submit(publications, deaths)
                publications, deaths, size_bytes = {}, [], 0
        if deaths:
            self._submit(publications, deaths)

    def _submit(self, publications: dict[Topic, list[Message]], deaths: list[SettledDeliveries]) -> None:
        self._journal.submit(
            Unit(
                [*(Appended(topic, letters) for topic, letters in publications.items()), *deaths],
                owes_receipt=False,
                refused=lambda reason: self._note_refused(deaths, reason),
            )
        )

    def _note_refused(self, deaths: list[SettledDeliveries], reason: str) -> None:
        """The store cannot take one of them: each is tried alone, and one that is alone waits."""
        entries = [Waiting(effect.reading, Offset(effect.claimed.ranges[0][0])) for effect in deaths]
        if len(entries) > 1:
            for entry in entries:
                self.give_up([entry])
            return
        ((reading, offset),) = entries
        log.error(
            "a dead letter cannot be stored; it will be tried again",
            topic=reading.topic.name,
            offset=offset,
            subscription=reading.subscription.key,
            reason=reason,
        )
        self._try_again(Waiting(reading, offset), REFUSED_RETRY_NS)

    def _try_again(self, entry: Waiting, delay_ns: int) -> None:
        self._registry.redeliveries.schedule(self._clock.now_ns() + delay_ns, entry)

    def _topic_for(self, topic: Topic) -> Topic:
        return self._registry.topic_of_dead_letters(topic.destination, self._clock.now_ns())

    def _evict(self, entry: Waiting, attempts: int) -> None:
        """The subscription goes, with everything it has not settled."""
        reading = entry.reading
        subscription = reading.subscription
        log.warning(
            "evicted a subscription that could not be delivered to",
            subscription=subscription.key,
            topic=reading.topic.name,
            attempts=attempts,
        )
        for consumer in list(subscription.consumers):
            consumer.sink.disconnect(
                PeerViolation(
                    "subscription evicted",
                    f"{subscription.key!r} has failed {attempts} times over a message of topic {reading.topic.name!r}, "
                    "and its policy says evict; subscribe with another when-used-up to keep it",
                )
            )
        self._remove(subscription, entry)

    def _remove(self, subscription: Subscription, entry: Waiting) -> None:
        registry, now_ns = self._registry, self._clock.now_ns()

        def try_again(reason: str) -> None:
            log.error("cannot be evicted; it will be tried again", subscription=subscription.key, reason=reason)
            self._try_again(entry, REFUSED_RETRY_NS)

        if subscription.is_closed:
            return
        registry.leave(list(subscription.consumers), now_ns)
        if subscription.identity in registry.durable:
            self._journal.submit(Unit([Removed(subscription, registry, Outcome.EVICTED)], refused=try_again))
