"""A client that does not read what it is owed cannot make the broker keep ever more of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from trio.testing import memory_stream_one_way_pair, memory_stream_pump, wait_all_tasks_blocked

from stompbroker.transport import StreamTransport

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest


async def test_a_client_that_does_not_read_its_receipts_is_not_read_on(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    to_broker, broker_reads = memory_stream_one_way_pair()
    broker_writes, from_broker = memory_stream_one_way_pair()
    can_write = trio.Event()

    async def wait_until_read() -> None:
        await can_write.wait()

    # A network that takes nothing until it is told to.
    broker_writes.send_all_hook = wait_until_read
    broker_writes.close_hook = None
    from_broker.close_hook = None

    async with trio.open_nursery() as nursery:
        stream = trio.StapledStream(broker_writes, broker_reads)
        nursery.start_soon(broker.parts.serve_connection, StreamTransport(stream, "does not read"))
        await to_broker.send_all(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        for _ in range(200):
            frames = [b"SEND\ndestination:/topic/a\nreceipt:%b\n\n\0" % (b"r" * 200) for _ in range(100)]
            await to_broker.send_all(b"".join(frames))
        await wait_all_tasks_blocked()
        (session,) = broker.parts.sessions.values()

        assert not session.wants_more
        assert 512 * 1024 <= session.outbox.size_bytes < 1024 * 1024
        assert broker.registry.topics["a"].published < 20_000

        can_write.set()
        while broker.registry.topics["a"].published < 20_000:
            memory_stream_pump(broker_writes, from_broker)
            await wait_all_tasks_blocked()
        assert session.wants_more
        nursery.cancel_scope.cancel()
