"""One subscription on the command line, from SUBSCRIBE to DISCONNECT.

Law: a message is acknowledged only after it was written. Ctrl-C and a timeout cancel only the waiting for messages, so
no frame is left half sent. There is no UNSUBSCRIBE: a durable subscription is kept, any other ends with its connection.
"""

from __future__ import annotations

import base64
import os
import sys
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, final

import trio
import typer

from stompbroker.cli.outcome import CommandFailed, stopped_by_signal
from stompbroker.cli.stomp_client import StompClient, connect
from stompbroker.cli.terminal import as_json, say
from stompbroker.delivery import Identity, IdentityKind
from stompbroker.stomp import Frame, render_frame
from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_SUBSCRIPTION_ID = "1"
_SUBSCRIBE_RECEIPT = "subscribe"

#: Bytes shown of a body that is not text: a line of hexadecimal on an ordinary terminal.
SHOWN_BINARY_BYTES = 32

#: Headers that are in the first line, or that mean nothing to a person.
_NOT_LISTED = {"destination", "message-id", "subscription", "content-length", "ack", "redelivered", "delivery-count"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reception:
    """What to receive, how to write it, and when to stop."""

    destination: str
    headers: list[tuple[str, str]]
    ack: str
    client_id: str | None
    durable_name: str | None  # needs a client id; the two identify the subscription
    count: int | None
    timeout_s: float | None
    render: Callable[[Frame], bytes]


class _End(Enum):
    INTERRUPTED = "Ctrl-C or SIGTERM"
    COUNT_REACHED = "--count messages were written"
    TIMED_OUT = "no message for --timeout seconds"
    NOBODY_READS = "stdout was closed by its reader"


async def receive_all(address: tuple[str, int], reception: Reception) -> None:
    """Receive until one of the ends. Raises CommandFailed if fewer than --count messages came in time."""
    async with connect(*address, client_id=reception.client_id) as client:
        receiver = _Receiver(client, reception)
        async with stopped_by_signal(receiver.stop):
            end = await receiver.run()
            await client.disconnect()
    if end is _End.TIMED_OUT and reception.count is not None:
        raise CommandFailed(
            f"No message came for {reception.timeout_s:g} seconds; {receiver.written} of {reception.count} received."
        )


@final
@dataclass(slots=True)
class _Receiver:
    """Writes and acknowledges the messages of one subscription."""

    _client: StompClient
    _reception: Reception
    _waiting: trio.CancelScope = field(default_factory=trio.CancelScope)  # replaced for each wait
    _is_interrupted: bool = False
    written: int = 0

    def stop(self) -> None:
        self._is_interrupted = True
        self._waiting.cancel()

    async def run(self) -> _End:
        reception = self._reception
        headers = [("id", _SUBSCRIPTION_ID), ("destination", reception.destination), ("ack", reception.ack)]
        if reception.durable_name is not None:
            headers.append(("activemq.subscriptionName", reception.durable_name))
        headers += [*reception.headers, ("receipt", _SUBSCRIBE_RECEIPT)]
        await self._client.send(render_frame("SUBSCRIBE", headers))
        received = await self._wait(partial(self._client.wait_receipt, _SUBSCRIBE_RECEIPT))
        if not isinstance(received, _End):
            say(_greeting(reception), err=True)
        while not isinstance(received, _End):
            end = await self._write([frame for frame in received if frame.command == "MESSAGE"])
            received = end or await self._wait(self._client.receive)
        return received

    async def _wait(self, frames: Callable[[], Awaitable[list[Frame]]]) -> list[Frame] | _End:
        """Frames, or why there are none."""
        timeout_s = self._reception.timeout_s
        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s) as self._waiting:
            if self._is_interrupted:
                self._waiting.cancel()
            return await frames()
        return _End.INTERRUPTED if self._is_interrupted else _End.TIMED_OUT

    async def _write(self, messages: list[Frame]) -> _End | None:
        """Write, then acknowledge. Messages beyond the count are not written, and stay the broker's."""
        if self._reception.count is not None:
            messages = messages[: self._reception.count - self.written]
        try:
            # In a thread: a pager may block, and heart-beats must go on meanwhile.
            content = b"".join(map(self._reception.render, messages))
            await trio.to_thread.run_sync(_write_out, content, abandon_on_cancel=True)
        except BrokenPipeError:
            return _End.NOBODY_READS
        self.written += len(messages)
        acknowledgements = [
            render_frame("ACK", [("id", message.headers["ack"])]) for message in messages if "ack" in message.headers
        ]
        if acknowledgements:
            await self._client.send(b"".join(acknowledgements))
        return _End.COUNT_REACHED if self.written == self._reception.count else None


def _greeting(reception: Reception) -> str:
    if reception.durable_name is None:
        return f"Subscribed to {reception.destination}; Ctrl-C ends."
    identity = Identity("", IdentityKind.NAMED, reception.client_id or "", reception.durable_name)
    return f"Subscribed to {reception.destination} as {identity.key}; Ctrl-C ends, the broker keeps what comes later."


def _write_out(content: bytes) -> None:
    """Bypasses Python's buffer: a thread abandoned inside it would hold its lock at exit."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(sys.stdout.fileno(), rest) :]


# Messages as bytes ----------------------------------------------------------------------------------------------------


def choose_format(*, is_json: bool, body_only: bool) -> Callable[[Frame], bytes]:
    """How a received message is written to stdout."""
    if is_json:
        return _as_json_line
    return _as_body if body_only else _for_people(with_colours=sys.stdout.isatty())


def _as_json_line(message: Frame) -> bytes:
    try:
        body, encoding = message.body.decode(), "text"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(message.body).decode(), "base64"
    return as_json({"headers": message.headers, "body": body, "encoding": encoding}).encode() + b"\n"


def _as_body(message: Frame) -> bytes:
    return message.body + b"\n"


def _for_people(*, with_colours: bool) -> Callable[[Frame], bytes]:
    def styled(text: str, **style: bool) -> str:
        return typer.style(text, **style) if with_colours else text

    def render(message: Frame) -> bytes:
        headers = message.headers
        attempt = f", attempt {headers.get('delivery-count', '?')}" if headers.get("redelivered") == "true" else ""
        title = f"{headers.get('destination', '')}  {headers.get('message-id', '')}{attempt}"
        lines = [styled(readable(title), bold=True)]
        lines += [
            styled(readable(f"  {name}: {value}"), dim=True)
            for name, value in headers.items()
            if name not in _NOT_LISTED
        ]
        lines += [f"  {line}" for line in _body_lines(message.body)]
        return ("\n".join(lines) + "\n").encode(errors="replace")

    return render


def _body_lines(body: bytes) -> list[str]:
    try:
        return readable(body.decode(), keeps_lines=True).rstrip("\n").split("\n")
    except UnicodeDecodeError:
        rest = " …" if len(body) > SHOWN_BINARY_BYTES else ""
        return [f"({len(body):,} bytes, not text: {body[:SHOWN_BINARY_BYTES].hex(' ')}{rest})"]
