"""What a subscriber answers to the messages it gets.

Bytes in, bytes out; the result does not depend on where the stream is cut into buffers. Poison is a message whose body
begins with `frames.POISON`. Frames are only inspected if the buffer contains it, so looking for it costs almost
nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, final

from benchmarks.frame_counting import AckIdReader, CompleteFrames, ack_ids_in
from benchmarks.frames import POISON, acknowledge_all, refuse_all

_POISONED_BODY: Final = b"\n\n" + POISON
_REDELIVERED: Final = b"\nredelivered:true\n"
_EVERY: Final = 10


class Answer(NamedTuple):
    #: Messages answered.
    messages: int
    frames: bytes


class Answering(Protocol):
    def answer(self, chunk: bytes) -> Answer:
        """The answers to the messages that `chunk` completes."""


@final
class AcknowledgeAll:
    __slots__ = ("_ack_ids",)

    def __init__(self) -> None:
        self._ack_ids = AckIdReader()

    def answer(self, chunk: bytes) -> Answer:
        ack_ids = self._ack_ids.read(chunk)
        return Answer(len(ack_ids), acknowledge_all(ack_ids))


@final
class RefuseAll:
    __slots__ = ("_ack_ids",)

    def __init__(self) -> None:
        self._ack_ids = AckIdReader()

    def answer(self, chunk: bytes) -> Answer:
        ack_ids = self._ack_ids.read(chunk)
        return Answer(len(ack_ids), refuse_all(ack_ids))


@final
class NoticePoison:
    """Acknowledges everything, or everything but poison, which it refuses each time.

    `poisoned` counts deliveries of poison, `redelivered` those marked as redeliveries.
    """

    __slots__ = ("_frames", "_refuses", "poisoned", "redelivered")

    def __init__(self, *, refuses: bool) -> None:
        self._frames = CompleteFrames()
        self._refuses = refuses
        self.poisoned = 0
        self.redelivered = 0

    def answer(self, chunk: bytes) -> Answer:
        frames = self._frames.take(chunk)
        ack_ids = ack_ids_in(frames)
        self.redelivered += frames.count(_REDELIVERED)
        if _POISONED_BODY not in frames:
            return Answer(len(ack_ids), acknowledge_all(ack_ids))
        poisoned = [frame for frame in frames.split(b"\0") if _POISONED_BODY in frame]
        self.poisoned += len(poisoned)
        if not self._refuses:
            return Answer(len(ack_ids), acknowledge_all(ack_ids))
        refused = [ack_id for frame in poisoned for ack_id in ack_ids_in(frame)]
        taken = [ack_id for ack_id in ack_ids if ack_id not in refused]
        return Answer(len(ack_ids), acknowledge_all(taken) + refuse_all(refused))


@final
class RefuseEveryTenthOnce:
    """Refuses every tenth message once, and acknowledges all others and redeliveries.

    Invariant: `refused` is a tenth of the first deliveries, rounded down.
    """

    __slots__ = ("_frames", "_new", "refused")

    def __init__(self) -> None:
        self._frames = CompleteFrames()
        self._new = 0
        self.refused = 0

    def answer(self, chunk: bytes) -> Answer:
        frames = self._frames.take(chunk)
        ack_ids = ack_ids_in(frames)
        new = ack_ids if _REDELIVERED not in frames else self._new_among(frames)
        refused = new[_EVERY - 1 - self._new % _EVERY :: _EVERY]
        self._new += len(new)
        self.refused += len(refused)
        refused_ids = frozenset(refused)
        taken = [ack_id for ack_id in ack_ids if ack_id not in refused_ids]
        return Answer(len(ack_ids), acknowledge_all(taken) + refuse_all(refused))

    def _new_among(self, frames: bytes) -> list[bytes]:
        first_time = [frame for frame in frames.split(b"\0") if _REDELIVERED not in frame]
        return ack_ids_in(b"\0".join(first_time))
