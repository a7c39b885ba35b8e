"""Frames → bytes.

Law: the only place that knows how a frame looks on the wire on its way out. Lines end in LF alone (stomp.py leaves a
stray CR on anything else). Every part of a MESSAGE that is the same for all its receivers is rendered once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stompbroker.stomp.escaping import escape, unescape
from stompbroker.stomp.head_parser import UNESCAPED_COMMANDS
from stompbroker.stomp.versions import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stompbroker.errors import PeerViolation

__all__ = [
    "HEART_BEAT",
    "LETTER_PREFIX",
    "NOT_PASSED_THROUGH",
    "delivery_prefix",
    "message_tail",
    "message_tail_template",
    "render_error",
    "render_frame",
    "render_headers",
    "render_passed_through",
    "render_receipts",
    "tail_headers",
    "translate_tail",
]

HEART_BEAT: Final = b"\n"

_NEEDS_ESCAPE: Final = re.compile(r"[\r\n:\\]")

#: Headers of SEND that do not reach the subscriber: they concern the publisher's connection alone, or are the
#: broker's to set and must not be forged (`content-length` is stated anew from the body itself).
NOT_PASSED_THROUGH: Final = frozenset(
    {
        "receipt",
        "transaction",
        "content-length",
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "delivery-count",
        "redelivery-reason",
        "first-delivered-at",
        "missing-before",
    }
)
#: The same for all headers that begin so: they say where a dead letter comes from.
LETTER_PREFIX: Final = "dead-letter-"


def render_frame(
    command: str, headers: Iterable[tuple[str, str]], body: bytes = b"", version: Version = Version.V1_2
) -> bytes:
    """Any frame. `content-length` is added when there is a body."""
    if command in UNESCAPED_COMMANDS:
        # Nothing may be escaped here, so a line feed or NUL has to go: it would end the header or the frame.
        lines = [f"{name}:{value}".replace("\n", " ").replace("\0", " ") for name, value in headers]
    else:
        lines = _header_lines(headers, version)
    if body:
        lines.append(f"content-length:{len(body)}")
    return "\n".join([command, *lines, "\n"]).encode() + body + b"\0"


def render_receipts(receipts: Sequence[str], version: Version, after_frame: bytes = b"") -> bytes:
    """One RECEIPT frame for each, in order, with `after_frame` behind it. Hot path: with a receipt per SEND this is
    half of what a publisher gets."""
    if _NEEDS_ESCAPE.search("".join(receipts)):
        receipts = [escape(receipt, version) for receipt in receipts]
    begin, end = "RECEIPT\nreceipt-id:", f"\n\n\0{after_frame.decode()}"
    return f"{begin}{f'{end}{begin}'.join(receipts)}{end}".encode()


def render_error(violation: PeerViolation, version: Version) -> bytes:
    """The ERROR frame that tells a client what it did wrong and what is allowed."""
    headers = [("message", violation.message), ("content-type", "text/plain"), *violation.headers]
    if violation.receipt is not None:
        headers.append(("receipt-id", violation.receipt))
    body = f"{violation.detail or violation.summary}\n".encode(errors="replace")
    return render_frame("ERROR", headers, body, version)


def render_passed_through(headers: Mapping[str, str], version: Version) -> bytes:
    """The header lines of a SEND that its MESSAGEs repeat, each with its line end."""
    # Trimmed and in small letters: an old client may do that before it compares, and take a forged one for ours.
    kept = ((name, value) for name, value in headers.items() if not _is_ours(name.strip().lower()))
    return render_headers(kept, version)


def render_headers(headers: Iterable[tuple[str, str]], version: Version = Version.V1_2) -> bytes:
    """Header lines, each with its line end."""
    return "".join([f"{line}\n" for line in _header_lines(headers, version)]).encode()


def _is_ours(name: str) -> bool:
    return name in NOT_PASSED_THROUGH or name.startswith(LETTER_PREFIX)


def message_tail(message_id: bytes, passed_through: bytes, body: bytes) -> bytes:
    """Everything of a MESSAGE that all its receivers share: from the message id to the NUL."""
    return b"message-id:%b\ncontent-length:%d\n%b\n%b\0" % (message_id, len(body), passed_through, body)


def message_tail_template(message_id_prefix: bytes, passed_through: bytes) -> bytes:
    """What makes `message_tail`s of messages that differ in the number at the end of their id and in their body alone:
    `template % (number, len(body), body)`."""
    fixed = (part.replace(b"%", b"%%") for part in (message_id_prefix, passed_through))
    return b"message-id:%b%%d\ncontent-length:%%d\n%b\n%%b\0" % tuple(fixed)


def translate_tail(tail: bytes, version: Version) -> bytes:
    """A tail, which is rendered for 1.2, as an older version has to see it. Seldom needed, so it is parsed again."""
    _, separator, rest = tail.partition(b"\n\n")
    return "\n".join(_header_lines(tail_headers(tail), version)).encode() + separator + rest


def tail_headers(tail: bytes) -> list[tuple[str, str]]:
    """The headers of a tail, in their order."""
    lines, _, _ = tail.partition(b"\n\n")
    pairs = [line.split(":", 1) for line in lines.decode().split("\n")]
    return [(unescape(name, Version.V1_2), unescape(value, Version.V1_2)) for name, value in pairs]


def delivery_prefix(
    subscription: str | None,
    version: Version,
    *,
    is_redelivery: bool = False,
    delivery_count: int = 1,
    history: Iterable[tuple[str, str]] = (),
) -> bytes:
    """What comes before a MESSAGE's tail (or before its `ack` header), the same for a whole run of deliveries.

    In 1.0 a subscription without an id has no `subscription` header. `history`: further headers of this delivery.
    """
    named = b"" if subscription is None else b"subscription:%b\n" % escape(subscription, version).encode()
    redelivered = b"true" if is_redelivery else b"false"
    further = render_headers(history, version)
    return b"MESSAGE\n%bredelivered:%b\ndelivery-count:%d\n%b" % (named, redelivered, delivery_count, further)


def _header_lines(headers: Iterable[tuple[str, str]], version: Version) -> list[str]:
    if version is Version.V1_0:
        # A colon in a *name* would move the border between name and value, and 1.0 has no way to say it.
        return [
            f"{escape(name, version).replace(':', chr(92) + 'c')}:{escape(value, version)}" for name, value in headers
        ]
    return [f"{escape(name, version)}:{escape(value, version)}" for name, value in headers]
