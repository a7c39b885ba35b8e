"""Header blocks: where they begin and end, and the `Head` that each distinct block is parsed to once.

Law: a block is the command and header lines, without the empty line that ends them. A publisher sends the same block
over and over, so remembering it saves most of the work of reading a frame (`make bench`, topic 1→1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.frame import Head, unescape

if TYPE_CHECKING:
    from stompbroker.stomp.frame import Limits, Version

#: What 1.0 clients pad header values with; other kinds of space are part of the value.
PADDING: Final = " \t\r"
#: STOMP 1.2, "Value Encoding": these frames are not escaped, for the sake of 1.0 peers.
UNESCAPED_COMMANDS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})
RECEIPT: Final = b"\nreceipt:"
SEQUENCE: Final = b"\nproducer-seq:"

LF_SEPARATOR: Final = b"\n\n"
_CRLF_SEPARATOR: Final = b"\n\r\n"
MAX_SEPARATOR_BYTES: Final = len(_CRLF_SEPARATOR)
#: Runs of line ends are skipped as one: byte by byte, a chunk of 256 KiB took 35 ms.
_LINE_FEEDS: Final = re.compile(rb"\n+")
_LINE_END_BYTES: Final = re.compile(rb"[\r\n]+")

#: What a remembered block takes beside its bytes and its headers: the head, what the session derives from it, and the
#: topic, which may be kept by that alone.
KNOWN_OVERHEAD_BYTES: Final = 2 * 1024
#: What every connection may remember: a publisher to some twenty destinations.
SMALL_MEMO_BYTES: Final = 64 * 1024
#: What all memos together may borrow beyond that, and how much at a time: for a few publishers to ten thousand.
ALLOWANCE_BYTES: Final = 64 * 1024 * 1024
_LOAN_BYTES: Final = 64 * 1024
#: Places for traces of blocks seen once: as many bytes. A publisher that fills the first has many destinations.
FEW_TRACES: Final = 256
MANY_TRACES: Final = 16 * 1024
#: A message with no other headers has nothing of its own, and so its block comes again.
_OF_ANY_MESSAGE: Final = frozenset({"destination", "content-length", "content-type"})
#: Multiples of it (the golden ratio) have a bit 31 that keeps time with nothing.
_NO_RHYTHM: Final = 0x9E3779B1


@final
@dataclass(slots=True, eq=False)
class HeadAllowance:
    """What the memos of all connections have borrowed from each other.

    Invariants:
        0 <= borrowed_bytes <= limit_bytes
    """

    limit_bytes: int = ALLOWANCE_BYTES
    borrowed_bytes: int = 0

    def borrow(self) -> int:
        """How many bytes more a memo may have; 0 if there are none left."""
        if self.borrowed_bytes + _LOAN_BYTES > self.limit_bytes:
            return 0
        self.borrowed_bytes += _LOAN_BYTES
        return _LOAN_BYTES


@final
@dataclass(slots=True, eq=False)
class HeadMemo:
    """Blocks of one connection that were seen twice, or say nothing but where a message goes. Frames that never repeat,
    such as ACKs or messages with an id of their own in the headers, cost a hash and push nothing out.

    Invariants:
        _size_bytes == what the blocks in `known` weigh <= SMALL_MEMO_BYTES + _borrowed_bytes
        len(_traces) <= MANY_TRACES
    """

    _allowance: HeadAllowance = field(default_factory=HeadAllowance)
    #: Read by the hot loop of the frame reader, written here only.
    known: dict[bytes, Head] = field(default_factory=dict)
    _size_bytes: int = 0
    _borrowed_bytes: int = 0
    #: By some bits of a block's hash: some other bits of it.
    _traces: bytearray = field(default_factory=bytearray)
    _traced: int = 0

    def offer(self, block: bytes, head: Head) -> None:
        """Remember a block that was not known, if it comes for the second time, or says nothing but where it goes."""
        weight_bytes = _weight_bytes(block, head)
        says_only_where = "destination" in head.headers and head.headers.keys() <= _OF_ANY_MESSAGE
        if weight_bytes > SMALL_MEMO_BYTES or not (says_only_where or self._was_seen(hash(block))):
            return
        if self._size_bytes + weight_bytes > SMALL_MEMO_BYTES + self._borrowed_bytes:
            self._borrowed_bytes += self._allowance.borrow()
        if self._size_bytes + weight_bytes > SMALL_MEMO_BYTES + self._borrowed_bytes:
            # Starting over is as good as any eviction order here: what is in use comes back within two frames.
            self._forget()
        self.known[block] = head
        self._size_bytes += weight_bytes

    def _was_seen(self, fingerprint: int) -> bool:
        """Whether it has left a trace that none has covered since. If not, it leaves one now.

        It covers that of another half of the time, in no rhythm: of two that take turns, one would never be known.
        """
        traces = self._traces
        if len(traces) < MANY_TRACES and self._traced >= len(traces):
            traces = self._traces = bytearray(MANY_TRACES if traces else FEW_TRACES)
        self._traced += 1
        place, trace = (fingerprint >> 8) % len(traces), fingerprint % 255 + 1
        if traces[place] == trace:
            return True
        if not traces[place] or self._traced * _NO_RHYTHM & 1 << 31:
            traces[place] = trace
        return False

    def _forget(self) -> None:
        self.known.clear()
        self._size_bytes = 0

    def clear(self) -> None:
        """The version, and with it the meaning of bytes, has changed; or the connection has ended."""
        self._forget()
        self._allowance.borrowed_bytes -= self._borrowed_bytes
        self._borrowed_bytes = 0
        self._traces = bytearray()
        self._traced = 0

    def check_invariants(self) -> None:
        assert sum(_weight_bytes(block, head) for block, head in self.known.items()) == self._size_bytes
        assert self._size_bytes <= SMALL_MEMO_BYTES + self._borrowed_bytes
        assert self._borrowed_bytes <= self._allowance.borrowed_bytes <= self._allowance.limit_bytes
        assert len(self._traces) <= MANY_TRACES


def _weight_bytes(block: bytes, head: Head) -> int:
    """Short headers take far more memory than bytes."""
    return len(block) + head.size_bytes + KNOWN_OVERHEAD_BYTES


def after_empty_lines(data: bytes, position: int, version: Version | None) -> int:
    """Skip the line ends between frames, which are also the heart-beats."""
    line_feeds = _LINE_FEEDS.match(data, position)
    stop = position if line_feeds is None else line_feeds.end()
    if not data.startswith(b"\r\n", stop) or not _accepts_crlf(version):
        return stop
    line_ends = _LINE_END_BYTES.match(data, position)
    assert line_ends is not None
    bare_cr = line_ends[0].replace(b"\r\n", b"\n\n").find(b"\r")
    return line_ends.end() if bare_cr < 0 else position + bare_cr


def find_head_end(
    data: bytes, position: int, bound: int, version: Version | None, last_separator: bytes
) -> tuple[int, bytes]:
    """Where the first empty line before `bound` is, and which kind; -1 if there is none yet. The kind seen last is
    searched for first, and bounds the search for the other, so that no frame causes a search of the whole chunk."""
    if not _accepts_crlf(version):
        return data.find(LF_SEPARATOR, position, bound), LF_SEPARATOR
    first, second = LF_SEPARATOR, _CRLF_SEPARATOR
    if last_separator is _CRLF_SEPARATOR:
        first, second = second, first
    found = data.find(first, position, bound)
    # The second counts if it begins earlier. Its last byte may be the first of the other one: an empty line in CR LF
    # style, and a body that begins with a line feed.
    earlier = data.find(second, position, found + 1 if found >= 0 else bound)
    return (earlier, second) if earlier >= 0 else (found, first)


def _accepts_crlf(version: Version | None) -> bool:
    return version is None or version.accepts_crlf


def cut_receipt(block: bytes, receipt_at: int) -> tuple[bytes, bytes]:
    """The block without its `receipt` line, which begins at `receipt_at`, and that line's value."""
    receipt_end = block.find(b"\n", receipt_at + 1)
    if receipt_end < 0:
        receipt_end = len(block)
    return block[:receipt_at] + block[receipt_end:], block[receipt_at + len(RECEIPT) : receipt_end]


def cut_sequence(block: bytes, sequence_at: int) -> tuple[bytes, bytes]:
    """The block without the value of its `producer-seq` line, which begins at `sequence_at`, and that value. The name
    stays, so that blocks with a number and without differ."""
    value_at = sequence_at + len(SEQUENCE)
    value_end = block.find(b"\n", value_at)
    if value_end < 0:
        value_end = len(block)
    return block[:value_at] + block[value_end:], block[value_at:value_end]


def parse_head(block: bytes, version: Version | None, limits: Limits, *, lines_cut: int = 0) -> Head:
    """Parse a block. `version` is None until CONNECT has been read, and then lines may end either way. `lines_cut`
    header lines were cut out of the block, and count all the same. Raises PeerViolation."""
    text = _decoded(block)
    lines = text.split("\n")
    if "\r" in text:
        lines = _without_line_end_cr(lines, version)
    command = lines[0]
    count = len(lines) - 1 + lines_cut
    if count > limits.max_header_count:
        raise PeerViolation(
            "too many headers",
            f"{command} carries {count} header lines; at most {limits.max_header_count} are allowed",
        )
    escapes = None if command in UNESCAPED_COMMANDS else version
    trims = escapes is not None and escapes.trims_values
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise PeerViolation(
                "malformed header", f"the line {line[:80]!r} of {command} has no colon; a header is name:value"
            )
        if not name:
            raise PeerViolation("malformed header", f"the line {line[:80]!r} of {command} has no name before the colon")
        if trims:
            value = value.strip(PADDING)
        if escapes is not None and "\\" in line:
            name, value = unescape(name, escapes), unescape(value, escapes)
        # STOMP 1.2, "Repeated Header Entries": only the first one counts (test_item_11).
        headers.setdefault(name, value)
    return Head(command, headers, _content_length(headers.get("content-length"), command, limits))


def parse_value(raw: bytes, version: Version | None) -> str:
    """One header value that was cut out of its block."""
    text = _decoded(raw)
    if "\r" in text:
        (text,) = _without_line_end_cr([text], version)
    if version is None:
        return text
    if version.trims_values:
        return text.strip(PADDING)
    return unescape(text, version) if "\\" in text else text


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise PeerViolation(
            "headers are not UTF-8",
            f"byte {error.object[error.start]:#04x} at position {error.start} of the headers is not; encode them so",
        ) from None


def _without_line_end_cr(lines: list[str], version: Version | None) -> list[str]:
    """Remove the CR of CR LF where the version allows such line ends; a CR elsewhere in a line is an error."""
    if not _accepts_crlf(version):
        return lines
    lines = [line.removesuffix("\r") for line in lines]
    if version is not None and not version.trims_values and any("\r" in line for line in lines):
        raise PeerViolation(
            "carriage return inside a header line",
            f"in STOMP {version.value} a CR may stand only before the LF that ends a line; escape it as \\r",
        )
    return lines


def _content_length(value: str | None, command: str, limits: Limits) -> int:
    if value is None:
        return -1
    if not (value.isascii() and value.isdigit()):
        raise PeerViolation(
            "malformed content-length", f"{value[:40]!r} on {command} is not a number of bytes; 0 or more is allowed"
        )
    # Leading zeros aside, a number with more digits is larger, so long texts need not be converted.
    digits = value.lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > limits.max_body_bytes:
        raise PeerViolation(
            "body too large",
            f"{command} announces {digits[:40]} bytes of body; at most {limits.max_body_bytes} are allowed",
        )
    return int(digits)
