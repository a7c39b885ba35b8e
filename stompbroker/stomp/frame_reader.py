r"""Bytes → frames.

Law: one chunk in, all its frames out; any cut of the byte stream gives the same frames. No clock, no socket. The
`check` it is given, called once per distinct head, decides which frames are allowed.

Hot path, guarded by `make bench` (topic 1→1) and `tests/sessions/test_hot_path.py`. `_read_frames` does one search for
the end of the headers, one look-up of the whole block in the memo, and one slice for the body. It cuts `receipt` and
the value of `producer-seq` out before the look-up, since with one of them per SEND no block would ever repeat. Frames
that repeat byte for byte up to their bodies are read by `_extend_run`, which does even less. A large body that came in
pieces is joined once.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from enum import Enum
from struct import iter_unpack
from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.frame import AnswerRun, Frame, Head, SendRun, Version
from stompbroker.stomp.heads import (
    LF_SEPARATOR,
    MAX_SEPARATOR_BYTES,
    RECEIPT,
    SEQUENCE,
    HeadAllowance,
    HeadMemo,
    after_empty_lines,
    cut_receipt,
    cut_sequence,
    find_head_end,
    parse_head,
    parse_value,
)
from stompbroker.stomp.pieces import LARGE_FRAME_BYTES, Pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.stomp.frame import Limits

#: SENDs returned by one call. Other clients wait meanwhile: this many take about 1 ms.
MAX_FRAMES_PER_CALL: Final = 512
#: How many SENDs any other frame counts as: applying it takes 20 µs (NACK) to 100 µs (SUBSCRIBE).
OTHER_FRAME_WEIGHT: Final = 8
#: The same for a NACK in an `AnswerRun`: it takes 5 µs.
BARE_NACK_WEIGHT: Final = 4

#: Frames that are first looked at together, when one is found that others may repeat.
FIRST_STEP: Final = 4

_LF: Final = 0x0A
_CR: Final = 0x0D
#: Answers of STOMP 1.2 that make an `AnswerRun`, as many as fit a batch.
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
    """What has to arrive before an incomplete frame is scanned again; rescanning long ones would be slow."""

    ANYTHING = "any byte may complete something"
    LINE_END = "the header block is not complete"
    NUL = "the body has no content-length and ends at a NUL"
    LENGTH = "the body's content-length is not reached"


@final
@dataclass(slots=True, eq=False, repr=False)
class FrameReader:
    """Reads the frames of one connection, in one direction.

    Invariants:
        `_pieces` holds at most one incomplete frame, unless `has_more`
        an incomplete frame is never longer than the header limit plus the body limit plus one chunk
        no block in the memo holds a separator, so a hit proves that the separator found was the first one
        no block in the memo holds a receipt, so one that is known as it stands asks for none
    """

    _limits: Limits
    #: Called for every head that is not in the memo; raises PeerViolation.
    check: Callable[[Head], None] = lambda _head: None
    allowance: InitVar[HeadAllowance | None] = None
    _version: Version | None = None
    _memo: HeadMemo = field(init=False)
    _pieces: Pieces = field(default_factory=Pieces)
    _awaits: _Awaits = _Awaits.ANYTHING
    #: Bytes of the incomplete frame: with LENGTH, how many make it complete; otherwise how many it may have.
    _frame_bound: int = field(init=False)
    #: With NUL: the receipt that the incomplete frame asks for.
    _awaited_receipt: str | None = None
    #: The empty line after the last head, searched for first: a client does not change its line ends.
    _separator: bytes = LF_SEPARATOR
    _finds_runs: bool = False
    #: To be raised by the next call.
    _failure: PeerViolation | None = None
    #: Whether `receive(b"")` may return more frames at once.
    has_more: bool = False

    def __post_init__(self, allowance: HeadAllowance | None) -> None:
        self._memo = HeadMemo(allowance or HeadAllowance())
        self._frame_bound = self._limits.max_header_bytes

    @property
    def version(self) -> Version | None:
        """None until it is negotiated; from then on it decides line ends, escapes and trimming."""
        return self._version

    @version.setter
    def version(self, version: Version) -> None:
        self._version = version
        self._finds_runs = version is Version.V1_2
        self._memo.clear()

    def close(self) -> None:
        """Nothing more comes: give back what was borrowed."""
        self._memo.clear()

    def receive(self, chunk: bytes) -> list[Frame]:
        """All frames completed by this chunk, up to MAX_FRAMES_PER_CALL and one that came in pieces; `has_more` says
        whether to call again.

        Raises PeerViolation. Frames before the bad one are returned first, and the next call raises, so that what was
        sent before a mistake still counts. Nothing may be received after it.
        """
        if self._failure is not None:
            raise self._take_failure()
        frames: list[Frame] = []
        if chunk:
            self.keep(chunk)
        if self._is_worth_a_look(chunk):
            frames, consumed = self._read_large()
            data = self._pieces.joined()
            self._awaits = _Awaits.ANYTHING
            self.has_more = False
            try:
                consumed = self._read_frames(data, consumed, frames)
            except PeerViolation as violation:
                self._failure = violation
            self._pieces.keep(data[consumed:])
        if self._failure is None:
            self._failure = self._excess()
        if self._failure is not None:
            self.has_more = True
            if not frames:
                raise self._take_failure()
        return frames

    @property
    def pending_bytes(self) -> int:
        """Bytes received that are not yet part of a returned frame."""
        return self._pieces.size_bytes

    @property
    def awaited_bytes(self) -> int:
        """How many more bytes complete the large frame that has begun; 0 if there is none, or nobody knows."""
        is_large = self._awaits is _Awaits.LENGTH and self._frame_bound >= LARGE_FRAME_BYTES
        return self._frame_bound - self.pending_bytes if is_large else 0

    def keep(self, chunk: bytes) -> None:
        """Append a chunk to what is pending, without looking at it."""
        self._pieces.append(chunk)

    def _read_large(self) -> tuple[list[Frame], int]:
        """The large frame that has come in pieces, if that is what is pending and it is plain; and where in what is
        left the next frame begins."""
        if self._awaits is not _Awaits.LENGTH or not self._pieces.has_frame_in_pieces(self._frame_bound):
            return [], 0
        found = self._read_unknown_head(self._pieces.first, 0)
        if found is None or found[0].is_turning_point:
            return [], 0
        head, receipt, sequence, body_at = found
        body, next_at = self._pieces.take_body(body_at, self._frame_bound)
        return [(SendRun if head.is_plain_send else Frame)(head, body, receipt, sequence)], next_at

    def _take_failure(self) -> PeerViolation:
        """Forget it when it is raised: its traceback refers to this reader, which would be a reference cycle."""
        failure, self._failure = self._failure, None
        assert failure is not None
        return failure

    def _is_worth_a_look(self, chunk: bytes) -> bool:
        match self._awaits:
            case _Awaits.LINE_END:
                return b"\n" in chunk
            case _Awaits.NUL:
                return b"\0" in chunk
            case _Awaits.LENGTH:
                return self._pieces.size_bytes >= self._frame_bound
            case _Awaits.ANYTHING:
                return self._pieces.size_bytes > 0

    def _read_frames(self, data: bytes, position: int, frames: list[Frame]) -> int:
        """The hot loop: append the frames from `position` on to `frames`, and return where they end."""
        find = data.find
        known = self._memo.known
        separator = self._separator
        end = len(data)
        room = MAX_FRAMES_PER_CALL
        #: The last run; and by place, the last of each that others may pass.
        run = frames[-1] if frames and isinstance(frames[-1], SendRun) else None
        runs: dict[object, SendRun] = {}
        while room > 0:
            if position < end and data[position] <= _CR:
                position = after_empty_lines(data, position, self._version)
            if position == end:
                return position
            head_end = find(separator, position)
            block = data[position:head_end] if head_end >= 0 else b""
            receipt, sequence = None, None
            head = known.get(block)
            if head is None:
                if RECEIPT in block or SEQUENCE in block:
                    head, receipt, sequence = self._look_up_without_values(block)
            elif head.is_numbered:
                sequence = ""  # blocks are known without their numbers
            if head is not None:
                body_at = head_end + len(separator)
            else:
                if self._finds_runs and (answers := _BARE_ANSWERS.match(data, position)):
                    ids = _BARE_ANSWER_IDS.findall(data, position, answers.end())
                    is_nack = not data.startswith(b"A", position)
                    weight = max(OTHER_FRAME_WEIGHT, len(ids) * (BARE_NACK_WEIGHT if is_nack else 1))
                    if frames and weight > room:
                        break  # it begins the next call
                    frames.append(AnswerRun("NACK" if is_nack else "ACK", ids))
                    position, run = answers.end(), None
                    separator = self._separator = LF_SEPARATOR
                    runs.clear()
                    room -= weight
                    continue
                found = self._read_unknown_head(data, position)
                if found is None:
                    return position
                head, receipt, sequence, body_at = found
                separator = self._separator
            body_end = body_at + head.content_length
            if head.content_length < 0 or body_end >= end or data[body_end]:
                body_end = self._find_body_end(data, position, body_at, head, receipt)
                if body_end < 0:
                    return position
            body = data[body_at:body_end]
            if not head.is_plain_send:
                frames.append(Frame(head, body, receipt, sequence))
                position, run = body_end + 1, None
                runs.clear()
                room = 0 if head.is_turning_point else room - OTHER_FRAME_WEIGHT
                continue
            room -= 1
            has_values = receipt is not None or sequence is not None
            passing = None if has_values else runs.get(head.place)
            if passing is not None and passing.head is head and passing is not run:
                passing.bodies.append(body)
                position, run = body_end + 1, passing
                continue
            # A receipt speaks of all that came before it, so it joins no run that has passed others.
            if run is None or run.head is not head or (has_values and run is not frames[-1]):
                run = SendRun(head, body, receipt, sequence)
                frames.append(run)
                if has_values or head.place is None:
                    runs.clear()  # nothing that comes later may pass it
                else:
                    runs[head.place] = run
            elif has_values or run.receipts:
                run.append(body, receipt, sequence)
                runs.clear()
            else:
                run.bodies.append(body)
            after = body_end + 1
            if after == end or head.content_length < 0:
                position = after
            elif receipt is None and sequence is None and not run.receipts:
                # A publisher to many places seldom sends two in a row to one of them.
                is_alone = len(run.bodies) == 1 and head.place is not None
                position, room = (after, room) if is_alone else self._extend_run(data, position, body_at, run, room)
            elif self._finds_runs and (receipt is not None or not run.receipts):
                position, room = self._extend_run_with_values(data, position, body_at, run, room)
            else:
                position = after
        self.has_more = position < end
        return position

    def _extend_run(self, data: bytes, position: int, body_at: int, run: SendRun, room: int) -> tuple[int, int]:
        """Take the frames that repeat the one at `position` byte for byte up to their bodies, and all end in a line
        feed or none. Returns where the next frame begins, and how many more may be taken.

        A publisher at full speed is in this loop. It asks in C about more and more frames, and when not all of them
        were alike, about fewer and fewer: so it finds the first other one with little more work than there are frames.
        """
        length = run.head.content_length
        prefix = data[position:body_at]
        position = body_at + length + 1
        if data[position] == _LF:
            prefix = b"\n" + prefix
        form, view = f"{len(prefix)}s{length}sc", memoryview(data)
        frame_bytes = len(prefix) + length + 1
        step, grows = FIRST_STEP, True
        while count := min(step, room, (len(data) - position) // frame_bytes):
            prefixes, bodies, ends = zip(
                *iter_unpack(form, view[position : position + count * frame_bytes]), strict=True
            )
            if prefixes.count(prefix) == ends.count(b"\0") == count:
                run.bodies += bodies
                position += count * frame_bytes
                room -= count
            else:
                grows = False
            step = 2 * step if grows else count // 2
        return position, room

    def _extend_run_with_values(
        self, data: bytes, position: int, body_at: int, run: SendRun, room: int
    ) -> tuple[int, int]:
        """The same for frames that differ in the values of `receipt` and `producer-seq` too. The first with a malformed
        value, or too large a head, is left, and what follows it."""
        head_block = data[position:body_at]
        spots = sorted((at + len(name), name) for name in (RECEIPT, SEQUENCE) if (at := head_block.find(name)) >= 0)
        prefix, middle, suffix = _around(head_block, [at for at, _ in spots])
        find, starts_alike = data.find, data.startswith
        prefix_bytes, middle_bytes, suffix_bytes, end = len(prefix), len(middle), len(suffix), len(data)
        largest = self._limits.max_header_bytes + len(self._separator)
        length = run.head.content_length
        position = body_at + length + 1
        #: Where the frames begin that follow none, one, two, … of them.
        starts = [position]
        values: list[bytes] = []
        others: list[bytes] = []
        bodies: list[bytes] = []
        while room > len(bodies):
            if position < end and data[position] == _LF:
                position += 1
            if not starts_alike(prefix, position):
                break
            value_at = position + prefix_bytes
            value_end = last_end = find(b"\n", value_at)
            if middle:
                if value_end < 0 or not starts_alike(middle, value_end):
                    break
                last_at = value_end + middle_bytes
                last_end = find(b"\n", last_at)
            if last_end < 0 or not starts_alike(suffix, last_end):
                break
            body_at = last_end + suffix_bytes
            body_end = body_at + length
            if body_end >= end or data[body_end] != 0 or body_at - position > largest:
                break
            values.append(data[value_at:value_end])
            if middle:
                others.append(data[last_at:last_end])
            bodies.append(data[body_at:body_end])
            position = body_end + 1
            starts.append(position)
        found = {name: self._parse_values(raw) for (_, name), raw in zip(spots, (values, others), strict=False)}
        taken = min(map(len, found.values()))
        run.bodies += bodies[:taken]
        run.receipts += found.get(RECEIPT, [])[:taken]
        run.sequences += found.get(SEQUENCE, [])[:taken]
        return starts[taken], room - taken

    def _parse_values(self, raw: list[bytes]) -> list[str]:
        """All up to the first that is malformed."""
        joined = b"\n".join(raw)
        if raw and joined.isascii() and b"\\" not in joined and b"\r" not in joined:
            return joined.decode().split("\n")
        values: list[str] = []
        with suppress(PeerViolation):
            for each in raw:
                values.append(parse_value(each, self._version))
        return values

    def _find_body_end(self, data: bytes, position: int, body_at: int, head: Head, receipt: str | None) -> int:
        """Where the NUL after the body is; -1 if it has not come yet. The frame begins at `position`."""
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

    def _look_up_without_values(self, block: bytes) -> tuple[Head | None, str | None, str | None]:
        """The known head of a block without its receipt and number, and these."""
        if len(block) > self._limits.max_header_bytes:
            return None, None, None
        rest, receipt, sequence = _cut(block)
        head = self._memo.known.get(rest)
        return (None, None, None) if head is None else (head, *self._parse(receipt, sequence))

    def _parse(self, raw_receipt: bytes | None, raw_sequence: bytes | None) -> tuple[str | None, str | None]:
        receipt = None if raw_receipt is None else parse_value(raw_receipt, self._version)
        if raw_sequence is None:
            return receipt, None
        try:
            return receipt, parse_value(raw_sequence, self._version)
        except PeerViolation as violation:
            violation.receipt = receipt
            raise

    def _read_unknown_head(self, data: bytes, position: int) -> tuple[Head, str | None, str | None, int] | None:
        """Find and parse a head that the memo does not know: (head, receipt, sequence, where its body begins), or None
        if the empty line that ends it has not come yet."""
        bound = position + self._limits.max_header_bytes + MAX_SEPARATOR_BYTES
        head_end, separator = find_head_end(data, position, bound, self._version, self._separator)
        if head_end < 0:
            # The largest block may be followed by all of the separator but its last byte.
            self._await(_Awaits.LINE_END, self._limits.max_header_bytes + MAX_SEPARATOR_BYTES - 1)
            return None
        if head_end - position > self._limits.max_header_bytes:
            raise self._head_too_large()
        block, raw_receipt, raw_sequence = _cut(data[position:head_end])
        receipt, sequence = self._parse(raw_receipt, raw_sequence)
        self._separator = separator
        head = self._memo.known.get(block)
        if head is not None:  # known, but with the other kind of line ends in its last place
            return head, receipt, sequence, head_end + len(separator)
        try:
            head = parse_head(block, self._version, self._limits, lines_cut=receipt is not None)
            self.check(head)
        except PeerViolation as violation:
            violation.receipt = violation.receipt or receipt
            raise
        # Only SENDs repeat their headers often enough. A block with as many lines as are allowed is not remembered:
        # with a receipt it would have too many, and lines of known blocks are not counted. Nor is one that repeats
        # `receipt`: what is known is taken for a block without any.
        is_small = block.count(b"\n") < self._limits.max_header_count
        if head.command == "SEND" and is_small and RECEIPT not in block:
            self._memo.offer(block, head)
        return head, receipt, sequence, head_end + len(separator)

    def _await(self, what: _Awaits, frame_bound: int) -> None:
        self._awaits = what
        self._frame_bound = frame_bound

    def _excess(self) -> PeerViolation | None:
        """The violation if the incomplete frame is too large."""
        if self._pieces.size_bytes <= self._frame_bound:
            return None
        if self._awaits is _Awaits.LINE_END:
            return self._head_too_large()
        return self._body_too_large(self._awaited_receipt) if self._awaits is _Awaits.NUL else None

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


def _around(head_block: bytes, values_at: list[int]) -> tuple[bytes, bytes, bytes]:
    """What comes before the first of one or two values, between them (nothing if there is one), and after the last."""
    first_end, last_end = (head_block.index(b"\n", at) for at in (values_at[0], values_at[-1]))
    middle = head_block[first_end : values_at[-1]] if len(values_at) > 1 else b""
    return head_block[: values_at[0]], middle, head_block[last_end:]


def _cut(block: bytes) -> tuple[bytes, bytes | None, bytes | None]:
    """The block without the values that differ where all others repeat; these are `receipt` and `producer-seq`."""
    receipt = sequence = None
    receipt_at = block.find(RECEIPT)
    if receipt_at >= 0:
        block, receipt = cut_receipt(block, receipt_at)
    sequence_at = block.find(SEQUENCE)
    if sequence_at >= 0:
        block, sequence = cut_sequence(block, sequence_at)
    return block, receipt, sequence
