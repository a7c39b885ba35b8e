"""A message: what is published once, kept once, and delivered to many.

Law: never changed once made. Hot path: one object per message published, so plain slots and no dataclass (0.2 against
0.7 µs to construct).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MESSAGE_OVERHEAD_BYTES", "Message", "Origin", "size_of_all", "tails_bytes"]

#: What a message costs beside the bytes of its tail: the objects around it.
MESSAGE_OVERHEAD_BYTES: Final = 200

_MESSAGE_ID: Final = b"message-id:"
_tail_of: Final = attrgetter("tail")


@final
class Origin:
    """What all messages that a client sends with one header block have in common. Shared, not copied."""

    __slots__ = (
        "can_expire",
        "expires_at_ns",
        "is_for_all_and_ever",
        "is_persistent",
        "is_plain",
        "lifetime_ns",
        "only_for",
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
    ) -> None:
        #: The name of the connection that published it: its `client-id`, or one that no other connection ever has.
        self.publisher = publisher
        #: Whether 1.1 may get the tail as it is: true unless a header holds a carriage return.
        self.is_plain = is_plain
        #: Whether it is stored where its topic is; the publisher may opt out.
        self.is_persistent = is_persistent
        #: How long after its publication it may still be delivered, and until when; None means for ever.
        self.lifetime_ns = lifetime_ns
        self.expires_at_ns = expires_at_ns
        #: The number in the store of the one durable subscription that it is for; None means for everybody.
        self.only_for = only_for
        self.can_expire = lifetime_ns is not None or expires_at_ns is not None
        #: Whether whoever reads it gets it, whenever.
        self.is_for_all_and_ever = only_for is None and not self.can_expire


@final
class Message:
    """One published message.

    Invariants:
        tail begins with the message-id header and ends with the body and one NUL
    """

    __slots__ = ("body_bytes", "origin", "published_at_ns", "tail")

    def __init__(self, body_bytes: int, tail: bytes, origin: Origin, published_at_ns: int) -> None:
        self.body_bytes = body_bytes
        #: Everything of the MESSAGE frame that all receivers share, from `message-id` to NUL, rendered for STOMP 1.2.
        self.tail = tail
        self.origin = origin
        self.published_at_ns = published_at_ns

    @property
    def message_id(self) -> bytes:
        """Taken from the tail: needed seldom, and not worth a slot in every message."""
        return self.tail[len(_MESSAGE_ID) : self.tail.index(b"\n")]

    @property
    def body(self) -> bytes:
        return self.tail[-1 - self.body_bytes : -1]

    @property
    def expires_at_ns(self) -> int | None:
        """From when on it is not delivered any more."""
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
        """What it is charged with in the memory budget."""
        return len(self.tail) + MESSAGE_OVERHEAD_BYTES

    def without_body(self) -> Message:
        """What is to be known of it when it has been settled: a message like it whose tail is its id alone."""
        return Message(self.body_bytes, self.tail[: self.tail.index(b"\n") + 1], self.origin, self.published_at_ns)

    def __repr__(self) -> str:
        return f"Message({self.message_id!r}, {self.body_bytes} bytes)"


def tails_bytes(messages: Sequence[Message]) -> int:
    """The length of all tails together. Hot path: no step of it is Python."""
    return sum(map(len, map(_tail_of, messages)))


def size_of_all(messages: Sequence[Message]) -> int:
    """`size_bytes` of all of them together."""
    return tails_bytes(messages) + MESSAGE_OVERHEAD_BYTES * len(messages)
