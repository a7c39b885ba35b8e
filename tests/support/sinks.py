"""Where consumers of a test deliver to: a list, or STOMP frames without a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.delivery import AckMode
from stompbroker.sessions import FlushQueue, Outbox, StompSink
from stompbroker.signals import Signal
from stompbroker.stomp import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.delivery import Particulars, Subscription
    from stompbroker.errors import PeerViolation
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import Message


@final
class ListSink:
    """Takes everything; what was delivered is in a list, and has left our hands when the test says so."""

    is_memory_tight = False
    is_deserted = False
    room_bytes = 512 * 1024

    def __init__(self, *, has_room: bool = True) -> None:
        #: Messages in a row, the number of the first, and what was told beside them.
        self.delivered: list[tuple[Sequence[Message], int, Particulars | None]] = []
        self.violations: list[PeerViolation] = []
        self._when_sent: list[Callable[[], None]] = []
        self._wanting_room: dict[Callable[[], None], None] = {}
        self._has_room = has_room
        self._put_bytes = self._sent_bytes = 0

    @property
    def outlet(self) -> ListSink:
        return self

    @property
    def has_room(self) -> bool:
        return self._has_room

    @property
    def put_bytes(self) -> int:
        return self._put_bytes

    @property
    def sent_bytes(self) -> int:
        return self._sent_bytes

    @property
    def bodies(self) -> list[bytes]:
        """Of all messages delivered so far."""
        return [message.body for messages, _, _ in self.delivered for message in messages]

    def deliver(
        self,
        messages: Sequence[Message],
        first_number: int,
        particulars: Particulars | None = None,
        when_sent: Callable[[], None] | None = None,
    ) -> None:
        self.delivered.append((messages, first_number, particulars))
        self._put_bytes += sum(message.size_bytes for message in messages)
        if when_sent is not None:
            self._when_sent.append(when_sent)

    def send(self) -> None:
        """All that was delivered has left our hands."""
        self._sent_bytes = self._put_bytes
        when_sent, self._when_sent = self._when_sent, []
        for call in when_sent:
            call()

    def take_room(self) -> None:
        self._has_room = False

    def make_room(self) -> None:
        self._has_room = True
        wanting, self._wanting_room = self._wanting_room, {}
        for wake in wanting:
            wake()

    def call_when_room(self, wake: Callable[[], None]) -> None:
        self._wanting_room[wake] = None

    def disconnect(self, violation: PeerViolation) -> None:
        self.violations.append(violation)


def frame_sink(
    subscription: Subscription,
    budget: MemoryBudget,
    *,
    ordinal: int = 1,
    disconnect: Callable[[PeerViolation], object] = lambda violation: None,
    flush_queue: FlushQueue | None = None,
) -> tuple[StompSink, Outbox]:
    """The frames of STOMP 1.2, in an outbox that nobody writes from."""
    outbox = Outbox(budget, Signal(), flush_queue or FlushQueue())

    def tell(violation: PeerViolation) -> None:
        disconnect(violation)

    sink = StompSink(
        outbox,
        tell,
        subscription_name=subscription.name,
        version=Version.V1_2,
        after_frame=b"",
        ordinal=ordinal,
        expects_acks=subscription.ack_mode is not AckMode.AUTO,
    )
    return sink, outbox
