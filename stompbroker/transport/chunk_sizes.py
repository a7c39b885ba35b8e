"""How much to read from a connection at once.

Law: a busy connection is read in large chunks, an idle one keeps no large buffer waiting, and the more connections are
busy at the same time, the smaller each one's chunks: a chunk is the unit of unfairness.
"""

from __future__ import annotations

from typing import Final, final

__all__ = ["ChunkSizes"]

MIN_BYTES: Final = 4 * 1024
#: For one busy connection alone. Beyond it nothing is gained: the cost per chunk is already lost in that of its frames.
MAX_BYTES: Final = 256 * 1024
#: What a connection may still read when very many are busy.
FAIR_MIN_BYTES: Final = 16 * 1024


@final
class ChunkSizes:
    """Shared by all connections; each keeps its current size and asks for the next.

    Invariants:
        _busy == number of connections whose current size is above MIN_BYTES
    """

    __slots__ = ("_busy",)

    def __init__(self) -> None:
        self._busy = 0

    def next(self, size: int, received: int) -> int:
        """The size after a read that asked for `size` and got `received` bytes."""
        if received >= size:
            wanted = size * 4
        elif received < size // 4:
            wanted = size // 2
        else:
            wanted = size
        bound = max(FAIR_MIN_BYTES, MAX_BYTES // max(1, self._busy))
        wanted = max(MIN_BYTES, min(wanted, bound))
        self._busy += (wanted > MIN_BYTES) - (size > MIN_BYTES)
        return wanted

    def leave(self, size: int) -> None:
        """A connection with this current size is gone."""
        self._busy -= size > MIN_BYTES
