"""Messages for tests that need some and do not care which."""

from __future__ import annotations

from stompbroker.ids import ConnectionId
from stompbroker.message import Message
from stompbroker.stomp import message_tail

__all__ = ["make_message", "make_messages"]


def make_message(body: bytes = b"body", *, number: int = 1, publisher: int = 1) -> Message:
    tail = message_tail(b"test-1-%d" % number, b"destination:/topic/a\n", body)
    return Message(len(body), tail, True, ConnectionId(publisher), 0)


def make_messages(count: int, *, size_bytes: int = 4, publisher: int = 1) -> list[Message]:
    return [make_message(b"x" * size_bytes, number=number, publisher=publisher) for number in range(1, count + 1)]
