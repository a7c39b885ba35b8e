"""From messages to MESSAGE frames.

Law: synchronous. The part of a frame that all receivers share is taken from the message as it is.

Hot path, guarded by `make bench` (topic 1→1, 1→50): a run of small messages is one join, a large body is not copied.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.buffers import LARGE_BYTES
from stompbroker.clock import iso_time
from stompbroker.sessions.bridging import told_of
from stompbroker.stomp import Version, delivery_prefix, translate_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.delivery import Particulars
    from stompbroker.errors import PeerViolation
    from stompbroker.message import Message
    from stompbroker.sessions.outbox import Outbox

#: More messages than these are small: an outbox has room for 512 KiB. Nobody looks for a large one among them.
MOST_BESIDE_LARGE: Final = 32


@final
@dataclass(slots=True, eq=False)
class StompSink:
    """From messages to the MESSAGE frames of one consumer. A message's tail, which all receivers share, was rendered
    when it was published. Here the consumer's own headers (subscription, attempt, `ack` id) are put in front; for older
    versions the tail is translated."""

    outlet: Outbox
    #: Ends the whole connection.
    disconnect: Callable[[PeerViolation], None]
    _: KW_ONLY
    subscription_name: str | None
    version: Version
    #: Sent after every frame. It is not part of a tail: tails are stored, and the setting may change.
    after_frame: bytes
    #: For a bridge, which is told where messages are in the store.
    store_id: str = ""
    ordinal: InitVar[int]
    expects_acks: InitVar[bool]
    _prefix: bytes = field(init=False)
    _ack_prefix: bytes | None = field(init=False)

    def __post_init__(self, ordinal: int, expects_acks: bool) -> None:
        self._prefix = delivery_prefix(self.subscription_name, self.version)
        self._ack_prefix = b"ack:%d-" % ordinal if expects_acks and self.version is Version.V1_2 else None

    def deliver(
        self,
        messages: Sequence[Message],
        first_number: int,
        particulars: Particulars | None = None,
        when_sent: Callable[[], None] | None = None,
    ) -> None:
        if particulars is None:
            parts = self._rendered(self._prefix, messages, first_number)
        else:
            parts = self._with_particulars(messages, first_number, particulars)
        self.outlet.put_deliveries(parts, when_sent)

    def _with_particulars(
        self, messages: Sequence[Message], first_number: int, particulars: Particulars
    ) -> list[bytes]:
        first_offset = particulars.first_offset
        if particulars.topic_number is not None and first_offset is not None:
            return self._for_bridge(messages, first_number, particulars, particulars.topic_number, first_offset)
        if particulars.is_again:
            return self._rendered(self._prefix_again(particulars), messages, first_number)
        if particulars.is_last_value:
            return self._rendered(self._prefix + b"retained:true\n", messages, first_number)
        if first_offset is not None:
            return self._with_offsets(messages, first_number, first_offset, particulars.missing_before)
        return self._rendered(self._prefix, messages, first_number)

    def _with_offsets(
        self, messages: Sequence[Message], first_number: int, first_offset: int, missing_before: int | None
    ) -> list[bytes]:
        """From a topic that retains messages: each has its offset, and the first of a replay says what is missing."""
        missing = b"" if missing_before is None else b"missing-before:%d\n" % missing_before
        parts: list[bytes] = []
        for index, message in enumerate(messages):
            prefix = self._prefix + b"offset:%d\n" % (first_offset + index) + missing
            parts += self._rendered(prefix, [message], first_number + index)
            missing = b""
        return parts

    def _for_bridge(
        self,
        messages: Sequence[Message],
        first_number: int,
        particulars: Particulars,
        topic_number: int,
        first_offset: int,
    ) -> list[bytes]:
        prefix = self._prefix_again(particulars) if particulars.is_again else self._prefix
        parts: list[bytes] = []
        for index, message in enumerate(messages):
            told = told_of(message, self.store_id, topic_number, first_offset + index)
            parts += self._rendered(prefix + told, [message], first_number + index)
        return parts

    def _prefix_again(self, particulars: Particulars) -> bytes:
        failure = particulars.failure
        history = []
        if failure is not None and failure.reason:
            history.append(("redelivery-reason", failure.reason))
        if particulars.first_sent_ns is not None:
            history.append(("first-delivered-at", iso_time(particulars.first_sent_ns)))
        if particulars.first_offset is not None:
            history.append(("offset", str(particulars.first_offset)))
        if particulars.missing_before is not None:
            history.append(("missing-before", str(particulars.missing_before)))
        delivery_count = 1 if failure is None else failure.count + 1
        return delivery_prefix(
            self.subscription_name, self.version, delivery_count=delivery_count, is_redelivery=True, history=history
        )

    def _rendered(self, prefix: bytes, messages: Sequence[Message], first_number: int) -> list[bytes]:
        """As one buffer, or, with large bodies, each of these in its own."""
        if self.version is Version.V1_2:
            tails = [message.tail for message in messages]
        elif self.version is Version.V1_1:
            tails = [
                message.tail if message.origin.is_plain else translate_tail(message.tail, self.version)
                for message in messages
            ]
        else:
            tails = [translate_tail(message.tail, self.version) for message in messages]
        if len(tails) <= MOST_BESIDE_LARGE and max(map(len, tails)) >= LARGE_BYTES:
            return self._in_parts(prefix, tails, first_number)
        if self._ack_prefix is None:
            return [b"".join((prefix, (self.after_frame + prefix).join(tails), self.after_frame))]
        template = (prefix + self._ack_prefix).replace(b"%", b"%%") + b"%d\n%b" + self.after_frame
        return [b"".join([template % numbered for numbered in enumerate(tails, first_number)])]

    def _in_parts(self, prefix: bytes, tails: list[bytes], first_number: int) -> list[bytes]:
        parts: list[bytes] = []
        frame_end = b""
        for number, tail in enumerate(tails, first_number):
            ack = b"" if self._ack_prefix is None else b"%b%d\n" % (self._ack_prefix, number)
            parts += (frame_end + prefix + ack, tail)
            frame_end = self.after_frame
        if frame_end:
            parts.append(frame_end)
        return parts
