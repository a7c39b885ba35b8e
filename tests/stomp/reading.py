"""What a reader makes of a byte stream, in a form that can be compared.

Law: values only. How a stream was cut into chunks must not show in an `Outcome`, so runs, which the reader
hands over as one object where frames came together, are taken apart into the frames they stand for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.errors import PeerViolation
from stompbroker.stomp import AnswerRun, Connection, Frame, FrameReader, Head, Limits, SendRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stompbroker.stomp import Version

DEFAULT_LIMITS: Final = Limits()


class Seen(NamedTuple):
    """One frame."""

    command: str
    headers: dict[str, str]
    body: bytes = b""
    receipt: str | None = None


class Outcome(NamedTuple):
    """All frames of a stream, and the summary of the violation that ended it, if one did."""

    frames: list[Seen]
    violation: str | None = None


def one_by_one(frames: Iterable[Frame]) -> Iterator[Frame]:
    """The frames as they stood on the wire, runs taken apart."""
    for frame in frames:
        if isinstance(frame, SendRun):
            nothing = [None] * len(frame.bodies)
            each = zip(frame.bodies, frame.receipts or nothing, frame.sequences or nothing, strict=True)
            for body, receipt, sequence in each:
                yield Frame(frame.head, body, receipt, sequence)
        elif isinstance(frame, AnswerRun):
            for ordinal, number in frame.ids:
                yield Frame(Head(frame.command, {"id": f"{ordinal.decode()}-{number.decode()}"}, -1), b"", None)
        else:
            yield frame


def flattened(frames: Iterable[Frame]) -> Iterator[Seen]:
    for frame in one_by_one(frames):
        numbered = {} if frame.sequence is None else {"producer-seq": frame.sequence}
        yield Seen(frame.command, frame.headers | numbered, frame.body, frame.receipt)


def reader(version: Version | None = None, limits: Limits = DEFAULT_LIMITS) -> FrameReader:
    made = FrameReader(limits)
    if version is not None:
        made.version = version
    return made


def connection(limits: Limits = DEFAULT_LIMITS) -> Connection:
    return Connection(limits, 100, 1000)


def outcome(receiver: FrameReader | Connection, chunks: Iterable[bytes]) -> Outcome:
    """Feed the chunks as a worker does: after each one, everything that it completes is taken."""
    frames: list[Seen] = []
    try:
        for chunk in chunks:
            frames += flattened(receiver.receive(chunk))
            if isinstance(receiver, Connection):
                receiver.admit()
            while receiver.has_more:
                frames += flattened(receiver.receive(b""))
    except PeerViolation as violation:
        return Outcome(frames, violation.summary)
    return Outcome(frames)


def read_stream(chunks: Iterable[bytes], version: Version | None = None, limits: Limits = DEFAULT_LIMITS) -> Outcome:
    return outcome(reader(version, limits), chunks)


def cuts(stream: bytes) -> Iterator[list[bytes]]:
    """The stream whole, byte by byte, and in two pieces at every place; around each place also a single byte alone."""
    yield [stream]
    yield [stream[at : at + 1] for at in range(len(stream))]
    for at in range(1, len(stream)):
        yield [stream[:at], stream[at:]]
        yield [stream[:at], stream[at : at + 1], stream[at + 1 :]]
