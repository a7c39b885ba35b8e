"""A message: published once, kept once, delivered to many; and the ids of messages.

Law: a message is never changed. Hot path: one object per message, so plain slots and no dataclass (0.2 against 0.7 µs
to construct).
"""

from __future__ import annotations

import secrets
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.ids import ConnectionId

#: What a message costs beside the bytes of its tail.
MESSAGE_OVERHEAD_BYTES: Final = 200

_MESSAGE_ID: Final = b"message-id:"
_tail_of: Final = attrgetter("tail")
#: Of a message. Asked of each, so without a call in Python.
is_persistent: Final = attrgetter("origin.is_persistent")


@final
class Origin:
    """What all messages with one header block have in common. Shared, not copied."""

    __slots__ = (
        "can_expire",
        "expires_at_ns",
        "group_key",
        "is_for_all_and_ever",
        "is_ordinary",
        "is_persistent",
        "is_plain",
        "lifetime_ns",
        "only_for",
        "outcome_to",
        "publisher",
    )

    def __init__(
        self,
        publisher: str,
        *,
        is_plain: bool,
        is_persistent: bool = True,
        lifetime_ns: int | None = None,
        expires_at_ns: int | None = None,
        only_for: int | None = None,
        group_key: str | None = None,
        outcome_to: str | None = None,
    ) -> None:
        #: The name of the publishing connection: its `client-id`, or one that no other connection ever has.
        self.publisher = publisher
        #: Whether STOMP 1.1 may get the tail as it is: no header holds a carriage return.
        self.is_plain = is_plain
        #: Whether it is stored where its topic is; the publisher may opt out.
        self.is_persistent = is_persistent
        #: How long after publication it may be delivered, and until when; None means for ever.
        self.lifetime_ns = lifetime_ns
        self.expires_at_ns = expires_at_ns
        #: The store's number of the one durable subscription that it is for; None means for everybody.
        self.only_for = only_for
        #: Consumers of a queue or group get messages with one key one after the other.
        self.group_key = group_key
        #: The key of the destination where its publisher wants to be told what became of it; None means nowhere.
        self.outcome_to = outcome_to
        self.can_expire = lifetime_ns is not None or expires_at_ns is not None
        #: Whether every subscription gets it, whenever it reads.
        self.is_for_all_and_ever = only_for is None and not self.can_expire
        #: Whether the store can leave out all that most messages do not have.
        self.is_ordinary = self.is_for_all_and_ever and group_key is None and outcome_to is None


@final
class Message:
    """One published message.

    Invariants:
        tail begins with the message-id header and ends with the body and one NUL
    """

    __slots__ = ("body_bytes", "origin", "published_at_ns", "tail")

    def __init__(self, body_bytes: int, tail: bytes, origin: Origin, published_at_ns: int) -> None:
        self.body_bytes = body_bytes
        #: The part of the MESSAGE frame that all receivers share, from `message-id` to NUL, rendered for STOMP 1.2.
        self.tail = tail
        self.origin = origin
        self.published_at_ns = published_at_ns

    @property
    def message_id(self) -> bytes:
        """Cut from the tail: seldom needed, and not worth a slot in every message."""
        return self.tail[len(_MESSAGE_ID) : self.tail.index(b"\n")]

    @property
    def body(self) -> bytes:
        return self.tail[-1 - self.body_bytes : -1]

    @property
    def expires_at_ns(self) -> int | None:
        lifetime_ns, expires_at_ns = self.origin.lifetime_ns, self.origin.expires_at_ns
        if lifetime_ns is None:
            return expires_at_ns
        ends_at_ns = self.published_at_ns + lifetime_ns
        return ends_at_ns if expires_at_ns is None else min(ends_at_ns, expires_at_ns)

    def has_expired(self, now_ns: int) -> bool:
        expires_at_ns = self.expires_at_ns
        return expires_at_ns is not None and expires_at_ns <= now_ns

    @property
    def size_bytes(self) -> int:
        """Its charge to the memory budget."""
        return len(self.tail) + MESSAGE_OVERHEAD_BYTES

    def without_body(self) -> Message:
        """What the ledger needs when it is settled: the same message with only its id for a tail."""
        return Message(self.body_bytes, self.tail[: self.tail.index(b"\n") + 1], self.origin, self.published_at_ns)

    def __repr__(self) -> str:
        return f"Message({self.message_id!r}, {self.body_bytes} bytes)"


def tails_bytes(messages: Sequence[Message]) -> int:
    """The length of all tails together. Hot path: no loop in Python."""
    return sum(map(len, map(_tail_of, messages)))


def size_of_all(messages: Sequence[Message]) -> int:
    return sum(map(len, map(_tail_of, messages))) + MESSAGE_OVERHEAD_BYTES * len(messages)


@final
class MessageIds:
    """Makes message ids, unique for all time: which store, which start of it, and a running number."""

    __slots__ = ("_start_number", "next_number", "prefix", "store_id")

    def __init__(self, store_id: str, start_number: int) -> None:
        self.store_id = store_id
        self._start_number = start_number
        self.prefix = f"{store_id}-{start_number}-".encode()
        #: Advanced by the sessions' hot loop, which makes the ids itself.
        self.next_number = 1

    @classmethod
    def for_memory(cls) -> MessageIds:
        """For a broker without a store: each start makes up a name."""
        return cls(secrets.token_hex(4), 1)

    def make(self) -> bytes:
        number = self.next_number
        self.next_number = number + 1
        return b"%b%d" % (self.prefix, number)

    def connection_name(self, connection_id: ConnectionId) -> str:
        """The name of a connection without a client id: unique for all time."""
        return f"{self.prefix.decode()}{connection_id}"

    def was_made(self, message_id: str) -> bool:
        """Whether this broker has made that id since it started, or an earlier one on this store."""
        store_id, _, rest = message_id.partition("-")
        start, _, number = rest.partition("-")
        if store_id != self.store_id or not all(_is_number(text) for text in (start, number)):
            return False
        if int(start) == self._start_number:
            return int(number) < self.next_number
        return int(start) < self._start_number


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and not text.startswith("0")
