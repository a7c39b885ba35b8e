"""One subscription on the command line, from SUBSCRIBE to DISCONNECT.

Law: a message is acknowledged only after it was written. Ctrl-C and a timeout cancel only the waiting for messages, so
no message is lost. There is no UNSUBSCRIBE: a durable subscription is kept, any other ends with its connection.
"""

from __future__ import annotations

import base64
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, final

import trio
import typer

from stompbroker.cli.connection import connected, say_goodbye
from stompbroker.cli.outcome import CommandFailed, stopped_by_signal
from stompbroker.cli.terminal import as_json, say
from stompbroker.delivery import Identity, IdentityKind
from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stompbroker.cli.target import Target
    from stompbroker.client import AckMode, Client, Message

T = TypeVar("T")

#: Bytes shown of a body that is not text: a line of hexadecimal on an ordinary terminal.
SHOWN_BINARY_BYTES = 32
#: Headers that are in the first line, or that mean nothing to a person.
_NOT_LISTED = {"destination", "message-id", "subscription", "content-length", "ack", "redelivered", "delivery-count"}


class Shown(Protocol):
    """What is written of a message."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


@final
@dataclass(slots=True, kw_only=True)
class Reception:
    """What to receive, how to write it, and when to stop; and how many were written."""

    destination: str
    headers: list[tuple[str, str]]
    ack: AckMode
    client_id: str | None
    durable_name: str | None  # needs a client id; the two identify the subscription
    group: str | None = None
    is_kept: bool = False  # whether a group or queue keeps what comes later
    is_browser: bool = False  # ends with the end marker
    count: int | None
    timeout_s: float | None
    reconnects: bool = False
    render: Callable[[Shown], bytes]
    written: int = 0
    _is_interrupted: bool = False
    _is_timed_out: bool = False
    _waiting: trio.CancelScope = field(default_factory=trio.CancelScope)  # replaced for each wait

    async def receive(self, target: Target) -> None:
        """Receive until Ctrl-C, --count, --timeout, or nobody reads our output. Raises CommandFailed if fewer than
        --count messages came in time."""
        async with connected(target, client_id=self.client_id, reconnects=self.reconnects) as client:
            async with stopped_by_signal(self._stop):
                await self._run(client, target)
        if self._is_timed_out and self.count is not None:
            raise CommandFailed(
                f"No message came for {self.timeout_s:g} seconds; {self.written} of {self.count} received."
            )

    def _stop(self) -> None:
        self._is_interrupted = True
        self._waiting.cancel()

    async def _run(self, client: Client, target: Target) -> None:
        # Of repeated headers the first one counts.
        headers = dict(reversed(self.headers))
        if self.group is not None:
            headers = {"auto-delete": "false" if self.is_kept else "true"} | headers
        subscribing = client.subscribe(
            self.destination,
            ack=self.ack,
            durable=self.durable_name,
            group=self.group,
            prefetch=None,
            headers=headers,
        )
        async with AsyncExitStack() as stack:
            messages = await self._wait(partial(stack.enter_async_context, subscribing))
            if messages is not None:
                say(self._greeting(), err=True)
                while True:
                    rest = None if self.count is None else self.count - self.written
                    received = await self._wait(partial(messages.take, rest))
                    if received is None or not await self._write(received):
                        break
            await say_goodbye(client, target)

    def _greeting(self) -> str:
        if self.is_browser:
            return f"What is in {self.destination} now:"
        where = f"Subscribed to {self.destination}"
        if self.group is not None:
            where += f" in group {readable(self.group)}"
        if self.durable_name is not None:
            where += f" as {Identity('', IdentityKind.NAMED, self.client_id or '', self.durable_name).key}"
        is_kept = self.is_kept or self.durable_name is not None
        return f"{where}; Ctrl-C ends{', the broker keeps what comes later' if is_kept else ''}."

    async def _wait(self, wait: Callable[[], Awaitable[T]]) -> T | None:
        """What was waited for; None after Ctrl-C or --timeout."""
        with trio.move_on_after(float("inf") if self.timeout_s is None else self.timeout_s) as self._waiting:
            if self._is_interrupted:
                self._waiting.cancel()
            return await wait()
        self._is_timed_out = not self._is_interrupted
        return None

    async def _write(self, messages: list[Message]) -> bool:
        """Write, then acknowledge; returns whether to go on. Messages beyond the count were not taken, and stay the
        broker's."""
        end = messages.pop() if self.is_browser and messages[-1].headers.get("browser") == "end" else None
        try:
            # In a thread: a pager may block, and heart-beats must go on meanwhile.
            await trio.to_thread.run_sync(_write_out, b"".join(map(self.render, messages)), abandon_on_cancel=True)
        except BrokenPipeError:
            return False  # nobody reads stdout any more
        except OSError as error:
            raise CommandFailed(f"Messages cannot be written: {error.strerror}. They are not acknowledged.") from error
        self.written += len(messages)
        for message in messages:
            message.ack()
        if end is not None and "browser-incomplete" in end.headers:
            raise CommandFailed(f"This is not all: {readable(end.headers['browser-incomplete'])}.")
        return self.written != self.count and end is None


def _write_out(content: bytes) -> None:
    """Bypasses Python's buffer: a thread abandoned inside it would hold its lock at exit."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(sys.stdout.fileno(), rest) :]


# Messages as bytes ----------------------------------------------------------------------------------------------------


def choose_format(*, is_json: bool, body_only: bool) -> Callable[[Shown], bytes]:
    if is_json:
        return _as_json_line
    return (lambda message: message.body + b"\n") if body_only else partial(_for_people, sys.stdout.isatty())


def _as_json_line(message: Shown) -> bytes:
    try:
        body, encoding = message.body.decode(), "text"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(message.body).decode(), "base64"
    return as_json({"headers": dict(message.headers), "body": body, "encoding": encoding}).encode() + b"\n"


def _for_people(with_colours: bool, message: Shown) -> bytes:
    def styled(text: str, **style: bool) -> str:
        return typer.style(readable(text), **style) if with_colours else readable(text)

    headers = message.headers
    attempt = f", attempt {headers.get('delivery-count', '?')}" if headers.get("redelivered") == "true" else ""
    title = f"{headers.get('destination', '')}  {headers.get('message-id', '')}{attempt}"
    others = [styled(f"  {name}: {value}", dim=True) for name, value in headers.items() if name not in _NOT_LISTED]
    lines = [styled(title, bold=True), *others, *(f"  {line}" for line in _body_lines(message.body))]
    return ("\n".join(lines) + "\n").encode(errors="replace")


def _body_lines(body: bytes) -> list[str]:
    try:
        return readable(body.decode(), keeps_lines=True).rstrip("\n").split("\n")
    except UnicodeDecodeError:
        rest = " …" if len(body) > SHOWN_BINARY_BYTES else ""
        return [f"({len(body):,} bytes, not text: {body[:SHOWN_BINARY_BYTES].hex(' ')}{rest})"]
