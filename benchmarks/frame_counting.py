"""Counts and searches a stream of frames without parsing each frame.

Results do not depend on where the stream is cut into buffers. A NUL ends a frame and occurs nowhere else (see
`frames`), so counting NULs counts frames; for headers and bodies, regular expressions run over all complete frames of a
buffer, and the incomplete rest is kept for the next one.

On the hot path of the generator: `bytearray.count` reads 1.2 to 3.6 GB a second, a loop over frames a quarter of a
million frames. Large frames are therefore searched for one by one, at the speed of memory.
"""

from __future__ import annotations

import re
from typing import Final, Protocol, final

_NUL: Final = b"\0"
#: From this mean size on, frames are searched for one by one.
_LARGE_FRAME_BYTES: Final = 8 * 1024
_ACK_LINE: Final = re.compile(rb"\nack:([^\r\n]+)")
_STAMPED_BODY: Final = re.compile(rb"\n(\d{10}) (\d{19}) ")


class StreamCounter(Protocol):
    """Counts the frames and bytes of one stream, in any protocol."""

    @property
    def frames(self) -> int: ...
    @property
    def byte_count(self) -> int: ...
    def count(self, buffer: bytearray, length: int) -> None:
        """Count what the first `length` bytes of `buffer` bring."""


@final
class FrameCounter:
    """Counts the frames and bytes of one stream.

    Invariant: `frames` is the number of NUL bytes in the first `byte_count` bytes of the stream.
    """

    __slots__ = ("byte_count", "frames")

    def __init__(self) -> None:
        self.frames = 0
        self.byte_count = 0

    def count(self, buffer: bytearray, length: int) -> None:
        """Count what the first `length` bytes of `buffer` bring."""
        if self.byte_count > self.frames * _LARGE_FRAME_BYTES:
            end = buffer.find(_NUL, 0, length)
            while end >= 0:
                self.frames += 1
                end = buffer.find(_NUL, end + 1, length)
        else:
            self.frames += buffer.count(_NUL, 0, length)
        self.byte_count += length


@final
class CompleteFrames:
    """Cuts a stream after its last NUL and keeps the rest.

    Invariant: `_rest` holds no NUL.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> bytes:
        joined = self._rest + chunk if self._rest else chunk
        end = joined.rfind(_NUL) + 1
        self._rest = joined[end:]
        return joined[:end]


@final
class AckIdReader:
    """Finds the `ack` ids of all MESSAGE frames in a stream, in order."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames = CompleteFrames()

    def read(self, chunk: bytes) -> list[bytes]:
        """The ids in the frames that `chunk` completes."""
        return ack_ids_in(self._frames.take(chunk))


def ack_ids_in(frames: bytes) -> list[bytes]:
    """The `ack` ids in complete frames, still escaped."""
    return _ACK_LINE.findall(frames)


def stamped_body(number: int, due_at_ns: int, *, body_bytes: int) -> bytes:
    """A body with its number in a schedule and its due time; at least 31 bytes long."""
    return (b"%010d %019d " % (number, due_at_ns)).ljust(body_bytes, b"x")


@final
class StampReader:
    """Reads the stamps of `stamped_body` in all MESSAGE frames of a stream, in order."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames = CompleteFrames()

    def read(self, chunk: bytes) -> list[tuple[int, int]]:
        """Number and due time (ns) of every message that `chunk` completes."""
        found = _STAMPED_BODY.findall(self._frames.take(chunk))
        return [(int(number), int(due_at_ns)) for number, due_at_ns in found]
