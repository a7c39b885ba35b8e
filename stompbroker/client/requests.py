"""What waits for a receipt: which frames are sent, again after a reconnect, and what becomes of them if it never comes.

Law: synchronous, without I/O. A request is sent as soon as there is a link, in the order of submission; on a new link,
subscriptions come first, then what had no receipt, with the numbers it had, then what was never sent. Carefully means
one by one, each when the one before it is settled, so that an ERROR which names nothing has one possible cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from stompbroker.client.errors import (
    AnswerLost,
    ClientError,
    NoConnection,
    OutcomeUnknown,
    Problem,
    TransactionLost,
    Unconfirmed,
)
from stompbroker.client.numbering import NOWHERE
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from stompbroker.client.dialogue import Headers
    from stompbroker.client.errors import Refused
    from stompbroker.client.link import Link
    from stompbroker.client.numbering import Numbering, Numbers, Producer

#: Begins an ERROR's `message` to one producer too many of a user.
NO_PLACE: Final = "too many producers"
#: Memory of a request beside its texts and body.
OVERHEAD_BYTES: Final = 500


class Kind(Enum):
    SEND = "repeated until its receipt came"
    SUBSCRIBE = "sent again on each connection, as long as its subscription lasts"
    ANSWER = "an ACK or NACK, valid on one connection"
    COMMIT = "a whole transaction, from BEGIN to COMMIT"
    VOID = "takes the numbers of a SEND or COMMIT that has failed or is not waited for, so that none is left out"
    GOODBYE = "DISCONNECT"


#: What is bounded by `max_kept`.
_COUNTED: Final = frozenset({Kind.SEND, Kind.COMMIT, Kind.VOID})


class Part(NamedTuple):
    command: str
    headers: Headers
    body: bytes = b""

    @property
    def size_bytes(self) -> int:
        """Raises ValueError for text that is not Unicode, and TypeError for a body that is not bytes."""
        return len(memoryview(self.body)) + len("".join(map("".join, self.headers)).encode())


@final
@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    kind: Kind
    #: How errors call it.
    what: str
    #: The last one carries the receipt.
    parts: list[Part]
    #: None: it is finished when the link has it.
    receipt: str | None
    #: It means something on this link only.
    link: Link | None = None
    #: Whether its messages are numbered, if the broker knows that, and by whom if not by the client itself.
    is_numbered: bool = False
    producer: Producer | None = None
    #: Once they are taken.
    numbers: Numbers | None = None
    #: Called once, when it is confirmed or has failed.
    on_settled: Callable[[Request], None] | None = None
    size_bytes: int = field(init=False)
    #: Where its last byte is among those put on the current link.
    end_on_link: int = 0
    #: Whether the broker may have all of it, from an earlier link.
    was_sent: bool = False
    #: The RECEIPT's headers.
    confirmation: Mapping[str, str] | None = None
    failure: ClientError | None = None
    #: Whether somebody learns of a failure by `wait`.
    is_waited_for: bool = False
    _settled: trio.Event | None = None

    def __post_init__(self) -> None:
        self.size_bytes = sum(part.size_bytes for part in self.parts) + OVERHEAD_BYTES

    @property
    def is_settled(self) -> bool:
        return self.confirmation is not None or self.failure is not None

    def put(self, link: Link, numbers: Numbers | None) -> None:
        parts = self.parts
        if numbers is not None:
            place = count()
            parts = [
                part._replace(headers=[*part.headers, *numbers.headers(next(place))])
                if part.command == "SEND"
                else part
                for part in parts
            ]
        *others, last = parts
        for part in others:
            link.put(part.command, part.headers, part.body)
        headers = last.headers if self.receipt is None else [*last.headers, ("receipt", self.receipt)]
        self.end_on_link = link.put(last.command, headers, last.body)
        if self.kind is Kind.GOODBYE:
            link.is_open = False

    @property
    def message_count(self) -> int:
        return sum(part.command == "SEND" for part in self.parts)

    def emptied(self) -> Request:
        """Takes its numbers, and publishes nothing."""
        parts = [Part("SEND", [("destination", NOWHERE)]) for _ in range(self.message_count)]
        return Request(kind=Kind.VOID, what=self.what, parts=parts, receipt=self.receipt, numbers=self.numbers)

    def settle(self, confirmation: Mapping[str, str] | None, failure: ClientError | None = None) -> None:
        if self.is_settled:
            return
        self.confirmation, self.failure = confirmation, failure
        if self._settled is not None:
            self._settled.set()
        if self.on_settled is not None:
            self.on_settled(self)

    async def wait_settled(self) -> None:
        if not self.is_settled:
            if self._settled is None:
                self._settled = trio.Event()
            await self._settled.wait()

    async def wait(self) -> Mapping[str, str]:
        """The RECEIPT's headers. Raises ClientError."""
        self.is_waited_for = True
        await self.wait_settled()
        if self.failure is not None:
            raise self.failure
        assert self.confirmation is not None
        return self.confirmation

    def fate_on_loss(self, link: Link) -> ClientError | None:
        """Why it ends with this link, which is lost; None if it is sent again."""
        self.was_sent = self.was_sent or 0 < self.end_on_link <= link.handed_bytes
        match self.kind:
            case Kind.ANSWER:
                return AnswerLost(
                    f"{self.what} was not confirmed before its connection was lost: if the broker has not got it, the "
                    "message comes again."
                )
            case Kind.COMMIT if self.numbers is not None:
                return None
            case Kind.COMMIT if self.was_sent:
                return _outcome_unknown()
            case Kind.COMMIT if self.link is not None:
                return TransactionLost(
                    "The connection was lost before COMMIT was sent: nothing of the transaction was done. The messages "
                    "that it acknowledges come again."
                )
            case Kind.GOODBYE:
                return NoConnection(Problem.CLOSED, "The connection was lost before the broker had confirmed its end.")
            case _:
                return None

    def fate_at_the_end(self, reason: ClientError) -> ClientError:
        """Why it fails when there will be no other link."""
        match self.kind:
            case Kind.SEND:
                return Unconfirmed(self.what, was_sent=self.was_sent, reason=reason)
            case Kind.COMMIT if self.was_sent:
                return _outcome_unknown()
            case Kind.COMMIT:
                return TransactionLost(f"COMMIT was not sent: nothing of the transaction was done. {reason}")
            case _:
                return reason


def _outcome_unknown() -> OutcomeUnknown:
    return OutcomeUnknown(
        "The connection was lost between COMMIT and its receipt. Everything in the transaction was done, or nothing."
    )


@final
@dataclass(slots=True, eq=False)
class Requests:
    """
    Invariants:
        a request is in `_sent` (by its receipt) or in `_waiting`, or it is settled, forgotten or without receipt
        every number that was taken is confirmed, or of a request in `_sent` or `_waiting`; those of a producer ascend,
            first in the one, then in the other
        `kept` and `kept_bytes` are those of the SENDs, COMMITs and VOIDs in both
        nothing is in `_waiting` while there is an open link, unless it is told carefully and something is in `_sent`
    """

    #: Messages and transactions that may be kept, and their bytes; one larger than that may be alone.
    max_kept: int
    max_kept_bytes: int
    numbering: Numbering
    kept: int = 0
    kept_bytes: int = 0
    confirmed: int = 0
    #: There may be room for more, or something was settled.
    room: Signal = field(default_factory=Signal)
    link: Link | None = None
    #: Whether the link is told one request at a time, until it has had this many.
    is_careful: bool = False
    _untried: int = 0
    #: Of ACKs and NACKs that are confirmed.
    _receipts: Iterator[str] = field(default_factory=lambda: map("ack-{}".format, count(1)))
    _sent: dict[str, Request] = field(default_factory=dict)
    _waiting: list[Request] = field(default_factory=list)
    #: Why nothing is taken any more.
    _end: ClientError | None = None

    @property
    def is_awaiting(self) -> bool:
        """Whether a receipt is to come."""
        return bool(self._sent)

    @property
    def oldest(self) -> Request | None:
        """Of those that a receipt is to come for."""
        return next(iter(self._sent.values()), None)

    def has_room(self, size_bytes: int) -> bool:
        link = self.link
        unsent_bytes = 0 if link is None else link.put_bytes - link.handed_bytes
        most_bytes = self.max_kept_bytes
        return unsent_bytes <= most_bytes and (
            not self.kept or (self.kept < self.max_kept and self.kept_bytes + size_bytes <= most_bytes)
        )

    def __iter__(self) -> Iterator[Request]:
        """Everything that is not settled."""
        yield from self._sent.values()
        yield from self._waiting

    def next_answer_receipt(self) -> str:
        return next(self._receipts)

    def submit(self, request: Request) -> None:
        if self._end is not None:
            request.settle(None, request.fate_at_the_end(self._end))
            return
        if request.link is not None and request.link is not self.link:
            request.settle(None, request.fate_on_loss(request.link))
            return
        waits = self.link is None or not self.link.is_open or self.is_careful
        if waits:
            self._waiting.append(request)
        elif self.link is not None:
            self._put(request, self.link)
        if waits or request.receipt is not None:
            self._count(request, 1)

    def _put(self, request: Request, link: Link) -> None:
        numbering = self.numbering
        if numbering.is_on and request.is_numbered and request.numbers is None:
            producer = request.producer or numbering.own
            request.numbers = producer and producer.take(request.message_count)
        request.put(link, request.numbers if numbering.is_on else None)
        if request.receipt is not None:
            self._sent[request.receipt] = request
        else:
            request.settle({})

    def _put_waiting(self) -> None:
        """As much of it as may be put now."""
        link = self.link
        while link is not None and link.is_open and not (self.is_careful and self._sent):
            self.is_careful = self.is_careful and bool(self._untried and self._waiting)
            if not self._waiting:
                return
            self._untried -= self.is_careful
            request = self._waiting.pop(0)
            self._put(request, link)
            if request.receipt is None:
                self._count(request, -1)

    def _count(self, request: Request, sign: int) -> None:
        if request.kind in _COUNTED:
            self.kept += sign
            self.kept_bytes += sign * request.size_bytes

    def connected(self, link: Link, subscriptions: Iterable[Request], *, is_careful: bool = False) -> None:
        """Everything is put on the new link, one by one if `is_careful`."""
        assert self.link is None
        self.numbering.connected(link.greeting.server)
        for request in [] if self.numbering.is_on else list(self):
            if request.kind is Kind.VOID or (request.kind is Kind.COMMIT and request.was_sent):
                # Only a broker that knows its numbers can be sent it again.
                self._fail(request, _outcome_unknown())
        earlier = [request for request in self if request.kind is not Kind.SUBSCRIBE]
        self._sent, self._waiting = {}, [*subscriptions, *earlier]
        for request in self._waiting:
            request.end_on_link = 0
        self.link, self.is_careful, self._untried = link, is_careful, len(self._waiting)
        self._put_waiting()
        self.room.wake()

    def disconnected(self, reason: NoConnection | None) -> None:
        """What cannot be sent again fails, because of this."""
        link, self.link = self.link, None
        assert link is not None
        for request in list(self):
            failure = request.fate_on_loss(link)
            if failure is not None:
                failure.__cause__ = reason
                self._fail(request, failure)

    def confirm(self, receipt: str, headers: Mapping[str, str]) -> None:
        """This receipt has come; perhaps nobody waits for it any more."""
        request = self._sent.pop(receipt, None)
        if request is not None:
            self._count(request, -1)
            self.confirmed += request.kind is Kind.SEND
            request.settle(headers)
            self._put_waiting()
            self.room.wake()

    def refuse(self, receipt: str | None, error: ClientError) -> Request | None:
        """The request that this concerns, which has failed."""
        request = None if receipt is None else self._sent.get(receipt)
        if request is not None:
            self._fail(request, error)
        return request

    def stop_numbering(self, refused: Refused) -> bool:
        """If this ERROR says that the broker has no place for us as a producer: whatever has such numbers is sent again
        without."""
        request, own = self._sent.get(refused.headers.get("receipt-id", "")), self.numbering.own
        if request is None or own is None or request.numbers is None or request.numbers.producer is not own:
            return False
        if not refused.message.startswith(NO_PLACE):
            return False
        self.numbering.stop(str(refused))
        for each in list(self):
            if each.numbers is not None and each.numbers.producer is own:
                each.numbers = None
                if each.kind is Kind.VOID:
                    self._fail(each, refused)
        return True

    def forget(self, request: Request) -> None:
        """Nobody waits for it any more: it is not repeated (its number is), and not sent if it was not yet."""
        self._fail(request, ClientError(f"{request.what} is not waited for any more."))

    def _remove(self, request: Request) -> None:
        is_over = self._end is not None or not self.numbering.is_on
        is_used_up = request.numbers is None or request.kind is Kind.VOID or is_over
        # In its place, so that numbers stay in order; a receipt that is on its way is for both.
        instead = [] if is_used_up else [request.emptied()]
        if request.receipt is not None and self._sent.get(request.receipt) is request:
            if instead:
                self._sent[request.receipt] = instead[0]
            else:
                del self._sent[request.receipt]
        elif request in self._waiting:
            place = self._waiting.index(request)
            self._waiting[place : place + 1] = instead
        else:
            return
        for void in instead:
            self._count(void, 1)
        self._count(request, -1)

    def end(self, reason: ClientError) -> None:
        """There will be no link any more."""
        self._end = reason
        for request in list(self):
            fate = None if self.link is None else request.fate_on_loss(self.link)
            self._fail(request, fate or request.fate_at_the_end(reason))

    def _fail(self, request: Request, failure: ClientError) -> None:
        self._remove(request)
        request.settle(None, failure)
        if self._end is None:
            self._put_waiting()
        self.room.wake()

    def check_invariants(self) -> None:
        counted = [request for request in self if request.kind in _COUNTED]
        assert self.kept == len(counted)
        assert self.kept_bytes == sum(request.size_bytes for request in counted)
        is_open = self.link is not None and self.link.is_open
        assert not is_open or not self._waiting or (self.is_careful and self._sent)
        assert all(request.receipt == receipt for receipt, request in self._sent.items())
        assert not any(request.failure for request in self)
