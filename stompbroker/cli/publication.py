"""Sending many messages over one connection.

Law: at most MAX_UNCONFIRMED messages are without their receipt, so a broker can hold this publisher back too. Messages
leave in batches, which are flushed when idle. The receipt of DISCONNECT confirms everything, asked for or not.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
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

    from stompbroker.cli.target import Target

#: Messages sent and not confirmed yet. Enough to keep a connection busy over 10 ms of latency at 100,000 a second.
MAX_UNCONFIRMED = 1_000
#: A batch is sent when it has this many bytes: one system call for many small messages.
BATCH_BYTES = 64 * 1024
#: Bodies in one list of a source.
BODIES_AT_ONCE = 256
_STDIN_CHUNK_BYTES = 64 * 1024


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
@dataclass(slots=True, kw_only=True)
class Publication:
    """What to publish and how, and how far it has got.

    Invariants:
        confirmed <= sent, and sent - confirmed <= MAX_UNCONFIRMED while receipts are asked for
    """

    destination: str
    headers: list[tuple[str, str]]
    bodies: AsyncIterator[list[bytes]]
    count: int | None  # None: as many as there are lines
    rate: float | None  # messages a second
    is_numbered: bool
    wants_receipts: bool
    shows_progress: bool
    sent: int = 0
    confirmed: int = 0
    body_bytes: int = 0
    seconds: float = 0.0
    _batch: bytearray = field(default_factory=bytearray)
    _confirmation: Signal = field(default_factory=Signal)

    async def publish(self, target: Target) -> None:
        """Publish and wait until everything is confirmed. Raises CommandFailed, with how much was."""
        async with connect(target) as client:
            failures: list[str] = []
            with progress_bar("publishing" if self.shows_progress else None, self.count) as show_sent:
                started_at = trio.current_time()
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._receive_confirmations, client)
                        nursery.start_soon(self._send_all, client, show_sent)
                except* CommandFailed as group:
                    failures = sentences(group)
            if failures:
                confirmed = f", {self.confirmed:,} of them confirmed" if self.wants_receipts else ""
                extent = f"  {counted(self.sent, 'message')} had been sent{confirmed}."
                raise CommandFailed("\n".join([*failures, extent]))
            self.seconds = trio.current_time() - started_at

    async def _send_all(self, client: StompClient, show_sent: Callable[[int], None]) -> None:
        async def flush() -> None:
            batch, self._batch = bytes(self._batch), bytearray()
            await client.send(batch)
            show_sent(self.sent)

        started_at = trio.current_time()
        async for bodies in self.bodies:
            for body in bodies:
                due_at = started_at + self.sent / self.rate if self.rate is not None else 0.0
                if trio.current_time() < due_at:
                    await flush()
                    await trio.sleep_until(due_at)
                if not self._has_room():
                    await flush()
                    # Checked again after each await: the last receipt may have come during the flush.
                    while not self._has_room():
                        await self._confirmation.wait()
                self._add(body)
                if len(self._batch) >= BATCH_BYTES:
                    await flush()
            await flush()
        await client.send(render_disconnect())

    def _has_room(self) -> bool:
        return not self.wants_receipts or self.sent - self.confirmed < MAX_UNCONFIRMED

    def _add(self, body: bytes) -> None:
        self.sent += 1
        if self.is_numbered:
            body = body.replace(b"{n}", b"%d" % self.sent)
        headers = [("destination", self.destination), *self.headers]
        if self.wants_receipts:
            headers.append(("receipt", str(self.sent)))
        self._batch += render_frame("SEND", headers, body)
        self.body_bytes += len(body)

    async def _receive_confirmations(self, client: StompClient) -> None:
        """Until DISCONNECT is confirmed."""
        while True:
            for frame in await client.receive():
                if frame.command != "RECEIPT":
                    continue
                if frame.headers.get("receipt-id") == DISCONNECT_RECEIPT:
                    return
                self.confirmed += 1
            self._confirmation.wake()

    @property
    def _rate(self) -> float:
        return self.sent / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, object]:
        return {
            "destination": self.destination,
            "published": self.sent,
            "receipts": self.confirmed if self.wants_receipts else None,
            "body_bytes": self.body_bytes,
            "seconds": round(self.seconds, 6),
            "rate": round(self._rate, 1),
        }

    def as_text(self) -> str:
        published = f"{counted(self.sent, 'message')} ({counted(self.body_bytes, 'byte')}) to {self.destination}"
        speed = f" in {self.seconds:.2f} s, {self._rate:,.0f} a second" if self.sent > 1 else ""
        return f"Published {published}{speed}, {'all confirmed' if self.wants_receipts else 'without receipts'}."
