"""Questions and answers: calls that wait for their answer, and handlers that give them.

Law: an answer comes to a temporary queue, which belongs to one connection. So an answer that was on its way when the
connection was lost does not come any more; what was asked is repeated only while the broker has not confirmed it.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.client.errors import AnswerUnreachable, ClientError, NoAnswer, NobodyListens, Refused
from stompbroker.client.subscription import Message
from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeAlias

    from stompbroker.client.link import Link
    from stompbroker.client.requests import Request, Requests
    from stompbroker.client.subscription import Subscription
    from stompbroker.stomp import Frame

    Handler: TypeAlias = Callable[[Message], Awaitable["Reply | bytes | None"]]
    #: Comes back when the message with this destination, body and headers is confirmed.
    Publish: TypeAlias = Callable[[str, bytes, Mapping[str, str]], Awaitable[object]]

#: Also the id of the subscription that answers come for.
REPLY_QUEUE: Final = "/temp-queue/replies"
#: Brokers that let a client subscribe to its temporary queue, and need it; others do it by themselves.
_NEEDS_SUBSCRIPTION: Final = ("ActiveMQ", "apache-activemq")

_log: Final = logging.getLogger("stompbroker.client")


@final
@dataclass(frozen=True, slots=True)
class Reply:
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@final
@dataclass(slots=True, eq=False)
class Call:
    """One question."""

    destination: str
    request: Request | None = None
    _answer: Message | ClientError | None = None
    _has_ended: trio.Event = field(default_factory=trio.Event)

    def end(self, answer: Message | ClientError) -> None:
        self._answer = self._answer or answer
        self._has_ended.set()

    def note_settled(self, request: Request) -> None:
        if request.failure is not None:
            self.end(request.failure)

    async def wait(self, timeout_s: float) -> Message:
        """Raises ClientError."""
        with trio.move_on_after(timeout_s):
            await self._has_ended.wait()
        match self._answer:
            case Message() as message:
                return message
            case None:
                is_taken = self.request is not None and self.request.confirmation is not None
                known = "has the request" if is_taken else "has not confirmed the request"
                raise NoAnswer(
                    f"Nobody has answered the request to {self.destination} within {timeout_s:g} seconds. The broker "
                    f"{known}."
                )
            case error:
                raise error


@final
@dataclass(slots=True, eq=False)
class Calls:
    """All questions of a client that are not answered, by their correlation id."""

    _open: dict[str, Call] = field(default_factory=dict)
    #: Other clients' ids are others.
    _prefix: str = field(default_factory=lambda: secrets.token_hex(8))
    _made: int = 0

    @property
    def is_awaiting(self) -> bool:
        """Whether an answer may come."""
        return bool(self._open)

    def begin(self, destination: str) -> tuple[str, Call]:
        self._made += 1
        name = f"{self._prefix}-{self._made}"
        call = self._open[name] = Call(destination)
        return name, call

    def finish(self, name: str) -> None:
        del self._open[name]

    def connected(self, link: Link) -> None:
        if link.greeting.server.startswith(_NEEDS_SUBSCRIPTION):
            link.put("SUBSCRIBE", [("id", REPLY_QUEUE), ("destination", REPLY_QUEUE), ("ack", "auto")])

    def take_in(self, frame: Frame, link: Link, requests: Requests) -> None:
        """An answer. One that came too late is dropped."""
        call = self._open.get(frame.headers.get("correlation-id", ""))
        if call is None:
            return
        if "returned" in frame.headers:
            call.end(NobodyListens(f"Nobody listens at {call.destination}."))
        else:
            call.end(Message(frame.headers, frame.body, link, requests))

    def disconnected(self) -> None:
        for call in self._open.values():
            if call.request is not None and call.request.is_settled:
                call.end(
                    AnswerUnreachable(
                        f"The connection was lost after the broker had taken the request to {call.destination}. Its "
                        "answer cannot come any more; whether it was done is not known."
                    )
                )


async def answer_requests(messages: Subscription, handler: Handler, publish: Publish) -> None:
    """Until cancelled, or until the subscription ends, which raises ClientError. The boundary to the user's code: what
    it raises refuses the one message, with its reason."""
    async for message in messages:
        try:
            reply = await handler(message)
        except Exception as error:
            _refuse(message, error)
            continue
        try:
            await _send(publish, message, Reply(reply) if isinstance(reply, bytes) else reply)
        except Refused as refused:
            message.nack(reason=f"the reply was refused: {refused.message}"[:250])
        except ClientError:
            raise
        except Exception as error:  # it is no reply, or one that no frame can carry
            _refuse(message, error)
        else:
            message.ack()


def _refuse(message: Message, error: Exception) -> None:
    _log.error("the handler of %s has failed", message.destination, exc_info=error)
    # The text may be made of the request: what no header can carry is escaped.
    message.nack(reason=readable(f"{type(error).__name__}: {error}")[:250])


async def _send(publish: Publish, message: Message, reply: Reply | None) -> None:
    reply_to = message.headers.get("reply-to")
    if reply is not None and reply_to is not None:
        headers = dict(reply.headers)
        if "correlation-id" in message.headers:
            headers["correlation-id"] = message.headers["correlation-id"]
        await publish(reply_to, reply.body, headers)
