"""What messages are called.

Law: an id is made once, for all time and over all starts of a store, and whether one was made can be told from it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from stompbroker.ids import ConnectionId

__all__ = ["MessageIds"]

#: Bytes of randomness in a store's name, written in hexadecimal.
STORE_ID_BYTES: Final = 4


@final
class MessageIds:
    """Makes message ids: which store, which start of it, and a running number; unique for all time."""

    __slots__ = ("_start_number", "_store_id", "next_number", "prefix")

    def __init__(self, store_id: str, start_number: int) -> None:
        self._store_id = store_id
        self._start_number = start_number
        self.prefix = f"{store_id}-{start_number}-".encode()
        #: Advanced by the sessions' hot loop, which makes the ids itself.
        self.next_number = 1

    @classmethod
    def for_memory(cls) -> MessageIds:
        """For a broker without a store: every start is its first, and makes up a name."""
        return cls(secrets.token_hex(STORE_ID_BYTES), 1)

    def make(self) -> bytes:
        """One more."""
        number = self.next_number
        self.next_number = number + 1
        return b"%b%d" % (self.prefix, number)

    def connection_name(self, connection_id: ConnectionId) -> str:
        """What a connection is called that has no client id: like no other, for all time."""
        return f"{self.prefix.decode()}{connection_id}"

    def was_made(self, message_id: str) -> bool:
        """Whether a broker has given that id to a message: this one since it started, or an earlier one on this
        store."""
        store_id, _, rest = message_id.partition("-")
        start, _, number = rest.partition("-")
        if store_id != self._store_id or not all(_is_number(text) for text in (start, number)):
            return False
        if int(start) == self._start_number:
            return int(number) < self.next_number
        return int(start) < self._start_number


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and not text.startswith("0")
