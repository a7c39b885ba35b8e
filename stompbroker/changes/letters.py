"""A dead letter: a message, and what became of it.

Law: from a message and its failure to the letter, and from a letter back to the message; nothing is lost on the way but
what made it expire. Where it comes from is said in flat headers, all of which begin with `dead-letter-`; a client
cannot write one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.clock import iso_time
from stompbroker.message import Message, Origin
from stompbroker.stomp import LETTER_PREFIX, message_tail, render_headers, tail_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.delivery import Failure, Reading

__all__ = ["Provenance", "letter_of", "provenance_of", "redriven"]

#: What a message's end of life was, which a letter does not inherit.
_EXPIRY: Final = frozenset({"expires", "ttl", "expiration"})
_OWN: Final = frozenset({"message-id", "content-length"})
#: Names the message that died. A message that dies again after a redrive has one already.
_REDRIVE_OF: Final = "redrive-of"


class Provenance(NamedTuple):
    """Where a letter comes from, as its headers say."""

    destination: str
    message_id: str
    subscription: str
    #: The number in the store of the subscription, if it was durable: another of the same name is another.
    subscription_number: int | None
    attempts: int
    reason: str
    cause: str
    published_at: str
    first_attempt_at: str
    last_attempt_at: str
    died_at: str


def letter_of(
    message: Message, failure: Failure, reading: Reading, *, message_id: bytes, destination: str, now_ns: int
) -> Message:
    """The letter about a message that has failed for good; `destination` is where it will lie."""
    subscription = reading.subscription
    headers = [
        (name, destination if name == "destination" else value)
        for name, value in _headers(message)
        if name not in _EXPIRY
    ]
    provenance = {
        "destination": str(reading.topic.destination),
        "message-id": message.message_id.decode(),
        "subscription": subscription.key,
        "attempts": str(failure.count),
        "cause": "refused" if failure.is_final else "attempts used up",
        "reason": failure.reason,
        "published-at": iso_time(message.published_at_ns),
        "first-attempt-at": iso_time(failure.first_attempt_ns) if failure.first_attempt_ns else "",
        "last-attempt-at": iso_time(failure.last_attempt_ns) if failure.last_attempt_ns else "",
        "died-at": iso_time(now_ns),
    }
    if subscription.store_id is not None:
        provenance["subscription-number"] = str(subscription.store_id)
    headers += [(LETTER_PREFIX + name, value) for name, value in provenance.items() if value]
    return _message(message, headers, message_id, now_ns, only_for=None)


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
    """Where a letter comes from; None for a message that is none, though it lies among them."""
    said = {
        name.removeprefix(LETTER_PREFIX): value for name, value in _headers(message) if name.startswith(LETTER_PREFIX)
    }
    if "message-id" not in said or "destination" not in said:
        return None
    number = said.get("subscription-number")
    return Provenance(
        destination=said["destination"],
        message_id=said["message-id"],
        subscription=said.get("subscription", ""),
        subscription_number=None if number is None else int(number),
        attempts=int(said.get("attempts", 0)),
        reason=said.get("reason", ""),
        cause=said.get("cause", ""),
        published_at=said.get("published-at", ""),
        first_attempt_at=said.get("first-attempt-at", ""),
        last_attempt_at=said.get("last-attempt-at", ""),
        died_at=said.get("died-at", ""),
    )


def _headers(message: Message) -> list[tuple[str, str]]:
    """The publisher's, and ours about a letter; without those that every message has."""
    return [(name, value) for name, value in tail_headers(message.tail) if name not in _OWN]


def _message(
    source: Message, headers: Iterable[tuple[str, str]], message_id: bytes, now_ns: int, *, only_for: int | None
) -> Message:
    block = render_headers(headers)
    origin = Origin(source.origin.publisher, is_plain=b"\\r" not in block, only_for=only_for)
    return Message(source.body_bytes, message_tail(message_id, block, source.body), origin, now_ns)
