"""How much of what a client may send us.

Law: every limit has a unit and bounds one thing a client could otherwise grow without end. The defaults are
those of `stompbroker.config`, which builds this value from the settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

__all__ = ["Limits"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on frames and transactions of one connection."""

    #: Header lines in one frame.
    max_header_count: int = 256
    #: Bytes of command and header lines together. Real clients stay under 2 KiB.
    max_header_bytes: int = 32 * 1024
    #: Bytes of one body.
    max_body_bytes: int = 16 * 1024 * 1024
    #: Transactions open at the same time.
    max_transactions: int = 64
    #: Frames gathered in one transaction; they are applied in one synchronous step at COMMIT.
    max_transaction_frames: int = 1024
    #: Bytes gathered in one transaction.
    max_transaction_bytes: int = 16 * 1024 * 1024
