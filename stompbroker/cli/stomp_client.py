"""A STOMP 1.2 client that is just large enough for `publish` and `subscribe`.

Law: frames over one stream, with heart-beats both ways. Every failure is a `CommandFailed` with a sentence for
the person at the terminal.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final

import trio

from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.stream import CONNECT_TIMEOUT_S, open_stream, tls_alert
from stompbroker.errors import PeerViolation
from stompbroker.stomp import HEART_BEAT, Frame, FrameReader, Head, Limits, Version, render_frame
from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stompbroker.cli.target import Target

#: Time for the receipt of DISCONNECT, in seconds: the broker first finishes everything sent before.
DISCONNECT_TIMEOUT_S = 10.0
#: Interval we ask for in both directions, in milliseconds. A person does not notice a dead broker sooner.
HEART_BEAT_MS = 10_000
#: The broker counts as lost after this many heart-beat intervals of silence.
HEART_BEAT_MARGIN = 2.0
#: The most that a broker can be set to allow: what it delivered must not fail here.
LIMITS = Limits(max_header_count=65_536, max_header_bytes=16 * 1024**2, max_body_bytes=1024**3)
#: The receipt of DISCONNECT: after it nothing more comes.
DISCONNECT_RECEIPT = "disconnect"
#: What a server that expects TLS answers to anything else: an alert record.
_TLS_ALERT = b"\x15\x03"
_SERVER_COMMANDS = {"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"}
_CHUNK_BYTES = 256 * 1024


@final
class StompClient:
    """One connection after CONNECTED. Any task may send; one at a time receives.

    Invariant: `_error`, once set, is raised by every further `receive`; nothing is received after it.
    """

    def __init__(self, stream: trio.abc.Stream, target: Target) -> None:
        self._stream = stream
        self._target = target
        self._address = target.endpoint.address
        self._reader = FrameReader(LIMITS, _require_server_command)
        self._sending = trio.Lock()  # keeps a frame's bytes together: another task sends heart-beats
        self._error: CommandFailed | None = None
        self._sends_every_s = float("inf")
        self._silence_limit_s = CONNECT_TIMEOUT_S

    async def send(self, content: bytes) -> None:
        """Rendered frames. Cancelling this may leave half a frame on the wire; only closing helps then."""
        try:
            async with self._sending:
                await self._stream.send_all(content)
        except trio.BrokenResourceError:
            # `receive` fails too, and then may have the broker's ERROR, which says more.
            return

    async def receive(self) -> list[Frame]:
        """One or more frames. Raises CommandFailed on ERROR, silence or a lost connection; cancelling loses nothing."""
        while True:
            if self._error is not None:
                raise self._error
            chunk = b"" if self._reader.has_more else await self._receive_chunk()
            try:
                frames = self._reader.receive(chunk)
            except PeerViolation as violation:
                raise CommandFailed(
                    f"What answers at {self._address} does not speak STOMP: {violation}."
                ) from violation
            for position, frame in enumerate(frames):
                if frame.command == "ERROR":
                    self._error = self._refusal(frame)
                    frames = frames[:position]
                    break
            if frames:
                return frames

    async def _receive_chunk(self) -> bytes:
        try:
            with trio.fail_after(self._silence_limit_s):
                chunk = await self._stream.receive_some(_CHUNK_BYTES)
        except trio.TooSlowError as error:
            silence = f"{self._address} has said nothing for {self._silence_limit_s:g} seconds"
            guess = "is it a STOMP broker?" if self._reader.version is None else "the broker or the network hangs."
            raise CommandFailed(f"{silence}; {guess}") from error
        except trio.BrokenResourceError as error:
            reason = tls_alert(error)
            lost = f"The connection to the broker at {self._address} was lost"
            raise CommandFailed(f"{lost}: {reason}." if reason else f"{lost}.") from error
        if self._reader.version is None and chunk.startswith(_TLS_ALERT):
            raise CommandFailed(f"{self._address} expects TLS; use --url stomp+tls://{self._address}")
        if not chunk:
            hint = "" if self._reader.version is not None else " without an answer; does it expect TLS (stomp+tls://)?"
            raise CommandFailed(f"The broker at {self._address} closed the connection{hint or '.'}")
        return bytes(chunk)

    def _refusal(self, error: Frame) -> CommandFailed:
        message = readable(error.headers.get("message", "no reason given"))
        detail = readable(error.body.decode(errors="replace").strip(), keeps_lines=True)
        lines = [] if detail in message else detail.split("\n")
        if message.startswith("login refused") and not self._target.login_headers():
            endpoint = self._target.endpoint
            lines.append(f"Name the user with --url {endpoint.scheme}://NAME@{endpoint.address}")
        return CommandFailed("\n  ".join([f"The broker refused: {message}", *filter(None, lines)]))

    async def wait_receipt(self, receipt: str) -> list[Frame]:
        """Wait for one RECEIPT; returns the other frames that came in the meantime, in order."""
        others: list[Frame] = []
        while True:
            frames = await self.receive()
            rest = [one for one in frames if one.command != "RECEIPT" or one.headers.get("receipt-id") != receipt]
            others += rest
            if len(rest) < len(frames):
                return others

    async def disconnect(self) -> None:
        """Send DISCONNECT and wait for its receipt: then the broker has finished everything sent before."""
        await self.send(render_disconnect())
        with trio.move_on_after(DISCONNECT_TIMEOUT_S) as scope:
            await self.wait_receipt(DISCONNECT_RECEIPT)
        if scope.cancelled_caught:
            raise CommandFailed(f"The broker at {self._address} did not confirm the end of the conversation.")

    async def greet(self, client_id: str | None) -> None:
        host = self._target.endpoint.host or "localhost"
        headers = [("accept-version", "1.2"), ("host", host), ("heart-beat", f"{HEART_BEAT_MS},{HEART_BEAT_MS}")]
        headers += self._target.login_headers()
        if client_id is not None:
            headers.append(("client-id", client_id))
        await self.send(render_frame("CONNECT", headers))
        connected = (await self.receive())[0]
        if connected.command != "CONNECTED":
            raise CommandFailed(
                f"What answers at {self._address} does not speak STOMP: {connected.command} came first."
            )
        self._reader.version = Version.V1_2
        self._sends_every_s, self._silence_limit_s = _intervals(connected.headers.get("heart-beat", "0,0"))

    async def send_heart_beats(self) -> None:
        """Until cancelled; at twice the agreed rate, so that none is ever late."""
        while True:
            await trio.sleep(self._sends_every_s / 2)
            await self.send(HEART_BEAT)


def _require_server_command(head: Head) -> None:
    """The reader's check of each kind of frame, made before its body is read."""
    if head.command not in _SERVER_COMMANDS:
        raise PeerViolation(f"it says {head.command[:40]!r}")


def render_disconnect() -> bytes:
    return render_frame("DISCONNECT", [("receipt", DISCONNECT_RECEIPT)])


def _intervals(heart_beat: str) -> tuple[float, float]:
    """How often we must send, and after what silence the broker is lost; in seconds, infinite if not agreed."""
    server_sends_ms, server_wants_ms = (int(part) for part in heart_beat.split(","))
    sends_every_s = max(HEART_BEAT_MS, server_wants_ms) / 1000 if server_wants_ms else float("inf")
    hears_every_s = max(HEART_BEAT_MS, server_sends_ms) / 1000 if server_sends_ms else float("inf")
    return sends_every_s, hears_every_s * HEART_BEAT_MARGIN


@asynccontextmanager
async def connect(target: Target, *, client_id: str | None = None) -> AsyncIterator[StompClient]:
    """A connected client. The end of the block closes the connection, without a DISCONNECT."""
    async with await open_stream(target) as stream:
        client = StompClient(stream, target)
        await client.greet(client_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_heart_beats)
            yield client
            nursery.cancel_scope.cancel()
