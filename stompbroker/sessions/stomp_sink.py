"""From messages to the MESSAGE frames of one consumer, in the outbox of its connection.

Law: bytes only. A message's tail, which all receivers share, was rendered when it was published. Here the consumer's
own headers (subscription, attempt, `ack` id) are put in front; for older versions the tail is translated.

Hot path: a run of messages is one join. `make bench` (topic 1→1, 1→50) guards it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.clock import iso_time
from stompbroker.delivery import Sink
from stompbroker.stomp import Version, delivery_prefix, translate_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.delivery import Deliveries
    from stompbroker.errors import PeerViolation
    from stompbroker.message import Message
    from stompbroker.sessions.outbox import Outbox


@final
class StompSink(Sink):
    __slots__ = ("_ack_prefix", "_after_frame", "_disconnect", "_outbox", "_prefix", "_subscription_name", "_version")

    def __init__(
        self,
        outbox: Outbox,
        disconnect: Callable[[PeerViolation], None],
        *,
        subscription_name: str | None,
        version: Version,
        after_frame: bytes,
        ordinal: int,
        expects_acks: bool,
    ) -> None:
        """`after_frame` is sent after every frame. It is not part of a tail: tails are stored, and the setting may
        change. `disconnect` ends the whole connection."""
        self._outbox = outbox
        self._disconnect = disconnect
        self._subscription_name = subscription_name
        self._version = version
        self._after_frame = after_frame
        self._prefix = delivery_prefix(subscription_name, version)
        self._ack_prefix = b"ack:%d-" % ordinal if expects_acks and version is Version.V1_2 else None

    @property
    def has_room(self) -> bool:
        return self._outbox.has_room

    @property
    def is_memory_tight(self) -> bool:
        return self._outbox.is_memory_tight

    @property
    def is_deserted(self) -> bool:
        return self._outbox.is_deserted

    @property
    def put_bytes(self) -> int:
        return self._outbox.put_bytes

    @property
    def sent_bytes(self) -> int:
        return self._outbox.sent_bytes

    def deliver(self, deliveries: Deliveries, when_sent: Callable[[], None] | None = None) -> None:
        if deliveries.is_again:
            data = self._again(deliveries)
        elif deliveries.first_offset is not None:
            data = self._with_offsets(deliveries, deliveries.first_offset)
        else:
            data = self._joined(self._prefix, deliveries.messages, deliveries.first_number)
        self._outbox.put_deliveries(data, when_sent)

    def call_when_room(self, wake: Callable[[], None]) -> None:
        self._outbox.call_when_room(wake)

    def disconnect(self, violation: PeerViolation) -> None:
        self._disconnect(violation)

    def _with_offsets(self, deliveries: Deliveries, first_offset: int) -> bytes:
        """From a topic that retains messages: each has its offset, and the first of a replay says what is missing."""
        messages, first_number = deliveries.messages, deliveries.first_number
        parts = [
            self._joined(self._prefix + b"offset:%d\n" % (first_offset + index), [message], first_number + index)
            for index, message in enumerate(messages)
        ]
        if deliveries.missing_before is not None:
            prefix = self._prefix + b"offset:%d\nmissing-before:%d\n" % (first_offset, deliveries.missing_before)
            parts[0] = self._joined(prefix, messages[:1], first_number)
        return b"".join(parts)

    def _again(self, deliveries: Deliveries) -> bytes:
        failure = deliveries.failure
        history = []
        if failure is not None and failure.reason:
            history.append(("redelivery-reason", failure.reason))
        if deliveries.first_sent_ns is not None:
            history.append(("first-delivered-at", iso_time(deliveries.first_sent_ns)))
        if deliveries.first_offset is not None:
            history.append(("offset", str(deliveries.first_offset)))
        if deliveries.missing_before is not None:
            history.append(("missing-before", str(deliveries.missing_before)))
        delivery_count = 1 if failure is None else failure.count + 1
        prefix = delivery_prefix(
            self._subscription_name, self._version, delivery_count=delivery_count, is_redelivery=True, history=history
        )
        return self._joined(prefix, deliveries.messages, deliveries.first_number)

    def _joined(self, prefix: bytes, messages: Sequence[Message], first_number: int) -> bytes:
        if self._version is Version.V1_2:
            tails = [message.tail for message in messages]
        elif self._version is Version.V1_1:
            tails = [
                message.tail if message.origin.is_plain else translate_tail(message.tail, self._version)
                for message in messages
            ]
        else:
            tails = [translate_tail(message.tail, self._version) for message in messages]
        if self._ack_prefix is None:
            return b"".join((prefix, (self._after_frame + prefix).join(tails), self._after_frame))
        template = (prefix + self._ack_prefix).replace(b"%", b"%%") + b"%d\n%b" + self._after_frame
        return b"".join([template % numbered for numbered in enumerate(tails, first_number)])
