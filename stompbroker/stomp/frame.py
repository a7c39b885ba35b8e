"""What a frame is once it has been read, and how large it may be.

Law: values only. Hot path: equal header blocks share one `Head` (see `heads`), so whatever follows from the block alone
is kept there; SENDs with one head, and bare answers, come as one object for many frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

#: Memory of a header beside its text: two strings and its place in the dictionary.
HEADER_OVERHEAD_BYTES: Final = 150
#: Memory of a frame beside its body and its head.
FRAME_OVERHEAD_BYTES: Final = 256

_TURNING_POINTS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED", "DISCONNECT"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on frames and transactions of one connection. The defaults are those of `stompbroker.config`."""

    #: Header lines in one frame.
    max_header_count: int = 256
    #: Bytes of command and header lines together. Real clients stay under 2 KiB.
    max_header_bytes: int = 32 * 1024
    #: Bytes of one body.
    max_body_bytes: int = 16 * 1024 * 1024
    #: Transactions open at the same time.
    max_transactions: int = 64
    #: Frames in one transaction; they are applied in one synchronous step at COMMIT.
    max_transaction_frames: int = 1024
    #: Bytes in one transaction.
    max_transaction_bytes: int = 16 * 1024 * 1024


@final
class Head:
    """Command and headers of a frame: unescaped, the first of repeated headers winning, without `receipt`.

    `receipt` is kept on the frame, because it is the one header that differs where all others repeat.
    """

    __slots__ = ("command", "content_length", "headers", "is_plain_send", "is_turning_point", "plan", "size_bytes")

    def __init__(self, command: str, headers: dict[str, str], content_length: int) -> None:
        self.command = command
        self.headers = headers
        #: -1 if missing; then the body ends at the first NUL.
        self.content_length = content_length
        #: Approximate memory.
        self.size_bytes = sum([len(name) + len(value) + HEADER_OVERHEAD_BYTES for name, value in headers.items()])
        #: Whether what follows has another meaning (another version) or none (after DISCONNECT).
        self.is_turning_point = command in _TURNING_POINTS
        #: Whether frames with this head can be joined in a `SendRun`.
        self.is_plain_send = command == "SEND" and "transaction" not in headers
        #: Free for the session to keep what it derived from this head, found again without a look-up.
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

    A publisher's frames differ only in bodies and receipts; an object for each would cost as much as finding it.
    `body` and `receipt` are those of the first.
    """

    __slots__ = ("bodies", "receipts")

    def __init__(self, head: Head, body: bytes, receipt: str | None) -> None:
        super().__init__(head, body, receipt)
        self.bodies = [body]
        #: As many as bodies, or empty if no frame has one.
        self.receipts: list[str | None] = [] if receipt is None else [receipt]

    def append_with_receipt(self, body: bytes, receipt: str | None) -> None:
        """For a run in which some frame has a receipt."""
        if not self.receipts:
            self.receipts.extend([None] * len(self.bodies))
        self.bodies.append(body)
        self.receipts.append(receipt)


_ANSWER_HEADS: Final = {command: Head(command, {}, -1) for command in ("ACK", "NACK")}


@final
class AnswerRun(Frame):
    """Many ACK frames, or many NACK frames, in a row that carry an `id` of the form NUMBER-NUMBER and nothing else.

    Taking them together costs a tenth of taking them one by one (`make bench`, ack'd 1→1).
    """

    __slots__ = ("ids",)

    def __init__(self, command: str, ids: list[tuple[bytes, bytes]]) -> None:
        super().__init__(_ANSWER_HEADS[command], b"", None)
        #: The two numbers of each id, as digits.
        self.ids = ids


def weight_bytes(frame: Frame) -> int:
    """What keeping this frame costs in memory. The head is charged in full, though others may share it."""
    if isinstance(frame, SendRun):
        bodies_bytes = sum(map(len, frame.bodies)) + FRAME_OVERHEAD_BYTES * len(frame.bodies)
        return bodies_bytes + frame.head.size_bytes
    return len(frame.body) + FRAME_OVERHEAD_BYTES + frame.head.size_bytes
