"""From offsets that are settled to what is known of their messages.

Law: looks and changes nothing; called before the cursor moves. Hot path: a run that the log holds, and of which nothing
has failed, is one slice of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.ids import Offset
from stompbroker.ledger.settled import Party, Settled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stompbroker.delivery.reading import Reading
    from stompbroker.ledger.outcome import Outcome
    from stompbroker.message import Message

__all__ = ["account_of", "party_of"]


def party_of(reading: Reading) -> Party:
    subscription = reading.subscription
    durability = subscription.durability
    if durability is None:
        name = "" if subscription.name is None else subscription.name
        # Ids of transient subscriptions are chosen by their clients, each for itself.
        key, client_id = f"{subscription.connection_name}#{name}", None
    else:
        identity = durability.identity
        key, name = identity.key, identity.name
        client_id = identity.client_id
    return Party(
        topic=reading.topic.name,
        subscription=key,
        client_id=client_id,
        name=name,
        is_durable=durability is not None,
        ack_mode=subscription.ack_mode.value,
        generation=reading.generation,
        kind=reading.topic.destination.kind.value,
    )


def account_of(
    reading: Reading, ranges: Iterable[tuple[int, int]], outcome: Outcome, settled_at_ns: int, sent_at_ns: int
) -> list[Settled]:
    """What is known of unsettled messages that are about to be settled; `sent_at_ns` is when those that are in flight
    were sent."""
    found: list[Settled] = []
    for start, stop in ranges:
        for low, high in _alike(reading, start, stop):
            found += _account(reading, low, high, outcome, settled_at_ns, sent_at_ns)
    return found


def _alike(reading: Reading, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Stretches of which something is known message by message, one by one, and what lies between them."""
    position = start
    for offset in reading.known_one_by_one(start, stop):
        if position < offset:
            yield position, offset
        yield offset, offset + 1
        position = offset + 1
    if position < stop:
        yield position, stop


def _account(
    reading: Reading, start: int, stop: int, outcome: Outcome, settled_at_ns: int, sent_at_ns: int
) -> Iterator[Settled]:
    """Of messages that share all but their contents."""
    first, cursor = Offset(start), reading.cursor
    failure = reading.failures.get(first)
    is_in_flight = bool(sent_at_ns) and (reading.is_all_in_flight or cursor.is_in_flight(first))
    first_sent_ns = reading.first_sent_ns(first) or (sent_at_ns if is_in_flight else 0)
    last_sent_ns = first_sent_ns if failure is None else failure.last_attempt_ns
    if is_in_flight:
        last_sent_ns = sent_at_ns
    failed = 0 if failure is None else failure.count
    for position, count, messages in _runs(reading, start, stop):
        yield Settled(
            outcome,
            position,
            count,
            messages,
            settled_at_ns,
            first_sent_ns,
            last_sent_ns,
            failed + is_in_flight or int(first_sent_ns > 0),
            0 if failure is None else failure.nacks,
            "" if failure is None else failure.reason,
        )


def _runs(reading: Reading, start: int, stop: int) -> Iterator[tuple[int, int, Sequence[Message]]]:
    """What lies at these offsets, in runs; nothing where nobody remembers, or only the store does."""
    position = start
    while position < stop:
        first, messages = reading.topic.log.read(position, stop - position)
        if first == position and messages:
            yield position, len(messages), messages
            position += len(messages)
            continue
        limit = min(first, stop)
        for offset, message in reading.recalled(position, limit):
            if position < offset:
                yield position, offset - position, ()
            yield offset, 1, [message]
            position = offset + 1
        if position < limit:
            yield position, limit - position, ()
        position = limit
