"""How much to read from a connection at once.

Law: a connection that is busy alone is read in large chunks. The more often others are read between two of its reads,
the smaller its chunks, because everybody else waits for a chunk. Large bodies are read in larger ones, since there is
little to do for them but to receive them. An idle connection keeps no large buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

MIN_BYTES: Final = 4 * 1024
#: For a connection that is busy alone. More gains nothing: the cost per chunk is small beside that of its frames.
MAX_BYTES: Final = 256 * 1024
#: For large bodies, on a connection that is busy alone: receiving it takes 0.2 ms.
MAX_BODY_BYTES: Final = 1024 * 1024
#: For a busy connection beside any number of others.
FAIR_BYTES: Final = 16 * 1024


@final
@dataclass(slots=True, eq=False)
class Traffic:
    """How many chunks all connections have read together."""

    reads: int = 0


@final
class ChunkSize:
    """How much one connection asks for next."""

    __slots__ = ("_others", "_reads_at_last", "_traffic", "size_bytes")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._reads_at_last = traffic.reads
        #: How many chunks others read between the last two of this connection.
        self._others = 0
        self.size_bytes = MIN_BYTES

    def note(self, received_bytes: int) -> None:
        """After a read: ask for four times as much if the chunk was full, else for twice what came. A connection must
        not wait for its next bytes with a large buffer."""
        others = self._others = self._traffic.reads - self._reads_at_last
        self._traffic.reads += 1
        self._reads_at_last = self._traffic.reads
        was_filled = received_bytes >= self.size_bytes
        size_bytes = received_bytes * (4 if was_filled else 2)
        bound_bytes = max(FAIR_BYTES, MAX_BYTES // (1 + others))
        self.size_bytes = max(MIN_BYTES, min(size_bytes, bound_bytes))

    def within_body(self, awaited_bytes: int) -> int:
        """How much to ask for when so many bytes complete a large frame; 0 if none has begun.

        A rest that fits in a chunk is read with those that follow it: bodies of 64 KiB took half as much processor time
        again when four were read at once, not sixteen. No byte of the next frame is received with a larger rest,
        because it would have to be copied.
        """
        most_bytes = MAX_BODY_BYTES // (1 + self._others)
        if awaited_bytes > self.size_bytes:
            return max(self.size_bytes, min(awaited_bytes, most_bytes))
        return min(4 * self.size_bytes, most_bytes) if awaited_bytes else self.size_bytes
