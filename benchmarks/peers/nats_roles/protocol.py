"""The few lines of the NATS protocol that a load generator sends, as bytes.

Encoding only. Bodies hold no line feed, so that the receiving side can count messages by their line ends.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from benchmarks.frames import FrameRing

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"tls_required":false,"lang":"python","version":"1"}\r\n'
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"


def subject_of(destination: str) -> str:
    """`/topic/a.b` is `topic.a.b`; `topic.>` are all of them."""
    return destination.strip("/").replace("/", ".")


def subscribe(subject: str, *, number: int) -> bytes:
    return b"SUB %b %d\r\n" % (subject.encode(), number)


def publish(subject: str, body: bytes, *, reply_to: str = "") -> bytes:
    """The server, or the receiver, answers at `reply_to`."""
    names = f"{subject} {reply_to}" if reply_to else subject
    return b"PUB %b %d\r\n%b\r\n" % (names.encode(), len(body), body)


def request(subject: str, question: Mapping[str, object], *, reply_to: str) -> bytes:
    return publish(subject, json.dumps(question).encode(), reply_to=reply_to)


def acknowledge_all(replies: list[bytes]) -> bytes:
    """Acknowledgements: an empty message to each reply subject."""
    if not replies:
        return b""
    begin, end = b"PUB ", b" 0\r\n\r\n"
    return begin + (end + begin).join(replies) + end


def ring_of_publishes(subject: str, *, body_bytes: int, frames: int, reply_to: str = "") -> FrameRing:
    encoded = publish(subject, b"x" * body_bytes, reply_to=reply_to)
    return FrameRing(data=encoded * frames, frame_bytes=len(encoded))
