"""From messages to the MESSAGE frames of one consumer.

Law: bytes only. What all receivers share is the message's tail, rendered once when it was published; here is put in
front of it what is this consumer's own: subscription, attempt, `ack` id. For older versions the tail is translated.

Hot path: a run of messages is one join. `make bench` (topic 1→1, 1→50) guards it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.clock import iso_time
from stompbroker.stomp import Version, delivery_prefix, translate_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.delivery.failure import Failure
    from stompbroker.message import Message

__all__ = ["Rendering"]


@final
class Rendering:
    __slots__ = ("_ack_prefix", "_after_frame", "_prefix", "_subscription_name", "_version")

    def __init__(
        self, subscription_name: str | None, version: Version, after_frame: bytes, *, ordinal: int, expects_acks: bool
    ) -> None:
        """`after_frame` is sent behind every frame. It is no part of a tail, which ends in NUL whatever is set: tails
        are stored."""
        self._subscription_name = subscription_name
        self._version = version
        self._after_frame = after_frame
        self._prefix = delivery_prefix(subscription_name, version)
        self._ack_prefix = b"ack:%d-" % ordinal if expects_acks and version is Version.V1_2 else None

    def first_time(self, messages: Sequence[Message], first_number: int) -> bytes:
        """A run of messages that are sent for the first time, numbered from `first_number` on."""
        return self._joined(self._prefix, messages, first_number)

    def with_offsets(
        self, messages: Sequence[Message], first_number: int, first_offset: int, missing_before: int | None
    ) -> bytes:
        """The same for a topic that retains its messages: each says where it stands, and the first of a replay what of
        it is not there any more."""
        numbered = enumerate(messages)
        parts = [
            self._joined(self._prefix + b"offset:%d\n" % (first_offset + index), [message], first_number + index)
            for index, message in numbered
        ]
        if missing_before is not None:
            prefix = self._prefix + b"offset:%d\nmissing-before:%d\n" % (first_offset, missing_before)
            parts[0] = self._joined(prefix, messages[:1], first_number)
        return b"".join(parts)

    def again(
        self,
        messages: Sequence[Message],
        first_number: int,
        failure: Failure | None,
        first_sent_ns: int | None,
        offset: int | None,
        missing_before: int | None,
    ) -> bytes:
        """Messages that have been sent before, with what is known of that, which is one thing for all of them."""
        history = []
        if failure is not None and failure.reason:
            history.append(("redelivery-reason", failure.reason))
        if first_sent_ns is not None:
            history.append(("first-delivered-at", iso_time(first_sent_ns)))
        if offset is not None:
            history.append(("offset", str(offset)))
        if missing_before is not None:
            history.append(("missing-before", str(missing_before)))
        delivery_count = 1 if failure is None else failure.count + 1
        prefix = delivery_prefix(
            self._subscription_name, self._version, delivery_count=delivery_count, is_redelivery=True, history=history
        )
        return self._joined(prefix, messages, first_number)

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
