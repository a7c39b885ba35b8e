"""Sending many messages over one connection.

Law: at most MAX_UNCONFIRMED messages are without their receipt, so a broker can hold this publisher back too. The
receipt of DISCONNECT confirms everything, asked for or not.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import trio

from stompbroker.cli.connection import connected, explained, say_goodbye
from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.terminal import progress_bar
from stompbroker.cli.wording import counted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stompbroker.cli.target import Target
    from stompbroker.client import Client

#: Messages sent and not confirmed yet. Enough to keep a connection busy over 10 ms of latency at 100,000 a second.
MAX_UNCONFIRMED = 1_000
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
    """What to publish and how, and how far it has got."""

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

    async def publish(self, target: Target) -> None:
        """Publish and wait until everything is confirmed. Raises CommandFailed, with how much was."""
        async with connected(target, max_unconfirmed=MAX_UNCONFIRMED) as client:
            try:
                with progress_bar("publishing" if self.shows_progress else None, self.count) as show_sent:
                    started_at = trio.current_time()
                    with explained(target):
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(client.wait_ended)
                            await self._send_all(client, show_sent)
                            nursery.cancel_scope.cancel()
                    await say_goodbye(client, target)
                    self.seconds = trio.current_time() - started_at
            except CommandFailed as failure:
                raise CommandFailed(f"{failure}\n  {self._extent(client)}") from failure
            finally:
                self.confirmed = client.statistics.confirmed

    def _extent(self, client: Client) -> str:
        confirmed = f", {client.statistics.confirmed:,} of them confirmed" if self.wants_receipts else ""
        return f"{counted(self.sent, 'message')} had been sent{confirmed}."

    async def _send_all(self, client: Client, show_sent: Callable[[int], None]) -> None:
        # Of repeated headers the first one counts.
        headers = dict(reversed(self.headers))
        started_at = trio.current_time()
        async for bodies in self.bodies:
            for body in bodies:
                due_at = started_at + self.sent / self.rate if self.rate is not None else 0.0
                if trio.current_time() < due_at:
                    show_sent(self.sent)
                    await trio.sleep_until(due_at)
                self.sent += 1
                content = body.replace(b"{n}", b"%d" % self.sent) if self.is_numbered else body
                self.body_bytes += len(content)
                await client.publish_soon(self.destination, content, headers=headers, confirm=self.wants_receipts)
            show_sent(self.sent)
            await trio.lowlevel.checkpoint()

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
