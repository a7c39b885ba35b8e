"""Messages for tests that need some and do not care which."""

from __future__ import annotations

from stompbroker.message import Message, Origin
from stompbroker.stomp import message_tail


def make_message(
    body: bytes = b"body",
    *,
    number: int = 1,
    publisher: str = "publisher",
    is_persistent: bool = True,
    group_key: str | None = None,
) -> Message:
    tail = message_tail(b"test-1-%d" % number, b"destination:/topic/a\n", body)
    origin = Origin(publisher, is_plain=True, is_persistent=is_persistent, group_key=group_key)
    return Message(len(body), tail, origin, 0)


def make_messages(count: int, *, size_bytes: int = 4, publisher: str = "publisher") -> list[Message]:
    return [make_message(b"x" * size_bytes, number=number, publisher=publisher) for number in range(1, count + 1)]
