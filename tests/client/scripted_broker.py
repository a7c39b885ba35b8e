"""A broker on memory streams that does exactly what a test tells it to: above all what no real one would do on demand.

Law: one connection after the other, each moved frame by frame. Whatever listens nowhere is `dead`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio
import trio.testing

from stompbroker.client import Client, NoConnection, Problem, connect
from stompbroker.stomp import HEART_BEAT, Version, render_frame

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from stompbroker.transport import Endpoint

#: In seconds of the mock clock.
PATIENCE_S: Final = 3600.0


class Said(NamedTuple):
    command: str
    headers: dict[str, str]
    body: bytes


class Connection:
    """The broker's end of one connection."""

    def __init__(self, stream: trio.abc.Stream, cut: Callable[[], Awaitable[None]]) -> None:
        self._stream = stream
        self._received = b""
        self.cut = cut

    async def next_frame(self, command: str) -> Said:
        """The next frame, which must be this one."""
        with trio.fail_after(PATIENCE_S):
            while b"\0" not in self._received:
                chunk = bytes(await self._stream.receive_some(65536))
                assert chunk, f"the client left instead of {command}"
                self._received = (self._received + chunk).lstrip(b"\n")
        frame, _, rest = self._received.partition(b"\0")
        self._received = rest.lstrip(b"\n")
        head, _, body = frame.partition(b"\n\n")
        said, *lines = head.decode().split("\n")
        assert said == command, frame
        # Escapes do not occur in these tests.
        return Said(said, dict(line.split(":", 1) for line in lines), body)

    async def receive(self) -> bytes:
        """Bytes as they come."""
        return bytes(await self._stream.receive_some(65536))

    async def hears_nothing(self) -> None:
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1e-6):
            self._received += bytes(await self._stream.receive_some(65536))
        assert self._received.strip(b"\n") == b""

    async def say(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        await self._stream.send_all(render_frame(command, pairs, body, Version.V1_2))

    async def say_nothing(self) -> None:
        """A heart-beat."""
        await self._stream.send_all(HEART_BEAT)

    async def confirm(self, said: Said, **headers: str) -> None:
        await self.say("RECEIPT", receipt_id=said.headers["receipt"], **headers)

    async def refuse(self, said: Said | None = None, message: str = "no") -> None:
        """As the specification wants it: an ERROR, and the end."""
        headers = {} if said is None else {"receipt_id": said.headers["receipt"]}
        await self.say("ERROR", message=message, **headers)
        await self.cut()

    async def take_subscription(self) -> Said:
        said = await self.next_frame("SUBSCRIBE")
        await self.confirm(said)
        return said

    async def deliver(self, subscription: str, *bodies: bytes) -> None:
        for body in bodies:
            name = body.decode()
            await self.say("MESSAGE", body, subscription=subscription, message_id=name, ack=f"ack-{name}")

    async def part(self, *first: str) -> None:
        """Let the client say goodbye, with these frames before."""
        for command in first:
            await self.next_frame(command)
        await self.confirm(await self.next_frame("DISCONNECT"))


class ScriptedBroker:
    def __init__(self, *, lockstep: bool = False) -> None:
        self._opened, self._accepted = trio.open_memory_channel[Connection](100)
        self._pair = trio.testing.lockstep_stream_pair if lockstep else trio.testing.memory_stream_pair
        #: Hosts at which nobody listens.
        self.dead: set[str] = set()
        #: When which host was tried.
        self.attempts: list[tuple[float, str]] = []

    def client(self, *hosts: str, **options: Any) -> Client:
        first, *others = [f"stomp://{host}" for host in hosts or ("broker",)]
        return connect(first, *others, open_with=self._open, heart_beat=options.pop("heart_beat", 0), **options)

    async def _open(self, endpoint: Endpoint, _: ssl.SSLContext | None) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.attempts.append((trio.current_time(), endpoint.host))
        if endpoint.host in self.dead:
            raise NoConnection(Problem.NOBODY_LISTENS, f"No broker listens on {endpoint.address}.")
        ours, theirs = self._pair()

        async def cut() -> None:
            await theirs.aclose()
            await trio.testing.wait_all_tasks_blocked()

        self._opened.send_nowait(Connection(theirs, cut))
        return ours

    async def accept(self, **connected: str) -> Connection:
        """The next connection, greeted."""
        connection = await self.accept_silently()
        await connection.next_frame("CONNECT")
        await connection.say("CONNECTED", **({"version": "1.2"} | connected))
        return connection

    async def accept_silently(self) -> Connection:
        with trio.fail_after(PATIENCE_S):
            return await self._accepted.receive()
