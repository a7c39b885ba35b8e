"""Counts a stream of NATS messages without parsing each message.

Results do not depend on where the stream is cut into buffers. A message is two lines, head and body, and bodies hold no
line feed, so half of the line ends are messages. The one PING that the server sends each client after some seconds is a
single line: half a message, which rounding down removes.

On the hot path of the generator, as `frame_counting`.
"""

from __future__ import annotations

import re
from typing import Final, final

from benchmarks.answering import Answer
from benchmarks.broken import Broken
from benchmarks.peers.nats_roles.protocol import acknowledge_all

_LINE_END: Final = b"\n"
_LINES_PER_MESSAGE: Final = 2
_HEAD_WITH_REPLY: Final = re.compile(rb"MSG [^ \r\n]+ [^ \r\n]+ ([^ \r\n]+) \d+\r\n")
_REFUSALS: Final = (b"-ERR", b'"error"')
_SHOWN_BYTES: Final = 400


@final
class MessageCounter:
    """Counts the messages and bytes of one stream.

    Invariant: `_lines` is the number of line feeds in the first `byte_count` bytes of the stream.
    """

    __slots__ = ("_lines", "byte_count")

    def __init__(self) -> None:
        self._lines = 0
        self.byte_count = 0

    @property
    def frames(self) -> int:
        return self._lines // _LINES_PER_MESSAGE

    def count(self, buffer: bytearray, length: int) -> None:
        self._lines += buffer.count(_LINE_END, 0, length)
        self.byte_count += length


@final
class StoredCounter:
    """Counts JetStream's confirmations; raises a refusal."""

    __slots__ = ("_counter",)

    def __init__(self) -> None:
        self._counter = MessageCounter()

    @property
    def frames(self) -> int:
        return self._counter.frames

    @property
    def byte_count(self) -> int:
        return self._counter.byte_count

    def count(self, buffer: bytearray, length: int) -> None:
        for refusal in _REFUSALS:
            if (found := buffer.find(refusal, 0, length)) >= 0:
                raise Broken(f"JetStream refused a message: {bytes(buffer[found : found + _SHOWN_BYTES])!r}")
        self._counter.count(buffer, length)


@final
class AcknowledgeReplies:
    """Acknowledges every message at its reply subject.

    Invariant: `_rest` is the end of the stream after its last line feed.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def answer(self, chunk: bytes) -> Answer:
        joined = self._rest + chunk
        end = joined.rfind(_LINE_END) + 1
        self._rest = joined[end:]
        replies = _HEAD_WITH_REPLY.findall(joined, 0, end)
        return Answer(len(replies), acknowledge_all(replies))
