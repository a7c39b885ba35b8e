"""What a frame is once it has been read.

Law: values only. Hot path: there is one `Head` per *distinct* header block (see `head_memo`), so whatever can be known
from the block alone belongs to it; and frames that come in numbers, SENDs with one head and bare answers, come as one
object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["AnswerRun", "Frame", "Head", "SendRun", "one_by_one", "weight_bytes"]

#: What a header costs beside its text: two strings and its place in the dictionary.
HEADER_OVERHEAD_BYTES: Final = 150
#: What a frame costs beside its body and its head.
FRAME_OVERHEAD_BYTES: Final = 256

_TURNING_POINTS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED", "DISCONNECT"})


@final
class Head:
    """Command and headers of a frame: unescaped, the first of repeated headers winning, without `receipt`.

    `receipt` is kept on the frame, because it is the one header that differs where all others repeat.
    """

    __slots__ = ("command", "content_length", "headers", "is_plain_send", "is_turning_point", "plan", "size_bytes")

    def __init__(self, command: str, headers: dict[str, str], content_length: int) -> None:
        self.command = command
        self.headers = headers
        #: -1 when the frame did not say; then its body ends at the first NUL.
        self.content_length = content_length
        #: What it costs in memory, roughly: the texts, and the objects around each of them.
        self.size_bytes = sum([len(name) + len(value) + HEADER_OVERHEAD_BYTES for name, value in headers.items()])
        #: Whether what follows means something else (another version) or nothing at all (after DISCONNECT).
        self.is_turning_point = command in _TURNING_POINTS
        #: Whether frames with this head can be taken together as a `SendRun`.
        self.is_plain_send = command == "SEND" and "transaction" not in headers
        #: A place for whoever acts on frames to keep what it derived from this head: equal blocks share one Head,
        #: so it is derived once and found again without a look-up. The protocol itself never touches it.
        self.plan: object = None

    def __repr__(self) -> str:
        return f"Head({self.command!r}, {self.headers!r})"


class Frame:
    """One frame: a head, a body, and the receipt its sender asked for."""

    __slots__ = ("body", "head", "receipt")

    def __init__(self, head: Head, body: bytes, receipt: str | None) -> None:
        self.head = head
        self.body = body
        self.receipt = receipt

    @property
    def command(self) -> str:
        return self.head.command

    @property
    def headers(self) -> dict[str, str]:
        return self.head.headers

    def __repr__(self) -> str:
        return f"Frame({self.command!r}, {self.headers!r}, body={self.body!r}, receipt={self.receipt!r})"


@final
class SendRun(Frame):
    """SEND frames in a row with one head and no transaction.

    A publisher's frames differ in their bodies and receipts alone; an object for each would cost as much as finding it.
    `body` and `receipt` are those of the first.
    """

    __slots__ = ("bodies", "receipts")

    def __init__(self, head: Head, body: bytes, receipt: str | None) -> None:
        super().__init__(head, body, receipt)
        self.bodies = [body]
        #: As many as bodies, or empty if none of them has one.
        self.receipts: list[str | None] = [] if receipt is None else [receipt]

    def append_with_receipt(self, body: bytes, receipt: str | None) -> None:
        """For a run in which not every receipt is missing."""
        if not self.receipts:
            self.receipts.extend([None] * len(self.bodies))
        self.bodies.append(body)
        self.receipts.append(receipt)


_ANSWER_HEADS: Final = {command: Head(command, {}, -1) for command in ("ACK", "NACK")}


@final
class AnswerRun(Frame):
    """Many ACK frames, or many NACK frames, in a row that carry an `id` of the form NUMBER-NUMBER and nothing else.

    A consumer that acknowledges every message sends little else, and taking its ACKs together costs a tenth of taking
    them one by one (`make bench`, ack'd 1→1). One that refuses everything must not cost others more than that.
    """

    __slots__ = ("ids",)

    def __init__(self, command: str, ids: list[tuple[bytes, bytes]]) -> None:
        super().__init__(_ANSWER_HEADS[command], b"", None)
        #: The two numbers of each id, as digits.
        self.ids = ids


def one_by_one(frames: Iterable[Frame]) -> Iterator[Frame]:
    """The frames as they stood on the wire, runs taken apart."""
    for frame in frames:
        if isinstance(frame, SendRun):
            for body, receipt in zip(frame.bodies, frame.receipts or [None] * len(frame.bodies), strict=True):
                yield Frame(frame.head, body, receipt)
        elif isinstance(frame, AnswerRun):
            for ordinal, number in frame.ids:
                yield Frame(Head(frame.command, {"id": f"{ordinal.decode()}-{number.decode()}"}, -1), b"", None)
        else:
            yield frame


def weight_bytes(frame: Frame) -> int:
    """What keeping this frame costs in memory. The head is charged in full, though others may share it."""
    if isinstance(frame, SendRun):
        bodies_bytes = sum(map(len, frame.bodies)) + FRAME_OVERHEAD_BYTES * len(frame.bodies)
        return bodies_bytes + frame.head.size_bytes
    return len(frame.body) + FRAME_OVERHEAD_BYTES + frame.head.size_bytes
