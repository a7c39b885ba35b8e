"""What a client has said between BEGIN and COMMIT.

Law: gathers frames per transaction id, in order, within the limits; knows nothing of what they do. Ids are unique
among the open transactions of one connection and may be used again afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.frame import weight_bytes

if TYPE_CHECKING:
    from collections.abc import Set

    from stompbroker.stomp.frame import Frame
    from stompbroker.stomp.limits import Limits

__all__ = ["Transactions"]


@final
class _Open:
    __slots__ = ("frames", "size_bytes")

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.size_bytes = 0


@final
class Transactions:
    """The open transactions of one connection.

    Invariants:
        size_bytes == sum of what the frames of all open transactions weigh
        len(open) <= limits.max_transactions; each within max_transaction_frames and max_transaction_bytes
    """

    __slots__ = ("_limits", "_open", "size_bytes")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, _Open] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, transaction: object) -> bool:
        return transaction in self._open

    def names(self) -> Set[str]:
        return self._open.keys()

    def begin(self, transaction: str) -> None:
        if transaction in self._open:
            raise PeerViolation(
                "transaction already open",
                f"{transaction!r} has been begun and neither committed nor aborted; use another name",
            )
        if len(self._open) >= self._limits.max_transactions:
            raise PeerViolation(
                "too many transactions",
                f"{len(self._open)} are open on this connection, which is all it may have; COMMIT or ABORT one first",
            )
        self._open[transaction] = _Open()

    def add(self, transaction: str, frame: Frame) -> None:
        """Keep a SEND, ACK or NACK for COMMIT."""
        gathered = self._gathered(transaction)
        size_bytes = weight_bytes(frame)
        if len(gathered.frames) >= self._limits.max_transaction_frames:
            raise PeerViolation(
                "transaction too long",
                f"{transaction!r} holds {len(gathered.frames)} frames, which is all a transaction may hold; "
                "COMMIT more often",
            )
        if gathered.size_bytes + size_bytes > self._limits.max_transaction_bytes:
            raise PeerViolation(
                "transaction too large",
                f"{transaction!r} would hold more than {self._limits.max_transaction_bytes} bytes; COMMIT more often",
            )
        gathered.frames.append(frame)
        gathered.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def frames(self, transaction: str) -> list[Frame]:
        """What has been gathered so far."""
        return self._gathered(transaction).frames

    def end(self, transaction: str) -> list[Frame]:
        """Close the transaction, by COMMIT or ABORT, and hand over its frames in order."""
        gathered = self._gathered(transaction)
        del self._open[transaction]
        self.size_bytes -= gathered.size_bytes
        return gathered.frames

    def clear(self) -> None:
        """Open transactions end with their connection, and nothing of them happens."""
        self._open.clear()
        self.size_bytes = 0

    def _gathered(self, transaction: str) -> _Open:
        try:
            return self._open[transaction]
        except KeyError:
            known = ", ".join(repr(name) for name in list(self._open)[:8]) or "none"
            raise PeerViolation(
                "unknown transaction", f"{transaction!r} is not open on this connection; open are: {known}"
            ) from None

    def check_invariants(self) -> None:
        assert self.size_bytes == sum(gathered.size_bytes for gathered in self._open.values())
        assert len(self._open) <= self._limits.max_transactions
        for gathered in self._open.values():
            assert gathered.size_bytes == sum(map(weight_bytes, gathered.frames))
            assert len(gathered.frames) <= self._limits.max_transaction_frames
