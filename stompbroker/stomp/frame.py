r"""What a frame is once it has been read, how large it may be, and how the three versions of STOMP differ.

Law: values, and the escape sequences: STOMP 1.2 escapes `\r \n \c \\`, 1.1 the same without `\r`, 1.0 nothing; CONNECT
and CONNECTED are never escaped. A difference between versions is written here once; other modules ask the version.

Hot path: equal header blocks share one `Head` (see `heads`), so whatever follows from the block alone is kept there;
SENDs with one head, and bare answers, come as one object for many frames.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Memory of a header beside its text: two strings and its place in the dictionary.
HEADER_OVERHEAD_BYTES: Final = 150
#: Memory of a frame beside its body and its head.
FRAME_OVERHEAD_BYTES: Final = 256

_TURNING_POINTS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED", "DISCONNECT"})


@final
class Version(Enum):
    """A negotiated protocol version. The value is its spelling on the wire."""

    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"

    #: Members are compared by identity, so they may be hashed by it; Enum's own hash is a Python call per look-up.
    __hash__ = object.__hash__

    @property
    def trims_values(self) -> bool:
        """1.0 clients pad header values with blanks; from 1.1 on nothing may be trimmed."""
        return self is Version.V1_0

    @property
    def accepts_crlf(self) -> bool:
        """Whether a line may end in CR LF. In 1.1 a CR before the LF belongs to the line; 1.0 trims it away."""
        return self is not Version.V1_1

    @property
    def has_heart_beats(self) -> bool:
        return self is not Version.V1_0


def choose_version(accept_version: str | None) -> Version | None:
    """The highest version both sides speak; None when there is none. A missing `accept-version` means 1.0. Any order
    and blanks around the commas are accepted."""
    if accept_version is None:
        return Version.V1_0
    offered = {part.strip() for part in accept_version.split(",")}
    common = [version for version in Version if version.value in offered]
    return common[-1] if common else None


_UNESCAPED: Mapping[Version, Mapping[str, str]] = {
    Version.V1_1: {r"\n": "\n", r"\c": ":", "\\\\": "\\"},
    Version.V1_2: {r"\r": "\r", r"\n": "\n", r"\c": ":", "\\\\": "\\"},
}
_SEQUENCE = re.compile(r"\\.?", re.DOTALL)

_ESCAPED: Mapping[Version, Mapping[int, str]] = {
    # 1.0 cannot express a line feed in a header. Escaping it all the same keeps the value readable, and keeps it from
    # becoming a header line of its own (test_a_line_feed_cannot_inject_a_header_into_1_0).
    Version.V1_0: {ord("\n"): r"\n"},
    **{
        version: {ord(character): sequence for sequence, character in sequences.items()}
        for version, sequences in _UNESCAPED.items()
    },
}


def escape(text: str, version: Version) -> str:
    """`text` as it may stand in a header line of this version."""
    return text.translate(_ESCAPED[version])


def unescape(text: str, version: Version) -> str:
    """The inverse of `escape`. Raises PeerViolation on an undefined sequence."""
    if "\\" not in text or version is Version.V1_0:
        return text
    known = _UNESCAPED[version]

    def meaning(match: re.Match[str]) -> str:
        try:
            return known[match[0]]
        except KeyError:
            raise PeerViolation(
                "undefined escape sequence",
                f"{match[0]!r} stands in the header text {text!r}; STOMP {version.value} defines {', '.join(known)}",
            ) from None

    return _SEQUENCE.sub(meaning, text)


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

    `receipt` and the value of `producer-seq` are kept on the frame, because they differ where all others repeat.
    """

    __slots__ = (
        "command",
        "content_length",
        "headers",
        "is_numbered",
        "is_plain_send",
        "is_turning_point",
        "place",
        "plan",
        "size_bytes",
    )

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
        #: Whether each frame with this head has a number of its own (`producer-seq`).
        self.is_numbered = "producer-seq" in headers
        #: Where its frames go, once the session knows: frames to one place stay in their order. Those to different
        #: places may pass each other.
        self.place: object = None
        #: Free for the session to keep what it derived from this head, found again without a look-up.
        self.plan: object = None

    def __repr__(self) -> str:
        return f"Head({self.command!r}, {self.headers!r})"


@dataclass(slots=True, eq=False)
class Frame:
    """One frame: a head, a body, and the receipt its sender asked for."""

    head: Head
    body: bytes
    receipt: str | None
    #: The value of `producer-seq`; the head has the name alone.
    sequence: str | None = None

    @property
    def command(self) -> str:
        return self.head.command

    @property
    def headers(self) -> dict[str, str]:
        return self.head.headers


@final
class SendRun(Frame):
    """SEND frames with one head and no transaction, in a row but for such frames that go elsewhere.

    A publisher's frames differ only in bodies, receipts and numbers; an object for each would cost as much as finding
    it. `body`, `receipt` and `sequence` are those of the first.
    """

    __slots__ = ("bodies", "receipts", "sequences")

    def __init__(self, head: Head, body: bytes, receipt: str | None, sequence: str | None = None) -> None:
        # What Frame sets, without a call of its constructor.
        self.head, self.body, self.receipt, self.sequence = head, body, receipt, sequence
        self.bodies = [body]
        #: As many as bodies, or empty if no frame has one.
        self.receipts: list[str | None] = [] if receipt is None else [receipt]
        #: As many as bodies, or empty: frames with one head are all numbered, or none is.
        self.sequences: list[str] = [] if sequence is None else [sequence]

    def append(self, body: bytes, receipt: str | None, sequence: str | None) -> None:
        """For a run in which frames have receipts or numbers."""
        if receipt is not None or self.receipts:
            if not self.receipts:
                self.receipts.extend([None] * len(self.bodies))
            self.receipts.append(receipt)
        if sequence is not None:
            self.sequences.append(sequence)
        self.bodies.append(body)


_ANSWER_HEADS: Final = {command: Head(command, {}, -1) for command in ("ACK", "NACK")}


@final
class AnswerRun(Frame):
    """Many ACK frames, or many NACK frames, in a row that carry an `id` of the form NUMBER-NUMBER and nothing else.
    Taking them together costs a tenth of taking them one by one (`make bench`, ack'd 1→1)."""

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
