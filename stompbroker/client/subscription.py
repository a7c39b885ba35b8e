"""A subscription of the client, and the messages that have come for it.

Law: what has come is kept here until the user takes it; how much that can be is bounded by the prefetch, which the
broker is asked to keep to, and by the client, which stops reading. A message can be answered on its own connection
only.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, final

from stompbroker.client.dialogue import answer_headers
from stompbroker.client.errors import ClientError, TooSlow
from stompbroker.client.requests import Kind, Part, Request
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from stompbroker.client.dialogue import Headers
    from stompbroker.client.link import Link
    from stompbroker.client.requests import Requests
    from stompbroker.client.transaction import Transaction
    from stompbroker.stomp import Frame

AckMode = Literal["client-individual", "client", "auto"]

#: Bytes kept for a subscription beyond its prefetch. Only a broker that does not keep to the prefetch, or one without
#: acknowledgements while a receipt is waited for, comes this far.
MAX_BUFFERED_BYTES: Final = 64 * 1024**2
#: Headers that the client sets itself.
_OWN: Final = frozenset({"id", "destination", "ack", "receipt"})


class Answered(Enum):
    SENT = "the broker will get it, if the connection holds"
    LATE = "its connection is lost, so the message comes again"
    NEEDLESS = "the broker wants no answer to this message"


@final
class Message:
    __slots__ = ("_link", "_requests", "body", "headers")

    def __init__(self, headers: Mapping[str, str], body: bytes, link: Link, requests: Requests) -> None:
        self.headers: Mapping[str, str] = headers
        self.body = body
        self._link = link
        self._requests = requests

    @property
    def destination(self) -> str:
        return self.headers.get("destination", "")

    @property
    def id(self) -> str:
        return self.headers.get("message-id", "")

    @property
    def is_redelivered(self) -> bool:
        return self.headers.get("redelivered") == "true"

    def ack(self, *, transaction: Transaction | None = None) -> Answered:
        """It is done with. In a transaction that counts at COMMIT. Raises TransactionLost if it is late there."""
        return self._answer("ACK", [], transaction)

    def nack(
        self,
        *,
        delay: float | None = None,
        reason: str | None = None,
        requeue: bool | None = None,
        transaction: Transaction | None = None,
    ) -> Answered:
        """It is not done. `delay` (seconds) and `reason` are this broker's, `requeue` RabbitMQ's too; what is not given
        is not sent. Raises TransactionLost if it is late in a transaction."""
        headers: Headers = []
        if delay is not None:
            headers.append(("delay", str(round(delay * 1000))))
        if reason is not None:
            headers.append(("reason", reason))
        if requeue is not None:
            headers.append(("requeue", "true" if requeue else "false"))
        return self._answer("NACK", headers, transaction)

    async def ack_confirmed(self) -> None:
        """Acknowledge, and come back when the broker has confirmed it. Raises AnswerLost if the connection is lost."""
        names = answer_headers(self.headers, self._link.greeting.version)
        if names:
            receipt, parts = self._requests.next_answer_receipt(), [Part("ACK", names)]
            request = Request(kind=Kind.ANSWER, what="The ACK", parts=parts, receipt=receipt, link=self._link)
            self._requests.submit(request)
            try:
                await request.wait()
            finally:
                self._requests.forget(request)

    def _answer(self, command: str, more: Headers, transaction: Transaction | None) -> Answered:
        names = answer_headers(self.headers, self._link.greeting.version)
        if not names:
            return Answered.NEEDLESS
        if transaction is not None:
            transaction.add_answer(self._link, Part(command, [*names, *more]))
        elif not self._link.is_open:
            return Answered.LATE
        else:
            self._link.put(command, [*names, *more])
        return Answered.SENT


@final
class Subscription:
    """An asynchronous iterator over its messages; several tasks may take from it.

    Invariants:
        `_bytes` is the length of all bodies in `_messages`
        unless the ack mode is `auto`, all of `_messages` came over the current link
    """

    def __init__(
        self, name: str, ack: AckMode, prefetch: int, request: Request, requests: Requests, on_taken: Callable[[], None]
    ) -> None:
        self.id = name
        #: SUBSCRIBE.
        self.request = request
        self._keeps_on_loss = ack == "auto"
        self._prefetch = prefetch
        self._requests = requests
        self._on_taken = on_taken
        self._messages = deque[Message]()
        self._bytes = 0
        self._has_come = Signal()
        self._end: ClientError | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        return (await self.take(1))[0]

    async def take(self, at_most: int | None = None) -> list[Message]:
        """What has come, and at least one message. Cancelling this loses none. Raises ClientError."""
        while not self._messages:
            if self._end is not None:
                raise self._end
            await self._has_come.wait()
        count = len(self._messages) if at_most is None else min(at_most, len(self._messages))
        taken = [self._messages.popleft() for _ in range(count)]
        self._bytes -= sum(len(message.body) for message in taken)
        self._on_taken()
        return taken

    # For the client

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be read for now. A broker that keeps to the prefetch never comes this far: what
        others wait for, another subscription for one, comes over the same connection."""
        return len(self._messages) > self._prefetch or self._bytes >= MAX_BUFFERED_BYTES

    def add(self, frame: Frame, link: Link) -> None:
        """Raises TooSlow."""
        self._messages.append(Message(frame.headers, frame.body, link, self._requests))
        self._bytes += len(frame.body)
        self._has_come.wake()
        if self._bytes > MAX_BUFFERED_BYTES and len(self._messages) > self._prefetch:
            raise TooSlow(
                f"{len(self._messages):,} messages wait for the subscription {self.id}, and {self._prefetch:,} are "
                "expected. With ack=client-individual the broker sends no more than the prefetch."
            )

    def disconnected(self) -> None:
        """What waits and was to be acknowledged comes again."""
        if not self._keeps_on_loss:
            self._messages.clear()
            self._bytes = 0

    def end(self, reason: ClientError) -> None:
        """Raised to whoever takes, once everything that has come is taken."""
        self._end = self._end or reason
        self._has_come.wake()

    def check_invariants(self) -> None:
        assert self._bytes == sum(len(message.body) for message in self._messages)


def subscribe_headers(
    ack: AckMode,
    durable: str | None,
    group: str | None,
    prefetch: int | None,
    given: Mapping[str, str],
    *,
    has_client_id: bool,
) -> Headers:
    """Of each broker's dialect what does no harm in the others; what the user gives goes before. Raises ValueError."""
    for name in _OWN & given.keys():
        raise ValueError(f"the header {name!r} is set by the client")
    made: dict[str, str] = {"ack": ack}
    if durable is not None:
        made |= {"durable": "true", "auto-delete": "false"}
        if has_client_id:
            made["activemq.subscriptionName"] = durable
    if group is not None:
        made["group"] = group
    if prefetch is not None:
        made |= {"prefetch-count": str(prefetch), "activemq.prefetchSize": str(prefetch)}
    return list((made | dict(given)).items())
