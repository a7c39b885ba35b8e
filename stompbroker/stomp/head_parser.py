"""One header block → `Head`.

Law: from bytes that are known to be a whole block (command and header lines, without the empty line that ends them)
to a `Head`, or a PeerViolation that says what is wrong with it. Knows nothing of where the bytes came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.escaping import unescape
from stompbroker.stomp.frame import Head

if TYPE_CHECKING:
    from stompbroker.stomp.limits import Limits
    from stompbroker.stomp.versions import Version

__all__ = ["PADDING", "UNESCAPED_COMMANDS", "parse_head", "parse_value"]

#: What 1.0 clients pad header values with; other kinds of space are part of the value.
PADDING: Final = " \t\r"

#: STOMP 1.2, "Value Encoding": these frames stay as they are, for the sake of 1.0 peers.
UNESCAPED_COMMANDS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})


def parse_head(block: bytes, version: Version | None, limits: Limits, *, lines_cut: int = 0) -> Head:
    """Parse a block. `version` is None until CONNECT has been read, and then lines may end either way.

    `lines_cut`: header lines that were taken out of the block before, and count all the same.
    """
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
    """The meaning of one header value that was cut out of its block (the receipt's)."""
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
    """Take the CR of CR LF off, where the version allows such line ends; a CR elsewhere in a line is an error."""
    if version is not None and not version.accepts_crlf:
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
    # Leading zeros aside, a number with more digits is larger: nothing long is ever made a number.
    digits = value.lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > limits.max_body_bytes:
        raise PeerViolation(
            "body too large",
            f"{command} announces {digits[:40]} bytes of body; at most {limits.max_body_bytes} are allowed",
        )
    return int(digits)
