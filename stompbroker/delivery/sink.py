"""Where the deliveries of one consumer go: a STOMP connection, or a list in a test.

Law: an interface of the core. It is handed runs of messages while it has room, and decides how and when they leave. It
counts bytes of its own form of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.delivery.policy import Failure
    from stompbroker.errors import PeerViolation
    from stompbroker.ids import Offset
    from stompbroker.message import Message


class Particulars(NamedTuple):
    """What a receiver is told beside the messages; most have none."""

    #: The offset of the first of them, if the receiver is told offsets.
    first_offset: Offset | None = None
    #: Told with the first one: what the receiver asked for below this offset is gone.
    missing_before: Offset | None = None
    #: Whether they have been delivered before; the rest is their history, the same for all of them.
    is_again: bool = False
    failure: Failure | None = None
    first_sent_ns: int | None = None
    #: Whether these are last values of topics, each of its own, which are shown to a newcomer.
    is_last_value: bool = False
    #: The store's number of the topic, if the receiver is a bridge: then it is also told offsets.
    topic_number: int | None = None


class Outlet(Protocol):
    """Bytes on their way to a peer, perhaps from several sinks."""

    @property
    def has_room(self) -> bool:
        """Whether more may be delivered."""

    @property
    def room_bytes(self) -> int:
        """How much may be delivered at once, if there is room: one message more is no harm."""

    @property
    def is_memory_tight(self) -> bool:
        """Whether nothing more should be delivered before everything is answered."""

    @property
    def is_deserted(self) -> bool:
        """Whether the peer is gone."""

    @property
    def put_bytes(self) -> int:
        """How many bytes were ever put into it, by anybody."""

    @property
    def sent_bytes(self) -> int:
        """How many of them are with the kernel."""

    def call_when_room(self, wake: Callable[[], None]) -> None:
        """There was no room: call `wake` once when there may be some. Asking twice is asking once."""


class Sink(Protocol):
    @property
    def outlet(self) -> Outlet: ...

    def deliver(
        self,
        messages: Sequence[Message],
        first_number: int,
        particulars: Particulars | None = None,
        when_sent: Callable[[], None] | None = None,
    ) -> None:
        """Messages of one topic in a row, or last values, go under the numbers from `first_number` on. If they go
        again, others may lie between them. `when_sent` is called when the kernel has all of these, if ever."""

    def disconnect(self, violation: PeerViolation) -> None:
        """End the receiver's connection, for this reason."""


class _Nowhere:
    """The sink of a consumer that has left: references to the consumer must not keep its connection in memory."""

    has_room = False
    room_bytes = 0
    is_memory_tight = False
    is_deserted = True
    put_bytes = 0
    sent_bytes = 0

    @property
    def outlet(self) -> Outlet:
        return self

    def deliver(
        self,
        messages: Sequence[Message],
        first_number: int,
        particulars: Particulars | None = None,
        when_sent: Callable[[], None] | None = None,
    ) -> None:
        raise AssertionError("nothing is delivered to a consumer that has left")

    def call_when_room(self, wake: Callable[[], None]) -> None:
        pass

    def disconnect(self, violation: PeerViolation) -> None:
        pass


NOWHERE: Final = _Nowhere()
