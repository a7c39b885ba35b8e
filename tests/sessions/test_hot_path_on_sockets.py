"""The cost of a message between sockets, in steps, wake-ups, writes and statements.

Speed itself is measured by `make bench`; these guard what makes it: what is published leaves in the stretch that
publishes it, nobody else is woken, and the journal is woken once for a batch and once by its answer. Clients are on
socket pairs, since only a socket is written to at once.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, final

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from stompbroker.actors import journal
from stompbroker.build import IS_COMPILED
from stompbroker.sessions import outbox as turns
from stompbroker.stomp import Version
from stompbroker.transport import StreamTransport, TcpTransport
from tests.journal.watched_store import statements_written
from tests.support.broker_under_test import Client, running_broker
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.writing_process import begun_writing_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path
    from types import FrameType

    from trio.testing import MockClock

    from stompbroker.buffers import Buffer
    from tests.support.broker_under_test import BrokerUnderTest

MESSAGES: Final = 200

#: Part of the paths of its modules.
BROKER: Final = f"{os.sep}stompbroker{os.sep}"
#: Part of the names of tasks.
DISTRIBUTOR: Final = "actors.distributor.run"
WRITER: Final = "actors.worker._write"
JOURNAL: Final = "actors.journal.run"
CONNECTION: Final = "serve_connection"


@pytest.fixture(autouse=True)
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns and slices end when all is done: what a busy machine leaves for later is not what is counted here."""
    monkeypatch.setattr(turns, "TURN_S", HARD_TIMEOUT_S)
    monkeypatch.setattr(journal, "SLICE_S", HARD_TIMEOUT_S)


@final
class OnSockets:
    """A broker, and clients at the other ends of sockets."""

    def __init__(self, broker: BrokerUnderTest, nursery: trio.Nursery, streams: AsyncExitStack) -> None:
        self.parts = broker.parts
        self.ready = broker.registry.ready
        self.under_test = broker
        self._nursery = nursery
        self._streams = streams

    async def client(self, **headers: str) -> Client:
        ours, theirs = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair())
        await self._streams.enter_async_context(ours)
        before = set(self.parts.sessions)
        self._nursery.start_soon(self.parts.serve_connection, TcpTransport(theirs, "a socket"))
        await wait_all_tasks_blocked()
        (new,) = set(self.parts.sessions) - before
        client = Client(ours, self.parts.sessions[new], patience_s=HARD_TIMEOUT_S)
        await client.connect(Version.V1_2, **headers)
        return client


@asynccontextmanager
async def on_sockets(**settings: Any) -> AsyncIterator[OnSockets]:
    async with running_broker(**settings) as broker, trio.open_nursery() as nursery, AsyncExitStack() as streams:
        yield OnSockets(broker, nursery, streams)


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """How often each function of the broker is entered in this thread, by its name."""
    if IS_COMPILED:
        pytest.skip("the calls of compiled code are not counted")
    calls: Counter[str] = Counter()

    def entered(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and BROKER in frame.f_code.co_filename:
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(entered)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@contextmanager
def counted_steps() -> Iterator[Counter[str]]:
    """How often each task runs, by its name."""
    steps: Counter[str] = Counter()

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            steps[task.name] += 1

    instrument = Steps()
    trio.lowlevel.add_instrument(instrument)
    try:
        yield steps
    finally:
        trio.lowlevel.remove_instrument(instrument)


def steps_of(steps: Counter[str], part: str) -> int:
    return sum(count for name, count in steps.items() if name.endswith(part))


def counted_writes(client: Client) -> list[int]:
    """The length of each write that is made at once on the broker's side of this connection, from now on."""
    send_now = client.session.outbox.send_now
    assert send_now is not None
    lengths: list[int] = []

    def send(*parts: Buffer) -> int:
        lengths.append(sum(map(len, parts)))
        return send_now(*parts)

    client.session.outbox.send_now = send
    return lengths


# Between two connections ---------------------------------------------------------------------------------------------


async def test_a_message_for_one_subscriber_wakes_neither_distributor_nor_writer() -> None:
    async with on_sockets() as broker:
        subscriber, publisher = await broker.client(), await broker.client()
        await subscriber.subscribe(ack="client-individual")
        await wait_all_tasks_blocked()
        wake_ups = broker.ready.wake_ups
        writes = counted_writes(subscriber)

        with counted_steps() as steps:
            for _ in range(MESSAGES):
                await publisher.publish(b"x")
                await subscriber.next_message()

        assert broker.ready.wake_ups == wake_ups
        assert steps_of(steps, DISTRIBUTOR) == steps_of(steps, WRITER) == 0
        assert steps_of(steps, CONNECTION) == MESSAGES
        assert len(writes) == MESSAGES


async def test_a_message_with_receipt_and_acknowledgement_costs_a_step_for_each_chunk_that_is_read() -> None:
    async with on_sockets() as broker:
        subscriber, publisher = await broker.client(), await broker.client()
        await subscriber.subscribe(ack="client-individual")
        await wait_all_tasks_blocked()

        with counted_steps() as steps:
            for _ in range(MESSAGES):
                await publisher.publish(b"x", receipt="r")
                await publisher.expect_receipt("r")
                message = await subscriber.next_message()
                await subscriber.send("ACK", id=message.headers["ack"], receipt="a")
                await subscriber.expect_receipt("a")

        assert steps_of(steps, DISTRIBUTOR) == steps_of(steps, WRITER) == 0
        assert steps_of(steps, CONNECTION) == 2 * MESSAGES


async def test_a_lone_chunk_is_received_with_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a small one, the next is waited for and not asked for in vain."""
    read = os.read
    by_us: list[int] = []
    by_trio: list[int] = []

    def receive(descriptor: int, size_bytes: int) -> bytes:
        by_us.append(size_bytes)
        return read(descriptor, size_bytes)

    async def receive_by_trio(_: StreamTransport, max_bytes: int) -> bytes:
        by_trio.append(max_bytes)
        return b""

    async with on_sockets() as broker:
        subscriber, publisher = await broker.client(), await broker.client()
        await subscriber.subscribe()
        await wait_all_tasks_blocked()
        monkeypatch.setattr(os, "read", receive)
        monkeypatch.setattr(StreamTransport, "receive_some", receive_by_trio)

        for _ in range(MESSAGES):
            await publisher.publish(b"x")
            await subscriber.next_message()

        assert len(by_us) == MESSAGES
        assert by_trio == []


async def test_a_message_for_twenty_subscribers_leaves_to_all_of_them_in_one_step() -> None:
    async with on_sockets() as broker:
        subscribers = [await broker.client() for _ in range(20)]
        for subscriber in subscribers:
            await subscriber.subscribe()
        publisher = await broker.client()
        await wait_all_tasks_blocked()

        with counted_steps() as steps:
            for _ in range(20):
                await publisher.publish(b"x")
                for subscriber in subscribers:
                    await subscriber.next_message()

        assert steps_of(steps, DISTRIBUTOR) == steps_of(steps, WRITER) == 0
        assert steps_of(steps, CONNECTION) == 20


async def test_a_thousand_messages_in_large_chunks_cost_few_writes() -> None:
    async with on_sockets() as broker:
        subscriber, publisher = await broker.client(), await broker.client()
        await subscriber.subscribe()
        writes = counted_writes(subscriber)
        chunk = publisher.frame("SEND", b"x" * 256, destination="/topic/a") * 500

        with counted_steps() as steps:
            for _ in range(20):
                await publisher.send_raw(chunk)
                await subscriber.next_messages(500)

        assert len(writes) / 10 < 20
        assert steps_of(steps, WRITER) / 10 < 20
        assert steps_of(steps, CONNECTION) / 10 < 20


async def test_a_client_that_says_good_bye_in_the_chunk_that_publishes_has_published(mock_clock: MockClock) -> None:
    """Its session ends within the stretch, behind which its message leaves to the other."""
    async with on_sockets() as broker:
        subscriber, client = await broker.client(), await broker.client()
        await subscriber.subscribe()
        await client.subscribe(id="own")

        await client.send_raw(
            client.frame("SEND", b"my last", destination="/topic/a") + client.frame("DISCONNECT", receipt="bye")
        )

        assert (await subscriber.next_message()).body == b"my last"
        await client.expect_receipt("bye")
        await client.expect_closed()


# Large bodies --------------------------------------------------------------------------------------------------------

MIB: Final = 1024 * 1024


@pytest.mark.parametrize("settings", [{}, {"trailing_lf": False}])
async def test_a_large_body_is_sent_to_all_from_where_its_message_keeps_it(settings: dict[str, Any]) -> None:
    async with on_sockets(**settings) as broker:
        sent: list[Buffer] = []
        subscribers = [await broker.client() for _ in range(3)]
        for subscriber, ack in zip(subscribers, ("auto", "client-individual", "client"), strict=True):
            await subscriber.subscribe(ack=ack)
            keep_what_is_sent(subscriber, sent)
        publisher = await broker.client()
        body = bytes(64 * 1024)

        await publisher.publish(body)

        for subscriber in subscribers:
            assert (await subscriber.next_message()).body == body
        large = [part for part in sent if len(part) > len(body)]
        assert len(large) == 3
        assert len({id(part) for part in large}) == 1, "rendering, or the outbox, has copied it"


def keep_what_is_sent(client: Client, sent: list[Buffer]) -> None:
    """Without copying it."""
    send_now = client.session.outbox.send_now
    assert send_now is not None

    def send(*parts: Buffer) -> int:
        sent.extend(parts)
        return send_now(*parts)

    client.session.outbox.send_now = send


async def test_a_body_of_four_mebibytes_is_received_with_few_calls() -> None:
    """On a stream that has all of it at once, as a kernel with large buffers."""
    async with running_broker() as broker, trio.open_nursery() as nursery:
        client, asked = await connected(broker, nursery)

        await client.publish(bytes(4 * MIB), receipt="r")
        await client.expect_receipt("r")

        await wait_all_tasks_blocked()
        assert len(asked) <= 7
        assert asked[-1] <= 256 * 1024, "nobody waits for the next bytes with a larger buffer"
        nursery.cancel_scope.cancel()


async def test_sixteen_bodies_of_64_kibibytes_are_received_and_sent_together() -> None:
    """On a stream that always has more, as a kernel when the broker is what all wait for."""
    count = 160
    async with running_broker() as broker, trio.open_nursery() as nursery:
        publisher, asked = await connected(broker, nursery)
        subscriber = await broker.subscriber()
        before = broker.registry.ready.wake_ups

        await publisher.send_raw(publisher.frame("SEND", bytes(64 * 1024), destination="/topic/a") * count)
        assert [len(message.body) for message in await subscriber.next_messages(count)] == [64 * 1024] * count

        await wait_all_tasks_blocked()
        assert len(asked) < count / 16 + 8
        assert broker.registry.ready.wake_ups == before
        nursery.cancel_scope.cancel()


async def connected(broker: BrokerUnderTest, nursery: trio.Nursery) -> tuple[Client, list[int]]:
    """The first client, and how much its transport is asked for from now on."""
    ours, theirs = memory_stream_pair()
    asked: list[int] = []
    nursery.start_soon(broker.parts.serve_connection, AskedTransport(theirs, asked))
    await wait_all_tasks_blocked()
    (session,) = broker.parts.sessions.values()
    client = Client(ours, session, patience_s=HARD_TIMEOUT_S)
    await client.connect(Version.V1_2)
    asked.clear()
    return client, asked


@final
class AskedTransport(StreamTransport):
    """Knows how much was asked for."""

    def __init__(self, stream: trio.abc.Stream, asked: list[int]) -> None:
        super().__init__(stream, "memory")
        self._asked = asked

    async def receive_some(self, max_bytes: int) -> bytes:
        self._asked.append(max_bytes)
        return await super().receive_some(max_bytes)


# Into the store ------------------------------------------------------------------------------------------------------


async def pass_one(publisher: Client, subscriber: Client) -> None:
    await publisher.publish(b"x", receipt="r")
    await publisher.expect_receipt("r")
    await subscriber.send("ACK", id=(await subscriber.next_message()).headers["ack"])
    await wait_all_tasks_blocked()


async def test_a_durable_message_with_receipt_and_acknowledgement_wakes_the_journal_twice(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """For the unit, and by the answer of the writing process. The acknowledgement waits for others."""
    with begun_writing_process() as writing:
        async with on_sockets(store_in=store_directory, writing=writing) as broker:
            subscriber, publisher = await broker.client(client_id="me"), await broker.client()
            await subscriber.subscribe(durable_subscription_name="orders", ack="client-individual")
            await wait_all_tasks_blocked()
            before = broker.under_test.journal.batches

            with counted_steps() as steps:
                for _ in range(MESSAGES):
                    await pass_one(publisher, subscriber)

            assert broker.under_test.journal.batches - before == MESSAGES
            assert steps_of(steps, JOURNAL) == 2 * MESSAGES
            assert steps_of(steps, DISTRIBUTOR) == steps_of(steps, WRITER) == 0


async def test_a_durable_message_with_receipt_and_acknowledgement_is_few_calls(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """Hot, each takes 0.1 µs; but between two lone messages others use the caches, and then it is 0.4."""
    with begun_writing_process() as writing:
        async with on_sockets(store_in=store_directory, writing=writing) as broker:
            subscriber, publisher = await broker.client(client_id="me"), await broker.client()
            await subscriber.subscribe(durable_subscription_name="orders", ack="client-individual")
            await pass_one(publisher, subscriber)

            with counted_calls() as calls:
                for _ in range(MESSAGES):
                    await pass_one(publisher, subscriber)

            assert calls["Clock.now_ns"] / MESSAGES < 11
            assert calls.total() / MESSAGES < 565


async def test_a_message_whose_acknowledgement_waits_for_others_is_six_statements(
    store_directory: Path, mock_clock: MockClock
) -> None:
    with statements_written() as statements:
        async with on_sockets(store_in=store_directory, ledger=False) as broker:
            subscriber, publisher = await broker.client(client_id="me"), await broker.client()
            await subscriber.subscribe(durable_subscription_name="orders", ack="client-individual")
            batches, before = broker.under_test.journal.batches, len(statements)

            for _ in range(MESSAGES):
                await pass_one(publisher, subscriber)

            assert broker.under_test.journal.batches - batches == MESSAGES
            # Begin, fence, topic, message, free pages, commit.
            assert (len(statements) - before) / MESSAGES == 6


async def test_a_thousand_stored_messages_cost_few_batches_and_statements(
    store_directory: Path, mock_clock: MockClock
) -> None:
    with statements_written() as statements:
        async with on_sockets(store_in=store_directory, ledger=False) as broker:
            subscriber, publisher = await broker.client(client_id="me"), await broker.client()
            await subscriber.subscribe(durable_subscription_name="orders", ack="auto")
            chunk = publisher.frame("SEND", b"x" * 256, destination="/topic/a") * 500
            batches, before = broker.under_test.journal.batches, len(statements)

            for _ in range(10):
                await publisher.send_raw(chunk)
                await subscriber.next_messages(500)

            assert (broker.under_test.journal.batches - batches) / 5 < 8
            assert (len(statements) - before) / 5 < 70


async def test_only_what_is_not_answered_is_acknowledged_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    unanswered: list[int] = []
    monkeypatch.setattr(
        TcpTransport, "note_unanswered", lambda _, received_bytes, __: unanswered.append(received_bytes)
    )
    async with on_sockets() as broker:
        client = await broker.client()
        await client.subscribe()
        assert unanswered == []

        subscribe = client.frame("SUBSCRIBE", id="1", destination="/topic/b")
        await client.send_raw(subscribe)
        await wait_all_tasks_blocked()
        await client.publish(b"x", destination="/topic/b")
        assert (await client.next_message()).body == b"x"

        assert unanswered == [len(subscribe)]


async def test_what_will_get_a_receipt_is_not_acknowledged_without_data(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    unanswered: list[int] = []
    monkeypatch.setattr(
        TcpTransport, "note_unanswered", lambda _, received_bytes, __: unanswered.append(received_bytes)
    )
    async with on_sockets(store_in=store_directory) as broker:
        subscriber, publisher = await broker.client(client_id="me"), await broker.client()
        await subscriber.subscribe(durable_subscription_name="orders")
        unanswered.clear()

        await publisher.publish(b"x", receipt="r")
        await publisher.expect_receipt("r")
        assert unanswered == []

        without = publisher.frame("SEND", b"x", destination="/topic/a")
        await publisher.send_raw(without)
        await subscriber.next_messages(2)
        assert unanswered == [len(without)]
