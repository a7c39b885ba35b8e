"""Frames → bytes.

Law: the only module that renders frames. Lines end in LF alone (stomp.py leaves a stray CR on anything else). The part
of a MESSAGE that is the same for all receivers is rendered once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stompbroker.stomp.frame import Version, escape, unescape
from stompbroker.stomp.heads import UNESCAPED_COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stompbroker.errors import PeerViolation

HEART_BEAT: Final = b"\n"

_NEEDS_ESCAPE: Final = re.compile(r"[\r\n:\\]")

#: Headers of SEND that do not reach the subscriber: they concern only the publisher's connection, or the broker sets
#: them and they must not be forged (`content-length` is made from the body).
NOT_PASSED_THROUGH: Final = frozenset(
    {
        "receipt",
        "transaction",
        "report",
        "mandatory",
        "outcome-to",
        "content-length",
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "delivery-count",
        "redelivery-reason",
        "first-delivered-at",
        "missing-before",
        "retained",
        "returned",
        "returned-destination",
        "producer",
        "producer-epoch",
        "producer-seq",
        "outcome-of",
        "outcome-subscription",
        "outcome-destination",
        "bridge-offset",
        "bridge-published",
        "bridge-expires",
    }
)
#: Headers with this prefix do not either: they say where a dead letter comes from.
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
    """One RECEIPT frame for each, in order, followed by `after_frame`. Hot path: there may be one per SEND."""
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
    # Compared trimmed and in small letters, as an old client may do, which would then take a forged one for ours.
    names = ((name, name.strip().lower()) for name in headers)
    kept = [name for name, plain in names if plain not in NOT_PASSED_THROUGH and not plain.startswith(LETTER_PREFIX)]
    return render_headers([(name, headers[name]) for name in kept], version)


def render_headers(headers: Iterable[tuple[str, str]], version: Version = Version.V1_2) -> bytes:
    """Header lines, each with its line end."""
    return "".join([f"{line}\n" for line in _header_lines(headers, version)]).encode()


def message_tail(message_id: bytes, passed_through: bytes, body: bytes) -> bytes:
    """The part of a MESSAGE that all its receivers share: from the message id to the NUL."""
    return b"message-id:%b\ncontent-length:%d\n%b\n%b\0" % (message_id, len(body), passed_through, body)


def message_tail_template(message_id_prefix: bytes, passed_through: bytes) -> bytes:
    """`template % (number, len(body), body)` is the `message_tail` of one of many messages with the same headers;
    `number` is the end of its id."""
    fixed = (part.replace(b"%", b"%%") for part in (message_id_prefix, passed_through))
    return b"message-id:%b%%d\ncontent-length:%%d\n%b\n%%b\0" % tuple(fixed)


def translate_tail(tail: bytes, version: Version) -> bytes:
    """A tail, which is rendered for 1.2, as an older version needs it. It is seldom needed, and therefore parsed."""
    _, separator, rest = tail.partition(b"\n\n")
    return "\n".join(_header_lines(tail_headers(tail), version)).encode() + separator + rest


def tail_headers(tail: bytes) -> list[tuple[str, str]]:
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
    """The part of a MESSAGE before its tail (or before its `ack` header), the same for a whole run of deliveries.

    A 1.0 subscription without an id has no `subscription` header. `history`: further headers of this delivery.
    """
    named = b"" if subscription is None else b"subscription:%b\n" % escape(subscription, version).encode()
    redelivered = b"true" if is_redelivery else b"false"
    further = render_headers(history, version)
    return b"MESSAGE\n%bredelivered:%b\ndelivery-count:%d\n%b" % (named, redelivered, delivery_count, further)


def _header_lines(headers: Iterable[tuple[str, str]], version: Version) -> list[str]:
    if version is Version.V1_0:
        # A colon in a *name* would move the border between name and value, and 1.0 cannot escape it.
        return [
            f"{escape(name, version).replace(':', chr(92) + 'c')}:{escape(value, version)}" for name, value in headers
        ]
    return [f"{escape(name, version)}:{escape(value, version)}" for name, value in headers]
