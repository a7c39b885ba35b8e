"""Chunks that are not yet read, each copied as seldom as can be."""

from __future__ import annotations

from typing import Final, final

#: The next chunk is appended to a piece shorter than this, unless it is large itself.
SMALL_PIECE_BYTES: Final = 4096
#: A frame from this size on is not joined before its body is cut out of it.
LARGE_FRAME_BYTES: Final = 16 * 1024

_NUL: Final = 0


@final
class Pieces:
    """
    Invariants:
        size_bytes == total length of _pieces, of which none is empty
    """

    __slots__ = ("_pieces", "size_bytes")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size_bytes = 0

    def append(self, chunk: bytes) -> None:
        """Small ones are joined, or objects would take more memory than bytes."""
        self.size_bytes += len(chunk)
        if self._pieces and len(self._pieces[-1]) < SMALL_PIECE_BYTES and len(chunk) < LARGE_FRAME_BYTES:
            self._pieces[-1] += chunk
        else:
            self._pieces.append(chunk)

    def joined(self) -> bytes:
        """All of it. It is kept until `keep` says what of it is left."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def keep(self, rest: bytes) -> None:
        """This alone is left."""
        self.size_bytes = len(rest)
        self._pieces = [rest] if rest else []

    @property
    def first(self) -> bytes:
        return self._pieces[0]

    def has_frame_in_pieces(self, frame_bytes: int) -> bool:
        """Whether a large frame begins here that ends, as it should, in the last of several pieces."""
        in_last = frame_bytes - self.size_bytes + len(self._pieces[-1])
        is_large = frame_bytes >= LARGE_FRAME_BYTES and len(self._pieces) > 1
        return is_large and in_last > 0 and self._pieces[-1][in_last - 1] == _NUL

    def take_body(self, body_at: int, frame_bytes: int) -> tuple[bytes, int]:
        """The body of the frame that begins here, joined once; `body_at` is in the first piece. Only the last piece is
        kept, and all of it, since it may be large: also returns where in it the next frame begins."""
        first, *between, last = self._pieces
        in_last = frame_bytes - self.size_bytes + len(last)
        body = b"".join([memoryview(first)[body_at:], *between, memoryview(last)[: in_last - 1]])
        self.keep(last)
        return body, in_last
