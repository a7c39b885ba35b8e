"""Where the deliveries of one consumer go: a STOMP connection, or a list in a test.

Law: an interface of the core. A consumer hands over runs of messages while there is room; what becomes of them on the
way out, in which form and when, is the sink's business. It counts in bytes, of whatever it makes of a message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.delivery.failure import Failure
    from stompbroker.errors import PeerViolation
    from stompbroker.ids import Offset
    from stompbroker.message import Message

__all__ = ["NOWHERE", "Deliveries", "Sink"]


class Deliveries(NamedTuple):
    """Messages of one topic in a row, to be delivered under the numbers from `first_number` on."""

    messages: Sequence[Message]
    first_number: int
    #: Where the first of them stands in its topic, if the receiver is told.
    first_offset: Offset | None = None
    #: Told with the first of them: nothing below it is there any more of what the receiver asked for.
    missing_before: Offset | None = None
    #: Whether they have been delivered before, and what is known of that, which is the same for all of them.
    is_again: bool = False
    failure: Failure | None = None
    first_sent_ns: int | None = None


class Sink(ABC):
    __slots__ = ()

    @property
    @abstractmethod
    def has_room(self) -> bool:
        """Whether more may be delivered."""

    @property
    @abstractmethod
    def is_memory_tight(self) -> bool:
        """Whether what is unanswered should be answered before more is delivered."""

    @property
    @abstractmethod
    def is_deserted(self) -> bool:
        """Whether nobody is at the other end any more."""

    @property
    @abstractmethod
    def put_bytes(self) -> int:
        """How much was ever put into it, by anybody."""

    @property
    @abstractmethod
    def sent_bytes(self) -> int:
        """How much of that has left our hands."""

    @abstractmethod
    def deliver(self, deliveries: Deliveries, when_sent: Callable[[], None] | None = None) -> None:
        """`when_sent` is called once these have left our hands; never, if they do not."""

    @abstractmethod
    def call_when_room(self, wake: Callable[[], None]) -> None:
        """There was no room: call it once when there may be some. Asking twice is asking once."""

    @abstractmethod
    def disconnect(self, violation: PeerViolation) -> None:
        """The receiver has to go, with everything it has, for this reason."""


class _Nowhere(Sink):
    """Stands in for the sink of a consumer that has left: what refers to that must not keep a connection."""

    __slots__ = ()

    has_room = False
    is_memory_tight = False
    is_deserted = True
    put_bytes = sent_bytes = 0

    def deliver(self, deliveries: Deliveries, when_sent: Callable[[], None] | None = None) -> None:
        raise AssertionError("nothing is delivered to a consumer that has left")

    def call_when_room(self, wake: Callable[[], None]) -> None:
        pass

    def disconnect(self, violation: PeerViolation) -> None:
        pass


NOWHERE = _Nowhere()
