"""Sending many messages over one connection.

Law: at most MAX_UNCONFIRMED messages are without their receipt, so a broker can hold this publisher back too. Messages
leave in batches, which are flushed when idle. The receipt of DISCONNECT confirms everything, asked for or not.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, final

import trio

from stompbroker.cli.outcome import CommandFailed, sentences
from stompbroker.cli.stomp_client import DISCONNECT_RECEIPT, StompClient, connect, render_disconnect
from stompbroker.cli.terminal import progress_bar
from stompbroker.cli.wording import counted
from stompbroker.signals import Signal
from stompbroker.stomp import render_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

#: Messages sent and not confirmed yet. Enough to keep a connection busy over 10 ms of latency at 100,000 a second.
MAX_UNCONFIRMED = 1_000

#: A batch is sent when it has this many bytes: one system call for many small messages.
BATCH_BYTES = 64 * 1024

#: Bodies in one list of a source.
BODIES_AT_ONCE = 256

_STDIN_CHUNK_BYTES = 64 * 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What to publish, and how."""

    destination: str
    headers: list[tuple[str, str]]
    bodies: AsyncIterator[list[bytes]]
    count: int | None  # None: as many as there are lines
    rate: float | None  # messages a second
    is_numbered: bool
    wants_receipts: bool
    shows_progress: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    destination: str
    published: int
    receipts: int | None  # None: none were asked for
    body_bytes: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.published / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"seconds": round(self.seconds, 6), "rate": round(self.rate, 1)}

    def as_text(self) -> str:
        messages = counted(self.published, "message")
        confirmed = "all confirmed" if self.receipts is not None else "without receipts"
        speed = f" in {self.seconds:.2f} s, {self.rate:,.0f} a second" if self.published > 1 else ""
        return f"Published {messages} ({counted(self.body_bytes, 'byte')}) to {self.destination}{speed}, {confirmed}."


async def repeated(body: bytes, count: int) -> AsyncIterator[list[bytes]]:
    for start in range(0, count, BODIES_AT_ONCE):
        yield [body] * min(BODIES_AT_ONCE, count - start)


async def typed_lines() -> AsyncIterator[list[bytes]]:
    """The lines of standard input as they come, without their line ends."""
    rest = b""
    while True:
        # Abandoned on Ctrl-C: otherwise the program would end only after the next line.
        chunk = await trio.to_thread.run_sync(os.read, sys.stdin.fileno(), _STDIN_CHUNK_BYTES, abandon_on_cancel=True)
        *complete, rest = (rest + chunk).split(b"\n")
        if not chunk and rest:
            complete.append(rest)
        if complete:
            yield [line.removesuffix(b"\r") for line in complete]
        if not chunk:
            return


@final
@dataclass(slots=True)
class _Publisher:
    """The sending and the confirming side of one publication.

    Invariants:
        confirmed <= sent, and sent - confirmed <= MAX_UNCONFIRMED while receipts are asked for
    """

    _client: StompClient
    _publication: Publication
    _show_sent: Callable[[int], None]
    _confirmation: Signal = field(default_factory=Signal)
    _batch: bytearray = field(default_factory=bytearray)
    sent: int = 0
    confirmed: int = 0
    body_bytes: int = 0

    async def send_all(self) -> None:
        publication = self._publication
        started_at = trio.current_time()
        async for bodies in publication.bodies:
            for body in bodies:
                if publication.rate is not None:
                    await self._wait_until_due(started_at + self.sent / publication.rate)
                await self._wait_confirmed()
                self._add(body)
                if len(self._batch) >= BATCH_BYTES:
                    await self._flush()
            await self._flush()
        await self._client.send(render_disconnect())

    def _add(self, body: bytes) -> None:
        self.sent += 1
        if self._publication.is_numbered:
            body = body.replace(b"{n}", b"%d" % self.sent)
        headers = [("destination", self._publication.destination), *self._publication.headers]
        if self._publication.wants_receipts:
            headers.append(("receipt", str(self.sent)))
        self._batch += render_frame("SEND", headers, body)
        self.body_bytes += len(body)

    async def _flush(self) -> None:
        batch, self._batch = bytes(self._batch), bytearray()
        await self._client.send(batch)
        self._show_sent(self.sent)

    async def _wait_until_due(self, due_at: float) -> None:
        if trio.current_time() < due_at:
            await self._flush()
            await trio.sleep_until(due_at)

    async def _wait_confirmed(self) -> None:
        """Until fewer than MAX_UNCONFIRMED messages are unconfirmed."""
        if not self._has_room():
            await self._flush()
            # Checked again after each await: the last receipt may have come during the flush.
            while not self._has_room():
                await self._confirmation.wait()

    def _has_room(self) -> bool:
        return not self._publication.wants_receipts or self.sent - self.confirmed < MAX_UNCONFIRMED

    async def receive_confirmations(self) -> None:
        """Until DISCONNECT is confirmed."""
        while True:
            for frame in await self._client.receive():
                if frame.command != "RECEIPT":
                    continue
                if frame.headers.get("receipt-id") == DISCONNECT_RECEIPT:
                    return
                self.confirmed += 1
            self._confirmation.wake()


async def publish_all(address: tuple[str, int], publication: Publication) -> Summary:
    """Publish and wait until everything is confirmed. Raises CommandFailed, with how much was."""
    async with connect(*address) as client:
        with progress_bar("publishing" if publication.shows_progress else None, publication.count) as show_sent:
            publisher = _Publisher(client, publication, show_sent)
            started_at = trio.current_time()
            failures: list[str] = []
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(publisher.receive_confirmations)
                    nursery.start_soon(publisher.send_all)
            except* CommandFailed as group:
                failures = sentences(group)
        if failures:
            confirmed = f", {publisher.confirmed:,} of them confirmed" if publication.wants_receipts else ""
            extent = f"  {counted(publisher.sent, 'message')} had been sent{confirmed}."
            raise CommandFailed("\n".join([*failures, extent]))
        return Summary(
            destination=publication.destination,
            published=publisher.sent,
            receipts=publisher.confirmed if publication.wants_receipts else None,
            body_bytes=publisher.body_bytes,
            seconds=trio.current_time() - started_at,
        )
