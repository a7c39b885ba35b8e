"""A transaction: gathered here, and sent as a whole when its block ends.

Law: before its end the broker knows nothing of it. So what is lost before COMMIT was never begun, and an ACK in it
gives no credit back: it can acknowledge as many messages as the prefetch allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.client.errors import OutboxFull, TransactionLost
from stompbroker.client.requests import Kind, Part, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.client.link import Link

#: Headers that the client sets itself.
_OWN: Final = frozenset({"destination", "receipt", "content-length"})


def send_part(destination: str, body: bytes, headers: Mapping[str, str] | None, *, persistent: bool | None) -> Part:
    """Raises ValueError."""
    given = [] if headers is None else list(headers.items())
    for name, _ in given:
        if name in _OWN:
            raise ValueError(f"the header {name!r} is set by the client; {', '.join(sorted(_OWN))} are")
    if persistent is not None:
        given.append(("persistent", "true" if persistent else "false"))
    return Part("SEND", [("destination", destination), *given], body)


@final
class Transaction:
    """
    Invariants:
        all answers in it are for messages of `_link`
        `_size_bytes` <= `_max_bytes`, unless there is only one part
    """

    def __init__(self, name: str, max_bytes: int) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._parts: list[Part] = []
        self._size_bytes = 0
        self._link: Link | None = None
        self._is_lost = False

    def publish(
        self,
        destination: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        persistent: bool | None = None,
    ) -> None:
        """At COMMIT. Raises OutboxFull if it would become too large."""
        self._add(send_part(destination, body, headers, persistent=persistent))

    def add_answer(self, link: Link, part: Part) -> None:
        """`Message.ack` and `nack` call this. Raises TransactionLost if its connection is lost, or another's is."""
        if not link.is_open or self._link not in (None, link):
            self._is_lost = True
        self._check()
        self._link = link
        self._add(part)

    def _add(self, part: Part) -> None:
        size_bytes = part.size_bytes
        if self._parts and self._size_bytes + size_bytes > self._max_bytes:
            raise OutboxFull(f"A transaction may have {self._max_bytes:,} bytes (max_unconfirmed_bytes).")
        self._size_bytes += size_bytes
        self._parts.append(part)

    def as_request(self, receipt: str) -> Request | None:
        """All of it; None if there is nothing in it. Raises TransactionLost."""
        self._check()
        if not self._parts:
            return None
        named = ("transaction", self._name)
        parts = [Part(part.command, [*part.headers, named], part.body) for part in self._parts]
        whole = [Part("BEGIN", [named]), *parts, Part("COMMIT", [named])]
        return Request(kind=Kind.COMMIT, what="The transaction", parts=whole, receipt=receipt, link=self._link)

    def _check(self) -> None:
        if self._is_lost:
            raise TransactionLost(
                "The connection that a message of the transaction came over was lost: the message comes again, and "
                "nothing of the transaction was done."
            )
