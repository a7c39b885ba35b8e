"""What the broker gives up by itself: messages that are not tried again, and subscriptions that nobody attaches to.

Law: one unit appends the letter and settles the message, or neither; until then the message is pending, and a killed
broker finds it waiting. No letter is made of a letter. A full topic never holds letters back, a closed gate does. A
letter says where it comes from in flat headers that begin with `dead-letter-`, which a client cannot write; it has
everything that its message had but the expiry.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import structlog

from stompbroker.changes.effects import Appended, Removed, claim_settled
from stompbroker.changes.journal import Unit
from stompbroker.clock import NANOSECONDS, iso_time
from stompbroker.delivery import DestinationKind, Waiting, WhenUsedUp, answering, withdrawing
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.ledger.records import Outcome
from stompbroker.message import Message, Origin
from stompbroker.stomp import LETTER_PREFIX, message_tail, render_headers, tail_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stompbroker.changes.effects import SettledDeliveries
    from stompbroker.changes.journal import Journal
    from stompbroker.changes.queues import Queues
    from stompbroker.clock import Clock
    from stompbroker.delivery import Failure, Reading, Registry, Subscription, Topic
    from stompbroker.message import MessageIds

#: Bytes of letters in one unit, which is completed in one step.
MAX_UNIT_BYTES: Final = 256 * 1024
#: Delay before the next try while the gate is closed, and after the store has refused a letter.
RETRY_NS: Final = NANOSECONDS // 4
REFUSED_RETRY_NS: Final = 300 * NANOSECONDS

#: Headers of a message's expiry, which a letter does not inherit.
_EXPIRY: Final = frozenset({"expires", "ttl", "expiration"})
_OWN: Final = frozenset({"message-id", "content-length"})
#: Names the message that died. A message that dies again after a redrive has one already.
_REDRIVE_OF: Final = "redrive-of"

log = structlog.get_logger()


@final
class DeadLetters:
    """
    Invariants:
        a message is on its way to the dead letters at most once at a time: it is pending
    """

    def __init__(
        self, registry: Registry, journal: Journal, queues: Queues, message_ids: MessageIds, clock: Clock
    ) -> None:
        self._registry = registry
        self._journal = journal
        self._queues = queues
        self._message_ids = message_ids
        self._clock = clock

    def give_up(self, used_up: Sequence[Waiting]) -> None:
        """Do with these, which are not tried again, what their policies say."""
        publications: dict[Topic, list[Message]] = {}
        deaths: list[SettledDeliveries] = []
        size_bytes = 0
        for entry in used_up:
            reading, offset = entry
            if not reading.is_waiting(offset):
                continue  # settled meanwhile, or gone with its subscription
            failure = reading.failures[offset]
            what = reading.policy.when_used_up
            if what is WhenUsedUp.EVICT and not failure.is_final:
                if deaths:
                    # Before the eviction: messages that have their letter are dead, and not evicted.
                    self._submit(publications, deaths)
                    publications, deaths, size_bytes = {}, [], 0
                self._evict(entry, failure.count)
                continue
            if reading.topic.is_queue and reading.topic.is_of_dead_letters:
                answering.start_over(reading, offset, self._clock.now_ns())
                continue
            # A letter of a temporary destination would outlive it, and nobody could read it.
            is_temporary = reading.topic.destination.kind is DestinationKind.TEMPORARY
            is_discarded = reading.topic.is_of_dead_letters or is_temporary or what is WhenUsedUp.DISCARD
            if not is_discarded and self._journal.gate.is_blocked:
                self._try_again(entry, RETRY_NS)
                continue
            message, is_known = reading.get(offset)
            if not is_known and (reading.subscription.tells_outcomes or not is_discarded):
                reading.topic.context.pages.call_when_read(reading.topic, offset, partial(self._try_again, entry, 0))
                continue
            if message is not None:
                reading.remember(offset, message)
                reading.note_asking(offset, [message])
            if is_discarded or message is None:  # None: purged, or never stored
                withdrawing.discard(reading, offset, self._clock.now_ns())
                continue
            now_ns = self._clock.now_ns()
            topic = self._queues.topic_of_dead_letters(reading.topic.destination, now_ns)
            letter = _letter_of(
                message,
                failure,
                reading,
                message_id=self._message_ids.make(),
                to=topic,
                now_ns=now_ns,
            )
            publications.setdefault(topic, []).append(letter)
            deaths.append(claim_settled(reading, [(offset, offset + 1)], Outcome.DEAD, now_ns))
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
        """The store cannot take one of them: try each alone, and one that is alone later."""
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

        def try_again(reason: str) -> None:
            log.error("cannot be evicted; it will be tried again", subscription=subscription.key, reason=reason)
            self._try_again(entry, REFUSED_RETRY_NS)

        self._registry.leave(list(subscription.consumers), self._clock.now_ns())
        if not subscription.is_closed and subscription.identity in self._registry.durable:
            removed = Removed(subscription, self._registry, Outcome.EVICTED)
            self._journal.submit(Unit([removed], refused=try_again))


class Provenance(NamedTuple):
    """Where a letter comes from: each field is a header of the letter."""

    destination: str
    message_id: str
    subscription: str = ""
    attempts: int = 0
    cause: str = ""
    reason: str = ""
    published_at: str = ""
    first_attempt_at: str = ""
    last_attempt_at: str = ""
    died_at: str = ""
    #: The number in the store of a durable subscription: another one of the same name has another number.
    subscription_number: int | None = None


def _letter_of(
    message: Message, failure: Failure, reading: Reading, *, message_id: bytes, to: Topic, now_ns: int
) -> Message:
    """The letter about a message that has failed for good. In a queue it expires when a topic would not retain it any
    more."""
    provenance = Provenance(
        destination=str(reading.topic.destination),
        message_id=message.message_id.decode(),
        subscription=reading.subscription.key,
        attempts=failure.count,
        cause="refused" if failure.is_final else "attempts used up",
        reason=failure.reason,
        published_at=iso_time(message.published_at_ns),
        first_attempt_at=iso_time(failure.first_attempt_ns) if failure.first_attempt_ns else "",
        last_attempt_at=iso_time(failure.last_attempt_ns) if failure.last_attempt_ns else "",
        died_at=iso_time(now_ns),
        subscription_number=reading.subscription.store_id,
    )
    headers = [
        (name, str(to.destination) if name == "destination" else value)
        for name, value in _headers(message)
        if name not in _EXPIRY
    ]
    headers += [
        (LETTER_PREFIX + name.replace("_", "-"), str(value))
        for name, value in provenance._asdict().items()
        if value not in ("", None)
    ]
    lifetime_ns = int(to.policy.retention.age_s * NANOSECONDS) if to.is_queue else 0
    if lifetime_ns:
        to.is_choosy = True
    return _message(message, headers, message_id, now_ns, lifetime_ns=lifetime_ns or None)


def redriven(letter: Message, *, message_id: bytes, only_for: int | None, now_ns: int) -> Message:
    """The message that a letter is about, to be published once more."""
    provenance = provenance_of(letter)
    assert provenance is not None
    headers = [
        (name, provenance.destination if name == "destination" else value)
        for name, value in _headers(letter)
        if not name.startswith(LETTER_PREFIX) and name != _REDRIVE_OF
    ]
    headers.append((_REDRIVE_OF, provenance.message_id))
    return _message(letter, headers, message_id, now_ns, only_for=only_for)


def provenance_of(message: Message) -> Provenance | None:
    """None for a message in a topic of dead letters that is no letter."""
    said: dict[str, Any] = {}
    for header, value in _headers(message):
        name = header.removeprefix(LETTER_PREFIX).replace("-", "_")
        if header.startswith(LETTER_PREFIX) and name in Provenance._fields:
            said[name] = int(value) if name in ("attempts", "subscription_number") else value
    return Provenance(**said) if "message_id" in said and "destination" in said else None


def _headers(message: Message) -> list[tuple[str, str]]:
    """Those of the publisher, and ours about a letter."""
    return [(name, value) for name, value in tail_headers(message.tail) if name not in _OWN]


def _message(
    source: Message,
    headers: Iterable[tuple[str, str]],
    message_id: bytes,
    now_ns: int,
    *,
    only_for: int | None = None,
    lifetime_ns: int | None = None,
) -> Message:
    block = render_headers(headers)
    origin = Origin(
        source.origin.publisher,
        is_plain=b"\\r" not in block,
        only_for=only_for,
        lifetime_ns=lifetime_ns,
        group_key=source.origin.group_key,
    )
    return Message(source.body_bytes, message_tail(message_id, block, source.body), origin, now_ns)


def warn_or_delete_idle(subscription: Subscription, registry: Registry, journal: Journal, clock: Clock) -> None:
    """If its time has come: warns once per absence. Deletes only if the policy says so, and unsettled messages with it
    only if it says that too."""
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
