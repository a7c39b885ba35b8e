"""The client as its user has it.

Law: methods that change something do so at once, in the core; `async` ones only wait. One task beside the user's block
connects.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from stompbroker.client.background import Background
from stompbroker.client.calling import REPLY_QUEUE, answer_requests
from stompbroker.client.errors import ClientClosed, ClientError, OutboxFull
from stompbroker.client.numbering import Producer
from stompbroker.client.requests import Kind, Part, Request
from stompbroker.client.subscription import AckMode, Message, Subscription, subscribe_headers
from stompbroker.client.transaction import Transaction, send_part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import Self

    from stompbroker.client.calling import Handler
    from stompbroker.client.core import Core

#: Time for the receipt of DISCONNECT, in seconds: the broker first finishes everything sent before.
DISCONNECT_TIMEOUT_S: Final = 10.0
#: Failures that wait for a flush; further ones are not told.
MAX_LOST: Final = 1_000


class Sending(Protocol):
    """A message on its way."""

    @property
    def is_settled(self) -> bool:
        """Whether `wait` would come back at once."""

    async def wait(self) -> Mapping[str, str]:
        """As `Client.publish`; whoever waits here is told of a failure, and not whoever flushes."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    is_connected: bool
    #: Connections that were made, the current one included.
    connections: int
    #: Messages that the broker has confirmed.
    confirmed: int
    #: Messages and transactions that it has not, and their bytes.
    unconfirmed: int
    unconfirmed_bytes: int


@final
class Client:
    def __init__(self, core: Core, *, has_client_id: bool) -> None:
        self._core = core
        self._has_client_id = has_client_id
        self._background = Background()
        #: What failed since the last flush, and may have nobody waiting for it; at most MAX_LOST.
        self._lost: list[Request] = []
        self._receipts = 0
        self._names = 0

    async def __aenter__(self) -> Self:
        """Comes back when it is connected for the first time. Raises ClientError."""
        self._core.begin()
        nursery = await self._background.__aenter__()
        nursery.start_soon(self._core.keep_connected)
        try:
            await self._core.wait_connected()
        except BaseException:
            await self._background.__aexit__()
            raise
        return self

    async def __aexit__(self, exception: type[BaseException] | None, *_: object) -> None:
        try:
            if exception is None:
                await self.aclose()
        finally:
            self._core.end(ClientClosed("The client was closed."))
            await self._background.__aexit__()

    async def aclose(self) -> bool:
        """Wait until all that was published is confirmed, then say goodbye. Returns whether the broker has confirmed
        that, too: then it has got everything, ACKs included. Raises ClientError for what was not published, or
        `Refused` if something without a receipt was."""
        if isinstance(self._core.failure, ClientClosed):
            return False
        await self.flush()
        self._core.check()
        self._core.is_closing = True
        parts = [Part("DISCONNECT", self._core.requests.numbering.farewell())]
        goodbye = Request(kind=Kind.GOODBYE, what="DISCONNECT", parts=parts, receipt="disconnect")
        if self._core.requests.link is not None:
            with trio.move_on_after(DISCONNECT_TIMEOUT_S):
                self._core.submit(goodbye)
                await goodbye.wait_settled()
                if goodbye.failure is not None:
                    await self._core.wait_disconnected()
        self._core.end(ClientClosed("The client was closed."))
        return goodbye.confirmation is not None

    async def wait_ended(self) -> None:
        """Raises ClientError when there will be no connection any more."""
        while True:
            self._core.check()
            await self._core.changed.wait()

    @property
    def statistics(self) -> Statistics:
        return Statistics(
            is_connected=self._core.requests.link is not None,
            connections=self._core.connections,
            confirmed=self._core.requests.confirmed,
            unconfirmed=self._core.requests.kept,
            unconfirmed_bytes=self._core.requests.kept_bytes,
        )

    # Publishing ------------------------------------------------------------------------------------------------------

    async def publish(
        self,
        destination: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        persistent: bool | None = None,
        producer: Producer | None = None,
    ) -> Mapping[str, str]:
        """Send it, again after each reconnect, until its RECEIPT came; returns the headers of that. Raises `Refused`,
        or `Unconfirmed` if the client ends before. If this is cancelled, it may or may not have been published."""
        request = self._send_request(destination, body, headers, persistent=persistent, producer=producer)
        await self._core.wait_room(request.size_bytes)
        self._core.submit(request)
        return await self._result(request)

    def publish_nowait(
        self,
        destination: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        persistent: bool | None = None,
        confirm: bool = True,
        producer: Producer | None = None,
    ) -> Sending:
        """The same without waiting; who wants to know waits for what is returned, or flushes. Raises OutboxFull.

        Without `confirm` no receipt is asked for, and the message is lost if the connection is lost on its way."""
        self._core.check()
        request = self._send_request(
            destination, body, headers, persistent=persistent, confirm=confirm, producer=producer
        )
        if not self._core.requests.has_room(request.size_bytes):
            requests = self._core.requests
            raise OutboxFull(
                f"{requests.kept:,} messages ({requests.kept_bytes:,} bytes) are unconfirmed; at most "
                f"{requests.max_kept:,} ({requests.max_kept_bytes:,} bytes) may be."
            )
        request.on_settled = self._note_settled
        self._core.submit(request)
        return request

    async def publish_soon(
        self,
        destination: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        persistent: bool | None = None,
        confirm: bool = True,
        producer: Producer | None = None,
        then: Callable[[Mapping[str, str] | ClientError], None] | None = None,
    ) -> Sending:
        """The same, but waits for room instead of raising OutboxFull. `then` is called with the RECEIPT's headers, or
        with what went wrong, which `flush` does not raise in that case."""
        request = self._send_request(
            destination, body, headers, persistent=persistent, confirm=confirm, producer=producer
        )
        await self._core.wait_room(request.size_bytes)
        request.on_settled = self._note_settled if then is None else partial(_tell, then)
        self._core.submit(request)
        return request

    async def flush(self) -> None:
        """Until all that was published before is confirmed. Raises the first failure of `publish_nowait` and
        `publish_soon` since the last flush."""
        for request in list(self._core.requests):
            if request.kind is Kind.SEND:
                await request.wait_settled()
        lost = [request.failure for request in self._lost if request.failure and not request.is_waited_for]
        self._lost.clear()
        if lost:
            if len(lost) > 1:
                lost[0].add_note(f"{len(lost) - 1:,} more messages failed.")
            raise lost[0]

    @asynccontextmanager
    async def transaction(self, *, producer: Producer | None = None) -> AsyncIterator[Transaction]:
        """Everything in it is done, or nothing: when the block ends, and if it did not raise. Raises `TransactionLost`
        if nothing was done, `Refused` as well, and `OutcomeUnknown` if that cannot be known."""
        self._names += 1
        transaction = Transaction(f"t{self._names}", self._core.requests.max_kept_bytes, producer)
        yield transaction
        request = transaction.as_request(self._next_receipt())
        if request is not None:
            await self._core.wait_room(request.size_bytes)
            self._core.submit(request)
            await self._result(request)

    async def begin_producer(self, name: str, destination: str) -> Producer:
        """For a program that goes on numbering where it was when it last ended: its messages are those of this name, of
        its user alone. Every earlier one of the name is ended by this. The destination is one that it may publish to,
        and gets nothing. Raises ClientError."""
        await self._core.wait_connected()
        unknown = (
            "The broker does not number messages of producers; only stompbroker does, and numbers=False forbids it."
        )
        if not self._core.requests.numbering.is_on:
            raise ClientError(unknown)
        receipt = await self.publish(destination, b"", headers={"producer": name, "producer-seq": "0"})
        if "producer-epoch" not in receipt:
            raise ClientError(unknown)
        return Producer(name, int(receipt["producer-epoch"]), int(receipt["producer-last"]))

    # Subscribing -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def subscribe(
        self,
        destination: str,
        *,
        ack: AckMode = "client-individual",
        durable: str | None = None,
        group: str | None = None,
        prefetch: int | None = 100,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Subscription]:
        """The block begins when the broker has confirmed the subscription, and ends it; a durable one is kept. Raises
        `Refused`. `prefetch`: messages that may come before they are acknowledged; None leaves it to the broker."""
        self._names += 1
        while self._core.is_subscription(str(self._names)):  # a durable one has a number for a name
            self._names += 1
        name = durable or str(self._names)
        dialects = subscribe_headers(ack, durable, group, prefetch, headers or {}, has_client_id=self._has_client_id)
        request = Request(
            kind=Kind.SUBSCRIBE,
            what=f"SUBSCRIBE to {destination}",
            parts=[Part("SUBSCRIBE", [("id", name), ("destination", destination), *dialects])],
            receipt=f"subscribe-{name}",
        )
        subscription = Subscription(name, ack, prefetch or 1000, request, self._core.requests, self._core.changed.wake)
        self._core.add(subscription)
        try:
            await request.wait()
            yield subscription
        finally:
            self._core.remove(subscription, ClientClosed("The block of the subscription has ended."))

    # Questions and answers -------------------------------------------------------------------------------------------

    async def call(
        self,
        destination: str,
        body: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 - its error says whether the broker has the request
        headers: Mapping[str, str] | None = None,
    ) -> Message:
        """Ask, and return the answer. Raises `NobodyListens`, `NoAnswer` after `timeout` seconds, `Refused`, or
        `AnswerUnreachable` if the connection for the answer was lost."""
        name, call = self._core.calls.begin(destination)
        asking = {**(headers or {}), "reply-to": REPLY_QUEUE, "correlation-id": name, "mandatory": "true"}
        try:
            self._core.check()
            call.request = self._send_request(destination, body, asking)
            call.request.on_settled = call.note_settled
            if not self._core.requests.has_room(call.request.size_bytes):
                raise OutboxFull("As much is unconfirmed as may be; a request would not be sent in time.")
            self._core.submit(call.request)
            return await call.wait(timeout)
        finally:
            self._core.calls.finish(name)
            if call.request is not None:
                self._core.requests.forget(call.request)

    @asynccontextmanager
    async def serve(
        self,
        destination: str,
        handler: Handler,
        *,
        group: str | None = None,
        at_once: int = 1,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[None]:
        """In the block, requests are answered with what `handler` returns, `at_once` of them at the same time. One that
        it fails with is refused, with the reason, and logged. When the subscription ends, so does the block, with its
        error."""
        ended: list[ClientError] = []

        async def publish(destination: str, body: bytes, more: Mapping[str, str]) -> None:
            await self.publish(destination, body, headers=more)

        async def answer() -> None:
            try:
                await answer_requests(messages, handler, publish)
            except ClientError as error:
                ended.append(error)
                block.cancel()

        async with self.subscribe(destination, group=group, prefetch=2 * at_once, headers=headers) as messages:
            async with Background() as nursery:
                with trio.CancelScope() as block:
                    for _ in range(at_once):
                        nursery.start_soon(answer)
                    yield
            if ended:
                raise ended[0]

    # Requests --------------------------------------------------------------------------------------------------------

    def _send_request(
        self,
        destination: str,
        body: bytes,
        headers: Mapping[str, str] | None,
        *,
        persistent: bool | None = None,
        confirm: bool = True,
        producer: Producer | None = None,
    ) -> Request:
        """Made once for each message, however often it is sent: what must stay the same over repeats belongs here."""
        if producer is not None and not confirm:
            raise ValueError("a message of a producer is confirmed: it must not be lost")
        given = headers or {}
        # An answer comes to one connection: on the next it is another message, with the same question.
        is_asking = given.get("reply-to", "").startswith("/temp-")
        return Request(
            kind=Kind.SEND,
            what=f"The message to {destination}",
            parts=[send_part(destination, body, headers, persistent=persistent)],
            receipt=self._next_receipt() if confirm else None,
            # Without a receipt it is not repeated; who writes the header numbers by himself.
            is_numbered=confirm and "producer" not in given and (producer is not None or not is_asking),
            producer=producer,
        )

    def _next_receipt(self) -> str:
        self._receipts += 1
        return str(self._receipts)

    async def _result(self, request: Request) -> Mapping[str, str]:
        try:
            return MappingProxyType(dict(await request.wait()))
        finally:
            self._core.requests.forget(request)

    def _note_settled(self, request: Request) -> None:
        if request.failure is not None and len(self._lost) < MAX_LOST:
            self._lost.append(request)

    def check_invariants(self) -> None:
        self._core.check_invariants()


def _tell(then: Callable[[Mapping[str, str] | ClientError], None], request: Request) -> None:
    then(request.confirmation or {} if request.failure is None else request.failure)
