"""A whole broker on memory streams: every part real but the sockets and the clock.

Law: tests talk to it in frames, as a client does, and may look at its stores. Time is the mock clock's; waiting is on
frames, never on time.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from stompbroker.broker import Broker
from stompbroker.config import Settings
from stompbroker.stomp import Frame, FrameReader, Limits, Version, render_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stompbroker.sessions import Session

__all__ = ["BrokerUnderTest", "Client", "running_broker"]

#: Nothing in these tests takes that long, not even on the mock clock.
PATIENCE_S = 3600.0
#: On the mock clock: passes as soon as every task waits.
A_MOMENT_S = 1e-6


class Client:
    """A STOMP client that says exactly what it is told to, and keeps what it gets."""

    def __init__(self, stream: trio.StapledStream[Any, Any], session: Session) -> None:
        self.stream = stream
        #: The broker's side of this connection.
        self.session = session
        self.version = Version.V1_2
        self._reader = FrameReader(Limits())
        self._frames: deque[Frame] = deque()
        #: Every byte received so far.
        self.received = b""

    async def send_raw(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send a frame; `_` in a header's name stands for `-`."""
        await self.send_raw(self.frame(command, body, **headers))

    def frame(self, command: str, body: bytes = b"", /, **headers: str) -> bytes:
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return render_frame(command, pairs, body, self.version)

    async def connect(self, version: Version = Version.V1_2, **headers: str) -> Frame:
        await self.send("CONNECT", accept_version=version.value, host="test", **headers)
        connected = await self.next_frame()
        assert connected.command == "CONNECTED", connected
        self.version = version
        self._reader.version = version
        return connected

    async def subscribe(self, destination: str = "/topic/a", id: str = "0", **headers: str) -> None:
        """SUBSCRIBE, and wait until the broker has done it."""
        await self.send("SUBSCRIBE", id=id, destination=destination, receipt=f"subscribed-{id}", **headers)
        await self.expect_receipt(f"subscribed-{id}")

    async def publish(self, *bodies: bytes, destination: str = "/topic/a", **headers: str) -> None:
        """SEND each body, in one write."""
        await self.send_raw(b"".join(self.frame("SEND", body, destination=destination, **headers) for body in bodies))

    async def next_frame(self) -> Frame:
        """The next frame that is not a heart-beat. Fails if the broker closes instead."""
        with trio.fail_after(PATIENCE_S):
            while not self._frames:
                chunk = bytes(await self.stream.receive_some())
                assert chunk, "the broker closed the connection"
                self.received += chunk
                frames = self._reader.receive(chunk)
                while self._reader.has_more:
                    frames += self._reader.receive(b"")
                self._frames.extend(frames)
        return self._frames.popleft()

    async def next_message(self) -> Frame:
        frame = await self.next_frame()
        assert frame.command == "MESSAGE", frame
        return frame

    async def next_messages(self, count: int) -> list[Frame]:
        return [await self.next_message() for _ in range(count)]

    async def expect_receipt(self, receipt: str) -> None:
        frame = await self.next_frame()
        assert frame.command == "RECEIPT", frame
        assert frame.headers == {"receipt-id": receipt}
        assert frame.body == b""

    async def expect_error(self, *texts: str) -> Frame:
        """The next frame is an ERROR that says all of these, and then the broker closes."""
        frame = await self.next_frame()
        assert frame.command == "ERROR", frame
        said = f"{frame.headers['message']}\n{frame.body.decode()}"
        for text in texts:
            assert text in said, said
        await self.expect_closed()
        return frame

    async def expect_closed(self) -> None:
        """The broker has said its last word."""
        assert not self._frames, list(self._frames)
        with trio.fail_after(PATIENCE_S):
            while chunk := bytes(await self.stream.receive_some()):
                assert chunk.strip(b"\n") == b"", chunk

    async def sync(self) -> None:
        """Wait until the broker has taken everything sent so far, and nothing came back but the receipt for that."""
        await self.send("BEGIN", transaction="sync", receipt="sync")
        await self.send("ABORT", transaction="sync")
        await self.expect_receipt("sync")

    async def expect_nothing(self) -> None:
        """The broker has nothing to say: all its tasks wait, and no frame has come."""
        await wait_all_tasks_blocked()
        assert not self._frames, list(self._frames)
        with trio.move_on_after(A_MOMENT_S):
            chunk = bytes(await self.stream.receive_some())
            assert chunk.strip(b"\n") == b"", chunk

    async def has_more(self) -> bool:
        """Whether another frame has come, once the broker has nothing more to do."""
        await wait_all_tasks_blocked()
        with trio.move_on_after(A_MOMENT_S):
            self._frames.appendleft(await self.next_frame())
        return bool(self._frames)

    async def vanish(self) -> None:
        """Drop the connection without a word."""
        await self.stream.aclose()
        await wait_all_tasks_blocked()


class BrokerUnderTest:
    """The broker's parts, and connections to it."""

    def __init__(self, broker: Broker, nursery: trio.Nursery) -> None:
        self.parts = broker
        self.registry = broker.registry
        self.budget = broker.budget
        self.clock = broker.clock
        self._nursery = nursery

    async def open(self) -> Client:
        """A connection on which nothing has been said."""
        ours, theirs = memory_stream_pair()
        before = set(self.parts.sessions)
        self._nursery.start_soon(self.parts.serve_connection, theirs, f"memory:{len(before)}")
        await wait_all_tasks_blocked()
        (new,) = set(self.parts.sessions) - before
        return Client(ours, self.parts.sessions[new])

    async def client(self, version: Version = Version.V1_2, **headers: str) -> Client:
        """A connected client."""
        client = await self.open()
        await client.connect(version, **headers)
        return client

    async def subscriber(
        self, destination: str = "/topic/a", version: Version = Version.V1_2, **headers: str
    ) -> Client:
        """A connected client with one subscription, of id 0 unless told otherwise."""
        client = await self.client(version)
        await client.subscribe(destination, **headers)
        return client

    def check_invariants(self) -> None:
        self.registry.check_invariants()
        for session in self.parts.sessions.values():
            session.check_invariants()


@asynccontextmanager
async def running_broker(**settings: Any) -> AsyncIterator[BrokerUnderTest]:
    """A broker with these settings; its invariants are checked at the end, and that it gave back all memory."""
    async with trio.open_nursery() as nursery:
        broker = Broker(Settings(**settings))
        await broker.start_services(nursery)
        under_test = BrokerUnderTest(broker, nursery)
        yield under_test
        under_test.check_invariants()
        broker.dismiss_clients()
        nursery.cancel_scope.cancel()
    assert not broker.sessions
    kept_bytes = sum(topic.log.size_bytes for topic in broker.registry.topics.values())
    assert broker.budget.used_bytes == kept_bytes, "memory was charged and not given back"
