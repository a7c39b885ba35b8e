"""A whole broker on memory streams: every part real but the sockets and, where a test asks for it, the clock.

Law: tests talk to it in frames, as a client does, and may look at its stores. Waiting is on frames and on the broker's
parts, never on time. Without a store it runs on the clock that jumps by itself. With one it must not, since that
clock leaps while a thread works: then time is real, or a `MockClock` that the test moves once the broker has settled.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from contextlib import asynccontextmanager, closing, contextmanager
from threading import Event, Timer
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from stompbroker.broker import Broker, opened_store
from stompbroker.config import MEMORY, Settings
from stompbroker.journal import StoreJournal
from stompbroker.stomp import Frame, FrameReader, Limits, Version, render_frame
from stompbroker.storage import StoreFailing
from stompbroker.transport import StreamTransport
from tests.support.carriers import plain
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from stompbroker.sessions import Session
    from stompbroker.storage import Batch, Store
    from tests.support.carriers import Carrier

#: Nothing in these tests takes that long, not even on the mock clock.
PATIENCE_S = 3600.0
#: How long, in real time, nothing must happen before the page reader's thread is looked at again.
A_LOOK_S = 0.001
#: On the mock clock: passes as soon as every task waits.
A_MOMENT_S = 1e-6


class Client:
    """A STOMP client that says exactly what it is told to, and keeps what it gets."""

    def __init__(self, stream: trio.abc.Stream, session: Session, *, patience_s: float = PATIENCE_S) -> None:
        self.stream = stream
        self._patience_s = patience_s
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
        with trio.fail_after(self._patience_s):
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

    async def next_bodies(self, count: int) -> list[bytes]:
        return [message.body for message in await self.next_messages(count)]

    async def acknowledge(self, *messages: Frame) -> None:
        """ACK these messages of a 1.2 connection, and wait for the receipt of the last: all of it is durable."""
        acks = [self.frame("ACK", id=message.headers["ack"]) for message in messages[:-1]]
        last = self.frame("ACK", id=messages[-1].headers["ack"], receipt="acknowledged")
        await self.send_raw(b"".join(acks) + last)
        await self.expect_receipt("acknowledged")

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
        with trio.fail_after(self._patience_s):
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

    #: What is put on top of both ends of a connection.
    carrier: Carrier = staticmethod(plain)

    def __init__(self, broker: Broker, nursery: trio.Nursery) -> None:
        self.parts = broker
        self.registry = broker.registry
        self.budget = broker.budget
        self.clock = broker.clock
        self.is_killed = False
        self._nursery = nursery
        self._store_is_free = Event()
        self._store_is_free.set()
        if broker.opened is not None:
            self._guard(broker.opened.store)

    async def open(self) -> Client:
        """A connection on which nothing has been said."""
        ours, theirs = memory_stream_pair()
        before = set(self.parts.sessions)
        plainly = StreamTransport(theirs, f"memory:{self.parts.totals.connections_opened}")
        client, transport = await self.carrier(ours, plainly)
        self._nursery.start_soon(self.parts.serve_connection, transport)
        await wait_all_tasks_blocked()
        (new,) = set(self.parts.sessions) - before
        patience_s = PATIENCE_S if self.parts.opened is None else HARD_TIMEOUT_S
        return Client(client, self.parts.sessions[new], patience_s=patience_s)

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
        self.parts.producers.check_invariants()
        for session in self.parts.sessions.values():
            session.check_invariants()
        if isinstance(self.parts.journal, StoreJournal):
            self.parts.journal.check_invariants()

    # With a store ----------------------------------------------------------------------------------------------------

    async def durable_subscriber(
        self,
        destination: str = "/topic/a",
        name: str = "orders",
        *,
        client_id: str = "billing",
        version: Version = Version.V1_2,
        ack: str = "client-individual",
        **headers: str,
    ) -> Client:
        """A connected client with a durable subscription of that name, under the id 0."""
        client = await self.client(version, client_id=client_id)
        await client.subscribe(destination, durable_subscription_name=name, ack=ack, **headers)
        return client

    async def delete_subscription(self, key: str) -> None:
        """As an operator does it."""
        (public_id,) = (one.public_id for one in self.registry.durable.values() if one.key == key)
        await self.parts.control.call("remove_subscription", {"id": public_id})

    async def store_messages(self, *bodies: bytes, destination: str = "/topic/a", **headers: str) -> None:
        """Published by somebody who has waited for their receipt, and is gone."""
        publisher = await self.client()
        await publisher.publish(*bodies, destination=destination, **headers)
        await publisher.sync()
        await publisher.vanish()

    async def rest_for(self, client: Client) -> list[Frame]:
        """Every MESSAGE that it gets until the broker has settled."""
        await self.settle()
        await client.send("BEGIN", transaction="rest", receipt="rest")
        await client.send("ABORT", transaction="rest")
        messages = []
        while (frame := await client.next_frame()).command == "MESSAGE":
            messages.append(frame)
        assert frame.headers == {"receipt-id": "rest"}, frame
        return messages

    async def expect_silence(self, *clients: Client) -> None:
        """The broker has nothing more to say to them: it has settled, and then the receipt asked for comes first."""
        await self.settle()
        for client in clients:
            await client.sync()

    @property
    def journal(self) -> StoreJournal:
        assert isinstance(self.parts.journal, StoreJournal), "this broker was started without `store_in`"
        return self.parts.journal

    async def settle(self) -> None:
        """Until the broker has nothing to do: all tasks wait, everything is written, and no page is asked for."""
        with trio.fail_after(HARD_TIMEOUT_S):
            while True:
                await wait_all_tasks_blocked(A_LOOK_S)
                await self.journal.wait_idle()
                await wait_all_tasks_blocked()
                is_written = self.journal.is_idle and not self.registry.unsaved
                if is_written and not self.registry.pages.requests:
                    return

    def look(self, statement: str) -> list[tuple[Any, ...]]:
        """What the database file says to somebody who has nothing to do with the broker."""
        with closing(sqlite3.connect(self.parts.settings.data / "stompbroker.db", isolation_level=None)) as file:
            return file.execute(statement).fetchall()

    def count(self, table: str) -> int:
        number: int = self.look(f"SELECT count(*) FROM {table}")[0][0]
        return number

    @contextmanager
    def held_store(self) -> Iterator[None]:
        """The store finishes nothing until the block ends. The first batch is stuck in it; what comes later gathers.

        If the broker is killed within the block, what is stuck is never written.
        """
        self._store_is_free.clear()
        try:
            yield
        finally:
            self._store_is_free.set()

    def _guard(self, store: Store) -> None:
        """Have the store wait where a test holds it, and write nothing more once the broker is killed."""
        commit = store.commit

        def commit_if_alive(batch: Batch) -> None:
            assert self._store_is_free.wait(HARD_TIMEOUT_S)
            if self.is_killed:
                raise StoreFailing("the process is gone")
            commit(batch)

        store.commit = commit_if_alive  # type: ignore[method-assign]

    def kill(self) -> None:
        """End as if the process had been killed: nobody is told, and nothing more is written. Nothing may be awaited
        after that."""
        self.is_killed = True
        self._nursery.cancel_scope.cancel()


@asynccontextmanager
async def running_broker(
    *, store_in: Path | None = None, writing: Any = None, **settings: Any
) -> AsyncIterator[BrokerUnderTest]:
    """A broker with these settings, and with a store if it is told in which directory; another one can be started there
    when this one has ended. If there is a `WritingProcess` (`writing`), that writes to it, and it cannot be held.

    Its invariants are checked at the end, and that it gave back all memory; unless it was killed.
    """
    # Without a directory of its own, it must not find users in somebody's data directory.
    where = {"database": MEMORY, "users_file": os.devnull} if store_in is None else {"data": store_in}
    all_settings = Settings(**(where | settings))
    async with opened_store(all_settings, writing) as opened, trio.open_nursery() as nursery:
        broker = Broker(all_settings, opened)
        under_test = BrokerUnderTest(broker, nursery)
        await broker.start_services(nursery)
        with _bounded_in_real_time(nursery.cancel_scope, is_needed=opened is not None):
            yield under_test
            if under_test.is_killed:
                return
            under_test.check_invariants()
            broker.dismiss_clients()
            if opened is not None:
                await under_test.settle()
                under_test.check_invariants()
        nursery.cancel_scope.cancel()
    assert not broker.sessions
    assert broker.budget.used_bytes == _kept_bytes(broker), "memory was charged and not given back"


@contextmanager
def _bounded_in_real_time(everything: trio.CancelScope, *, is_needed: bool) -> Iterator[None]:
    """A mock clock that is moved by hand bounds nothing: whatever waits too long is cancelled, and the test fails."""
    if not is_needed:
        yield
        return
    has_expired = False

    def expire() -> None:
        nonlocal has_expired
        has_expired = True
        everything.cancel()

    token = trio.lowlevel.current_trio_token()
    watchdog = Timer(HARD_TIMEOUT_S, token.run_sync_soon, [expire])
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
        if has_expired:
            pytest.fail(f"nothing more happened, and {HARD_TIMEOUT_S:g} s are over")


def _kept_bytes(broker: Broker) -> int:
    """What may be charged when nobody is connected."""
    topics = broker.registry.topics.values()
    held_bytes = sum(reading.remembered.held_bytes for topic in topics for reading in topic.readings.values())
    kept_bytes = broker.registry.pages.size_bytes + broker.registry.last_values.size_bytes
    return sum(topic.log.size_bytes for topic in topics) + held_bytes + kept_bytes
