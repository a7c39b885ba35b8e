"""From messages to the MESSAGE frames of one consumer.

Law: bytes only. What all receivers share is the message's tail, rendered once when it was published; here is put in
front of it what is this consumer's own: subscription, attempt, `ack` id. For older versions the tail is translated.

Hot path: a run of messages is one join. `make bench` (topic 1→1, 1→50) guards it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.stomp import Version, delivery_prefix, translate_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.message import Message

__all__ = ["Rendering"]


@final
class Rendering:
    __slots__ = ("_ack_prefix", "_prefix", "_subscription_name", "_version")

    def __init__(self, subscription_name: str | None, version: Version, *, ordinal: int, expects_acks: bool) -> None:
        self._subscription_name = subscription_name
        self._version = version
        self._prefix = delivery_prefix(subscription_name, version)
        self._ack_prefix = b"ack:%d-" % ordinal if expects_acks and version is Version.V1_2 else None

    def first_time(self, messages: Sequence[Message], first_number: int) -> bytes:
        """A run of messages that are sent for the first time, numbered from `first_number` on."""
        return self._joined(self._prefix, messages, first_number)

    def again(self, message: Message, number: int, delivery_count: int) -> bytes:
        """A message that has been sent before."""
        prefix = delivery_prefix(
            self._subscription_name, self._version, is_redelivery=True, delivery_count=delivery_count
        )
        return self._joined(prefix, [message], number)

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
            return prefix + prefix.join(tails)
        prefix += self._ack_prefix
        return b"".join([b"%b%d\n%b" % (prefix, number, tail) for number, tail in enumerate(tails, first_number)])
