"""One connection to a broker after CONNECTED: what is to be sent, heart-beats, and what comes.

Law: putting is synchronous and in order; one task sends what was put, as much as there is at once. Reading stops while
the owner says so. Everything that ends it is a `NoConnection`, raised by `run`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.client.background import Background
from stompbroker.client.dialogue import Dialogue, Greeting, Headers, render_connect
from stompbroker.client.errors import NoConnection, Problem, refusal
from stompbroker.client.stream import CONNECT_TIMEOUT_S, open_stream, tls_alert
from stompbroker.signals import Signal
from stompbroker.stomp import HEART_BEAT

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from stompbroker.stomp import Frame, Version
    from stompbroker.transport import Endpoint

_CHUNK_BYTES: Final = 256 * 1024


@final
class Link:
    """
    Invariants:
        put_bytes - handed_bytes == total length of _unsent
        nothing is put once `is_open` is False
    """

    def __init__(self, stream: trio.abc.Stream, dialogue: Dialogue, greeting: Greeting) -> None:
        self._stream = stream
        self._dialogue = dialogue
        self.greeting = greeting
        #: Whether anything can be put. False also once its owner has said goodbye.
        self.is_open = True
        #: Bytes ever put, and those of them that the stream was given: a frame that ends behind these has not left.
        self.put_bytes = 0
        self.handed_bytes = 0
        #: Called whenever the stream has taken what it was given.
        self.on_sent: Callable[[], None] = lambda: None
        self._unsent: list[bytes] = []
        self._has_unsent = Signal()

    def put(self, command: str, headers: Headers, body: bytes = b"") -> int:
        """Send it as soon as possible. Returns `put_bytes` at its end."""
        return self._put(self._dialogue.render(command, headers, body))

    def _put(self, content: bytes) -> int:
        if self.is_open:
            self._unsent.append(content)
            self.put_bytes += len(content)
            self._has_unsent.wake()
        return self.put_bytes

    async def run(self, take: Callable[[list[Frame]], None], wait_for_room: Callable[[], Awaitable[None]]) -> None:
        """Until it ends. `take` gets what comes; `wait_for_room` comes back when it may get more. Raises NoConnection;
        a `Refused` was not given to `take`."""
        async with Background() as nursery:
            nursery.start_soon(self._send)
            nursery.start_soon(self._beat)
            try:
                await self._receive(take, wait_for_room)
            finally:
                self.is_open = False

    async def _receive(self, take: Callable[[list[Frame]], None], wait_for_room: Callable[[], Awaitable[None]]) -> None:
        chunk = b""
        while True:
            frames = self._dialogue.receive(chunk)
            error = next((place for place, frame in enumerate(frames) if frame.command == "ERROR"), len(frames))
            take(frames[:error])
            if error < len(frames):
                raise refusal(frames[error].headers, frames[error].body)
            if self._dialogue.has_more:
                chunk = b""
                await trio.lowlevel.checkpoint()
                continue
            await wait_for_room()
            chunk = await receive_chunk(self._stream, self._dialogue, self.greeting.silence_limit_s)

    async def _send(self) -> None:
        while True:
            while not self._unsent:
                await self._has_unsent.wait()
            batch, self._unsent = b"".join(self._unsent), []
            self.handed_bytes += len(batch)
            try:
                await self._stream.send_all(batch)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # Receiving fails too, and then may have the broker's ERROR, which says more.
                return
            self.on_sent()

    async def _beat(self) -> None:
        """At twice the agreed rate, so that no heart-beat is ever late."""
        while True:
            await trio.sleep(self.greeting.sends_every_s / 2)
            if not self._unsent:
                self._put(HEART_BEAT)

    def check_invariants(self) -> None:
        assert self.put_bytes - self.handed_bytes == sum(map(len, self._unsent))


async def receive_chunk(stream: trio.abc.Stream, dialogue: Dialogue, silence_limit_s: float) -> bytes:
    """Never empty. Raises NoConnection."""
    try:
        with trio.fail_after(silence_limit_s):
            chunk = await stream.receive_some(_CHUNK_BYTES)
    except trio.TooSlowError as error:
        raise dialogue.silent(silence_limit_s) from error
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        reason = tls_alert(error) if isinstance(error, trio.BrokenResourceError) else ""
        lost = f"The connection to the broker at {dialogue.address} was lost"
        raise NoConnection(Problem.CLOSED, f"{lost}: {reason}." if reason else f"{lost}.") from error
    if not chunk:
        raise dialogue.ended()
    return bytes(chunk)


@asynccontextmanager
async def open_link(
    endpoint: Endpoint,
    context: ssl.SSLContext | None,
    *,
    host: str,
    heart_beat_s: float,
    versions: Iterable[Version],
    headers: Headers,
    open_with: Callable[[Endpoint, ssl.SSLContext | None], Awaitable[trio.abc.Stream]] = open_stream,
) -> AsyncIterator[Link]:
    """Connected; closed at the end of the block. Raises NoConnection. `headers`: further ones of CONNECT."""
    stream = await open_with(endpoint, context)
    try:
        dialogue = Dialogue(endpoint.address, heart_beat_s)
        greeting = await _greeted(stream, dialogue, render_connect(host, heart_beat_s, versions, headers))
        yield Link(stream, dialogue, greeting)
    finally:
        await trio.aclose_forcefully(stream)


async def _greeted(stream: trio.abc.Stream, dialogue: Dialogue, connect: bytes) -> Greeting:
    """Raises NoConnection."""
    try:
        # All of it, since empty lines can come for ever.
        with trio.fail_after(CONNECT_TIMEOUT_S):
            with suppress(trio.BrokenResourceError):  # then receiving fails too, and says more
                await stream.send_all(connect)
            early: list[Frame] = []
            while dialogue.greeting is None:
                early = dialogue.receive(await receive_chunk(stream, dialogue, inf))
    except trio.TooSlowError as error:
        raise dialogue.silent(CONNECT_TIMEOUT_S) from error
    assert not early, "the reader stops after CONNECTED"
    return dialogue.greeting
