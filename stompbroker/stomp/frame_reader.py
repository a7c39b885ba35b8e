r"""Bytes → frames.

Law: one chunk in, all its frames out, in one call; any cut of the byte stream gives the same frames. No clock, no
socket, no meaning: what a frame may carry and when is checked by the `check` it is given, once per distinct
head.

Hot path. The loop in `_read_frames` runs once per frame: one search for the end of the headers, one look-up of the
whole block in the memo, one slice for the body. `receipt` is cut out before the look-up, since with a receipt per SEND
no block would ever repeat. Where frames repeat byte for byte up to their bodies, `_extend_run` does even less.
`make bench` (topic 1→1) and `tests/sessions/test_hot_path.py` guard it.

It is long because the hot loop and what it gives up on share the position in one buffer.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.frame import AnswerRun, Frame, Head, SendRun
from stompbroker.stomp.head_memo import HeadMemo
from stompbroker.stomp.head_parser import parse_head, parse_value
from stompbroker.stomp.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.stomp.limits import Limits

__all__ = ["MAX_FRAMES_PER_CALL", "FrameReader"]

#: SENDs returned by one call. A batch is also the unit of unfairness: this many take about 1 ms.
MAX_FRAMES_PER_CALL: Final = 512
#: How many SENDs any other frame counts as: it is parsed for itself, and what it does takes 20 µs (NACK) to 100 µs
#: (SUBSCRIBE).
OTHER_FRAME_WEIGHT: Final = 8

#: A pending piece shorter than this is lengthened by the next chunk instead of being kept beside it.
SMALL_PIECE_BYTES: Final = 4096

_LF: Final = 0x0A
_CR: Final = 0x0D
_RECEIPT: Final = b"\nreceipt:"
_LF_SEPARATOR: Final = b"\n\n"
_CRLF_SEPARATOR: Final = b"\n\r\n"
#: Runs of line ends are skipped as one: byte by byte, a chunk of 256 KiB took 35 ms.
_LINE_FEEDS: Final = re.compile(rb"\n+")
_LINE_END_BYTES: Final = re.compile(rb"[\r\n]+")
#: What a NACK of STOMP 1.2 counts as that is taken together with others: it takes 5 µs.
BARE_NACK_WEIGHT: Final = 4
#: Answers of STOMP 1.2 that can be taken together, as many as fit a batch. One alone need not be parsed either.
_BARE_ANSWER: Final = rb"%b\nid:(%b)-(%b)\n\n\0\n?"
_NUMBER: Final = rb"?:[1-9][0-9]{0,17}"
_BARE_ANSWERS: Final = re.compile(
    rb"(?:%b){1,%d}|(?:%b){1,%d}"
    % (
        *(_BARE_ANSWER % (rb"ACK", _NUMBER, _NUMBER), MAX_FRAMES_PER_CALL),
        *(_BARE_ANSWER % (rb"NACK", _NUMBER, _NUMBER), MAX_FRAMES_PER_CALL // BARE_NACK_WEIGHT),
    )
)
_BARE_ANSWER_IDS: Final = re.compile(_BARE_ANSWER % (rb"N?ACK", rb"[0-9]+", rb"[0-9]+"))


class _Awaits(Enum):
    """What must come before it is worth looking at an incomplete frame again; it saves rescanning long ones."""

    ANYTHING = "any byte may complete something"
    LINE_END = "the header block is not complete"
    NUL = "the body has no content-length and ends at a NUL"
    LENGTH = "the body's content-length is not reached"


def _accept_any(_head: Head) -> None:
    """The default check."""


@final
class FrameReader:
    """Reads the frames of one connection, in one direction.

    Invariants:
        pending_bytes == total length of _pieces; it holds at most one incomplete frame, unless `has_more`
        an incomplete frame is never longer than the header limit plus the body limit plus one chunk
        no block in the memo holds a separator, so a hit proves that its separator was the first one
    """

    __slots__ = (
        "_awaited_receipt",
        "_awaits",
        "_failure",
        "_finds_runs",
        "_frame_bound",
        "_limits",
        "_memo",
        "_pieces",
        "_separator",
        "_version",
        "check",
        "has_more",
        "pending_bytes",
    )

    def __init__(self, limits: Limits, check: Callable[[Head], None] = _accept_any) -> None:
        self._limits = limits
        #: Called for every head that is not in the memo; raises PeerViolation.
        self.check = check
        self._version: Version | None = None
        self._memo = HeadMemo()
        self._pieces: list[bytes] = []
        self._awaits = _Awaits.ANYTHING
        #: Bytes of the incomplete frame: with LENGTH, how many make it complete; otherwise how many it may have.
        self._frame_bound = limits.max_header_bytes
        #: With NUL: the receipt that the incomplete frame asks for.
        self._awaited_receipt: str | None = None
        #: The empty line of the last head read: a client ends its lines one way, and so the search starts with that.
        self._separator = _LF_SEPARATOR
        self._finds_runs = False
        #: What is still to be raised.
        self._failure: PeerViolation | None = None
        #: Bytes received that are not yet part of a returned frame.
        self.pending_bytes = 0
        #: Whether `receive(b"")` may return more frames at once.
        self.has_more = False

    @property
    def version(self) -> Version | None:
        """None until it is negotiated; from then on it decides line ends, escapes and trimming."""
        return self._version

    @version.setter
    def version(self, version: Version) -> None:
        self._version = version
        self._finds_runs = version is Version.V1_2
        self._memo.clear()

    def receive(self, chunk: bytes) -> list[Frame]:
        """All frames completed by this chunk, up to MAX_FRAMES_PER_CALL; `has_more` says whether to call again.

        Raises PeerViolation. Frames that stood before the bad one are returned first and the violation is raised by
        the next call, so that what was sent before a mistake still counts. Nothing is to be received after it.
        """
        if self._failure is not None:
            raise self._take_failure()
        frames: list[Frame] = []
        if chunk:
            self._keep(chunk)
        if self._is_worth_a_look(chunk):
            data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            consumed = 0
            try:
                consumed = self._read_frames(data, frames)
            except PeerViolation as violation:
                self._failure = violation
            self.pending_bytes = len(data) - consumed
            self._pieces = [data[consumed:]] if self.pending_bytes else []
        if self._failure is None:
            self._failure = self._excess()
        if self._failure is not None:
            self.has_more = True
            if not frames:
                raise self._take_failure()
        return frames

    def _take_failure(self) -> PeerViolation:
        """Not kept: its traceback holds this reader, so the two would keep each other."""
        failure, self._failure = self._failure, None
        assert failure is not None
        return failure

    def _keep(self, chunk: bytes) -> None:
        """Put a chunk behind what is pending. Small ones are joined, or each would cost more than what is in it."""
        self.pending_bytes += len(chunk)
        if self._pieces and len(self._pieces[-1]) < SMALL_PIECE_BYTES:
            self._pieces[-1] += chunk
        else:
            self._pieces.append(chunk)

    def _is_worth_a_look(self, chunk: bytes) -> bool:
        match self._awaits:
            case _Awaits.LINE_END:
                return b"\n" in chunk
            case _Awaits.NUL:
                return b"\0" in chunk
            case _Awaits.LENGTH:
                return self.pending_bytes >= self._frame_bound
            case _Awaits.ANYTHING:
                return self.pending_bytes > 0

    def _read_frames(self, data: bytes, frames: list[Frame]) -> int:
        """The hot loop: append the frames in `data` to `frames` and return how many bytes they took."""
        find = data.find
        known = self._memo.known
        separator = self._separator
        end = len(data)
        position = 0
        room = MAX_FRAMES_PER_CALL
        run: SendRun | None = None
        self._awaits = _Awaits.ANYTHING
        self.has_more = False
        while room > 0:
            if position < end and data[position] <= _CR:
                position = self._after_empty_lines(data, position)
            if position == end:
                return position
            head_end = find(separator, position)
            block = data[position:head_end] if head_end >= 0 else b""
            receipt_at = block.find(_RECEIPT)
            if receipt_at < 0:
                head = known.get(block)
                receipt = None
            else:
                head, receipt = self._look_up_with_receipt(block, receipt_at)
            if head is not None:
                body_at = head_end + len(separator)
            else:
                if self._finds_runs and (answers := _BARE_ANSWERS.match(data, position)):
                    command = "ACK" if data.startswith(b"A", position) else "NACK"
                    ids = _BARE_ANSWER_IDS.findall(data, position, answers.end())
                    frames.append(AnswerRun(command, ids))
                    position = answers.end()
                    room = 0 if len(ids) > 1 else room - OTHER_FRAME_WEIGHT
                    run = None
                    continue
                found = self._read_unknown_head(data, position)
                if found is None:
                    # The largest block may be followed by all of the separator but its last byte.
                    self._await(_Awaits.LINE_END, self._limits.max_header_bytes + len(_CRLF_SEPARATOR) - 1)
                    return position
                head, receipt, body_at = found
                separator = self._separator
            body_end = self._find_body_end(data, position, body_at, head, receipt)
            if body_end < 0:
                return position
            body = data[body_at:body_end]
            if not head.is_plain_send:
                room -= OTHER_FRAME_WEIGHT
                frames.append(Frame(head, body, receipt))
                run = None
                position = body_end + 1
                if head.is_turning_point:
                    break
                continue
            room -= 1
            if run is None or run.head is not head:
                run = SendRun(head, body, receipt)
                frames.append(run)
            elif receipt is not None or run.receipts:
                run.append_with_receipt(body, receipt)
            else:
                run.bodies.append(body)
            if receipt is None and not run.receipts and head.content_length >= 0:
                position, room = self._extend_run(data, position, body_at, run, room)
            elif 0 <= receipt_at < body_at - position and head.content_length >= 0 and self._finds_runs:
                value_at = position + receipt_at + len(_RECEIPT)
                position, room = self._extend_run_with_receipts(data, position, value_at, body_at, run, room)
            else:
                position = body_end + 1
        self.has_more = position < end
        return position

    def _extend_run(self, data: bytes, position: int, body_at: int, run: SendRun, room: int) -> tuple[int, int]:
        """Take the frames that repeat the one at `position` byte for byte up to their bodies; returns where the next
        frame begins, and how many more may be taken. The innermost loop of all: a publisher at full speed is here."""
        starts_alike = data.startswith
        append = run.bodies.append
        prefix = data[position:body_at]
        prefix_bytes, length = len(prefix), run.head.content_length
        last_start = len(data) - prefix_bytes - length - 1
        position = body_at + length + 1
        while room > 0:
            if position < last_start and data[position] == _LF:
                position += 1
            if position > last_start or not starts_alike(prefix, position):
                break
            body_at = position + prefix_bytes
            body_end = body_at + length
            if data[body_end] != 0:
                break
            append(data[body_at:body_end])
            position = body_end + 1
            room -= 1
        return position, room

    def _extend_run_with_receipts(
        self, data: bytes, position: int, value_at: int, body_at: int, run: SendRun, room: int
    ) -> tuple[int, int]:
        """The same for frames that repeat the one at `position` but for the value of `receipt`, which begins at
        `value_at`. None is taken if any of these values is not plain text: then each is looked at for itself."""
        find, starts_alike = data.find, data.startswith
        prefix, length = data[position:value_at], run.head.content_length
        suffix = data[find(b"\n", value_at) : body_at]
        prefix_bytes, suffix_bytes, end = len(prefix), len(suffix), len(data)
        first = position = body_at + length + 1
        values: list[bytes] = []
        bodies: list[bytes] = []
        while room > len(values):
            if position < end and data[position] == _LF:
                position += 1
            if not starts_alike(prefix, position):
                break
            value_at = position + prefix_bytes
            value_end = find(b"\n", value_at)
            if value_end < 0 or not starts_alike(suffix, value_end):
                break
            body_at = value_end + suffix_bytes
            body_end = body_at + length
            if body_end >= end or data[body_end] != 0:
                break
            values.append(data[value_at:value_end])
            bodies.append(data[body_at:body_end])
            position = body_end + 1
        joined = b"\n".join(values)
        if not values or not joined.isascii() or b"\\" in joined or b"\r" in joined or _RECEIPT in suffix:
            return first, room
        run.bodies += bodies
        run.receipts += joined.decode().split("\n")
        # One line feed before a frame that was not taken is an empty line, and read as such.
        return position, room - len(values)

    def _find_body_end(self, data: bytes, position: int, body_at: int, head: Head, receipt: str | None) -> int:
        """Where the NUL behind a body stands; -1 if it has not come yet. `position` is where the frame begins."""
        length = head.content_length
        if length >= 0:
            body_end = body_at + length
            if body_end >= len(data):
                self._await(_Awaits.LENGTH, body_end + 1 - position)
                return -1
            if data[body_end] != 0:
                raise PeerViolation(
                    "body does not end where its content-length says",
                    f"{head.command} announced {length} bytes of body; the byte after them must be NUL",
                    receipt=receipt,
                )
            return body_end
        body_end = data.find(b"\0", body_at)
        if body_end < 0:
            self._await(_Awaits.NUL, body_at + self._limits.max_body_bytes - position)
            self._awaited_receipt = receipt
        elif body_end - body_at > self._limits.max_body_bytes:
            raise self._body_too_large(receipt)
        return body_end

    def _look_up_with_receipt(self, block: bytes, receipt_at: int) -> tuple[Head | None, str | None]:
        """What the memo knows of a block once its receipt has been cut out, and that receipt."""
        rest, receipt = _cut_receipt(block, receipt_at)
        head = self._memo.known.get(rest)
        return head, parse_value(receipt, self._version) if head is not None else None

    def _after_empty_lines(self, data: bytes, position: int) -> int:
        """Skip the line ends that may stand between frames; they are also the heart-beats."""
        stop = _end_of_run(_LINE_FEEDS, data, position)
        accepts_crlf = self._version is None or self._version.accepts_crlf
        if not (accepts_crlf and data.startswith(b"\r\n", stop)):
            return stop
        stop = _end_of_run(_LINE_END_BYTES, data, position)
        bare_cr = data[position:stop].replace(b"\r\n", b"\n\n").find(b"\r")
        return stop if bare_cr < 0 else position + bare_cr

    def _read_unknown_head(self, data: bytes, position: int) -> tuple[Head, str | None, int] | None:
        """Find and parse a head that the memo does not know: (head, receipt, where its body begins), or None if the
        empty line that ends it has not come yet."""
        head_end, separator = self._find_head_end(data, position)
        if head_end < 0:
            return None
        if head_end - position > self._limits.max_header_bytes:
            raise self._head_too_large()
        block = data[position:head_end]
        receipt = None
        receipt_at = block.find(_RECEIPT)
        if receipt_at >= 0:
            block, raw_receipt = _cut_receipt(block, receipt_at)
            receipt = parse_value(raw_receipt, self._version)
        self._separator = separator
        head = self._memo.known.get(block)
        if head is not None:  # known, but with the other kind of line ends in its last place
            return head, receipt, head_end + len(separator)
        try:
            head = parse_head(block, self._version, self._limits, lines_cut=receipt is not None)
            self.check(head)
        except PeerViolation as violation:
            violation.receipt = violation.receipt or receipt
            raise
        # Of all client frames only SEND repeats its headers often enough to be worth a place. A block with as many
        # lines as are allowed gets none: with a receipt it would be too long, and nobody would count again.
        if head.command == "SEND" and block.count(b"\n") < self._limits.max_header_count:
            self._memo.offer(block, head)
        return head, receipt, head_end + len(separator)

    def _find_head_end(self, data: bytes, position: int) -> tuple[int, bytes]:
        """Where the first empty line stands, and how it looks; -1 if there is none yet. The kind of line end seen last
        is looked for first, and bounds the search for the other: no frame makes us look through the whole chunk."""
        bound = position + self._limits.max_header_bytes + len(_CRLF_SEPARATOR)
        if self._version is not None and not self._version.accepts_crlf:
            return data.find(_LF_SEPARATOR, position, bound), _LF_SEPARATOR
        first, second = _LF_SEPARATOR, _CRLF_SEPARATOR
        if self._separator is _CRLF_SEPARATOR:
            first, second = second, first
        found = data.find(first, position, bound)
        # The second counts if it begins earlier. Its last byte may be the first of the other: an empty line in CR LF
        # style whose body begins with a line feed.
        earlier = data.find(second, position, found + 1 if found >= 0 else bound)
        return (earlier, second) if earlier >= 0 else (found, first)

    def _await(self, what: _Awaits, frame_bound: int) -> None:
        self._awaits = what
        self._frame_bound = frame_bound

    def _excess(self) -> PeerViolation | None:
        """What is wrong with the size of the incomplete frame, if anything."""
        if self._awaits is _Awaits.LINE_END and self.pending_bytes > self._frame_bound:
            return self._head_too_large()
        if self._awaits is _Awaits.NUL and self.pending_bytes > self._frame_bound:
            return self._body_too_large(self._awaited_receipt)
        return None

    def _head_too_large(self) -> PeerViolation:
        return PeerViolation(
            "headers too large",
            f"command and headers of a frame may take {self._limits.max_header_bytes} bytes together, and no empty "
            "line came within them",
        )

    def _body_too_large(self, receipt: str | None) -> PeerViolation:
        return PeerViolation(
            "body too large", f"at most {self._limits.max_body_bytes} bytes are allowed", receipt=receipt
        )


def _end_of_run(pattern: re.Pattern[bytes], data: bytes, position: int) -> int:
    """Where the run that the pattern finds at `position` ends; `position` itself if it finds none."""
    run = pattern.match(data, position)
    return position if run is None else run.end()


def _cut_receipt(block: bytes, receipt_at: int) -> tuple[bytes, bytes]:
    """The block without its `receipt` line, and that line's value."""
    receipt_end = block.find(b"\n", receipt_at + 1)
    if receipt_end < 0:
        receipt_end = len(block)
    return block[:receipt_at] + block[receipt_end:], block[receipt_at + len(_RECEIPT) : receipt_end]
