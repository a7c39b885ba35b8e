"""Remembers the header blocks that repeat.

Law: block of bytes → `Head`, per connection, bounded in bytes; forgetting is always allowed. A publisher sends the
same block over and over, so parsing it once saves most of the work of reading a frame (`make bench`, topic 1→1).
A block is kept when it is seen for the second time: frames that never repeat, such as ACKs or messages
with an id of their own in the headers, cost a hash and push nothing out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from stompbroker.stomp.frame import Head

__all__ = ["HeadMemo"]

#: Bytes of blocks remembered per connection. A publisher to fifty destinations with 300-byte blocks fits.
MAX_KNOWN_BYTES = 16 * 1024
#: Hashes of blocks seen once that we keep waiting for their second time.
MAX_SEEN_ONCE = 256


@final
class HeadMemo:
    """
    Invariants:
        sum of the lengths of the blocks in `known` == _known_bytes <= MAX_KNOWN_BYTES
        len(_seen_once) <= MAX_SEEN_ONCE
    """

    __slots__ = ("_known_bytes", "_seen_once", "known")

    def __init__(self) -> None:
        #: Read by the hot loop of the frame reader, written here only.
        self.known: dict[bytes, Head] = {}
        self._known_bytes = 0
        self._seen_once: set[int] = set()

    def offer(self, block: bytes, head: Head) -> None:
        """Tell the memo what a block it did not know turned out to be."""
        fingerprint = hash(block)
        if fingerprint not in self._seen_once:
            if len(self._seen_once) >= MAX_SEEN_ONCE:
                self._seen_once.clear()
            self._seen_once.add(fingerprint)
            return
        self._seen_once.discard(fingerprint)
        if len(block) > MAX_KNOWN_BYTES:
            return
        if self._known_bytes + len(block) > MAX_KNOWN_BYTES:
            # Starting over is as good as any eviction order here: what is in use comes back within two frames.
            self.known.clear()
            self._known_bytes = 0
        self.known[block] = head
        self._known_bytes += len(block)

    def clear(self) -> None:
        """Forget everything, for instance because the version, and with it the meaning of bytes, has changed."""
        self.known.clear()
        self._known_bytes = 0
        self._seen_once.clear()

    def check_invariants(self) -> None:
        assert sum(map(len, self.known)) == self._known_bytes <= MAX_KNOWN_BYTES
        assert len(self._seen_once) <= MAX_SEEN_ONCE
