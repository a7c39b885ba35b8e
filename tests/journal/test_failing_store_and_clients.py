"""What clients notice of a failing store, and what they do not."""

from __future__ import annotations

import sqlite3
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from stompbroker import broker as composition
from stompbroker.config import Settings
from stompbroker.errors import OperatorError
from stompbroker.storage import open_store
from tests.journal.broker_on_store import broker_on
from tests.journal.journal_under_test import until
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stompbroker.broker import Broker
    from tests.journal.broker_on_store import BrokerOnStore


@contextmanager
def locked(data: Path) -> Iterator[sqlite3.Connection]:
    """Another process holds the file until it rolls back."""
    with closing(sqlite3.connect(data / "stompbroker.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other


async def failing(broker: BrokerOnStore) -> None:
    """The store fails, and that has been noticed: somebody has published."""
    publisher = await broker.client()
    await publisher.publish(b"the first to wait")
    await until(lambda: broker.journal.statistics().state.value == "failing")


async def test_publishers_to_stored_topics_are_held_back_and_go_on_by_themselves(data: Path) -> None:
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber()
        publisher = await broker.client()
        with locked(data) as other:
            await failing(broker)
            for number in range(10):
                await publisher.publish(b"%d" % number, receipt=str(number))
            await wait_all_tasks_blocked()

            assert publisher.session.is_held_back
            assert b"RECEIPT" not in publisher.received
            other.execute("ROLLBACK")

            for number in range(10):
                await publisher.expect_receipt(str(number))
        bodies = [message.body for message in await subscriber.next_messages(11)]
        assert bodies == [b"the first to wait", *(b"%d" % number for number in range(10))]
        assert not publisher.session.is_held_back


async def test_topics_in_memory_go_on(data: Path) -> None:
    async with broker_on(data) as broker:
        await broker.durable_subscriber()
        transient = await broker.subscriber("/topic/transient")
        publisher = await broker.client()
        with locked(data) as other:
            await failing(broker)

            for number in range(10):
                await publisher.publish(b"%d" % number, destination="/topic/transient", receipt=str(number))
                await publisher.expect_receipt(str(number))
                assert (await transient.next_message()).body == b"%d" % number

            assert broker.journal.statistics().state.value == "failing"
            other.execute("ROLLBACK")
            await until(lambda: broker.journal.statistics().state.value == "ok")


async def test_acknowledgements_with_a_receipt_count_and_their_receipts_wait(data: Path) -> None:
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="1")
        publisher = await broker.client()
        await publisher.publish(b"one", b"two")
        message = await subscriber.next_message()
        with locked(data) as other:
            await failing(broker)

            await subscriber.send("ACK", id=message.headers["ack"], receipt="acknowledged")
            assert (await subscriber.next_message()).body == b"two", "the credit is free again"

            assert b"receipt-id:acknowledged" not in subscriber.received
            other.execute("ROLLBACK")
            await subscriber.expect_receipt("acknowledged")
        assert broker.look("SELECT ack_floor FROM cursors")[0][0] >= 1


async def test_a_durable_subscribe_waits_and_gets_what_was_published_behind_it(data: Path) -> None:
    async with broker_on(data) as broker:
        await broker.durable_subscriber("/topic/other", client_id="other")
        client = await broker.client(client_id="client")
        with locked(data) as other:
            publisher = await broker.client()
            await publisher.publish(b"x", destination="/topic/other")
            await until(lambda: broker.journal.statistics().state.value == "failing")
            headers = {"durable-subscription-name": "durable"}
            await client.send("SUBSCRIBE", id="0", destination="/topic/a", receipt="subscribed", **headers)
            await publisher.publish(b"one", destination="/topic/a")
            await wait_all_tasks_blocked()

            assert b"RECEIPT" not in client.received
            other.execute("ROLLBACK")

            await client.expect_receipt("subscribed")
        assert (await client.next_message()).body == b"one"


async def test_a_reader_behind_the_window_goes_on_while_nothing_can_be_written(data: Path) -> None:
    async with broker_on(data) as broker:
        first = await broker.durable_subscriber()
        await first.vanish()
        publisher = await broker.client()
        await publisher.publish(*(b"%d" % number for number in range(2499)))
        await publisher.publish(b"2499", receipt="published")
        await publisher.expect_receipt("published")
        with locked(data) as other:
            await failing(broker)

            returned = await broker.durable_subscriber(prefetch_count="5000")
            bodies = [message.body for message in await returned.next_messages(2500)]

            assert bodies == [b"%d" % number for number in range(2500)]
            assert broker.store.pages_read >= 3
            assert broker.journal.statistics().state.value == "failing"
            other.execute("ROLLBACK")
            assert (await returned.next_message()).body == b"the first to wait"


async def test_the_statistics_an_operator_asks_for_say_what_is_the_matter(data: Path) -> None:
    async with broker_on(data) as broker:
        await broker.durable_subscriber()
        with locked(data) as other:
            await failing(broker)

            store = (await broker.parts.control.call("overview", {}))["store"]

            assert store["engine"] == "sqlite"
            assert store["state"] == "failing"
            assert "locked" in store["reason"]
            assert store["since"]
            other.execute("ROLLBACK")
            await until(lambda: broker.journal.statistics().state.value == "ok")
        store = (await broker.parts.control.call("overview", {}))["store"]
        assert (store["reason"], store["since"]) == (None, None)


async def test_a_client_whose_answer_was_lost_gets_one_receipt_and_the_subscriber_one_message(data: Path) -> None:
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber()
        publisher = await broker.client()
        broker.store.lost_answers = 1

        await publisher.publish(b"one", receipt="one")
        await publisher.expect_receipt("one")
        await publisher.publish(b"two", receipt="two")
        await publisher.expect_receipt("two")

        assert [message.body for message in await subscriber.next_messages(2)] == [b"one", b"two"]
        assert broker.look("SELECT count(*) FROM messages") == [(2,)]


# The end -------------------------------------------------------------------------------------------------------------


async def start_broker(data: Path, nursery: trio.Nursery, *, shutdown_grace_s: float = 1.0) -> Broker:
    """A whole broker with sockets, as `serve` runs it."""
    settings = Settings(data=data, port=0, http_port=0, min_free_bytes=0, shutdown_grace_s=shutdown_grace_s)
    broker: Broker = await nursery.start(composition.run, settings)
    return broker


async def test_a_broker_whose_store_is_taken_ends_with_an_operator_error(data: Path) -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(OperatorError, match="the intruder"), allow_unwrapped=True, flatten_subgroups=True
    ):
        with trio.fail_after(HARD_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                broker = await start_broker(data, nursery)
                intruder = open_store("", data)
                intruder.take_ownership("the intruder")
                intruder.close()
                subscribe = b"SUBSCRIBE\nid:0\ndestination:/topic/a\ndurable-subscription-name:d\nack:client\n\n\0"
                async with await trio.open_tcp_stream(broker.endpoints[0].host, broker.endpoints[0].port) as stream:
                    await stream.send_all(b"CONNECT\naccept-version:1.2\nhost:h\nclient-id:c\n\n\0" + subscribe)
                    await trio.sleep_forever()


async def stopped_while_failing(data: Path, grace_s: float) -> tuple[float, bytes]:
    """How long it takes a broker to stop that has something to write and cannot; and what another client was told."""
    with trio.fail_after(HARD_TIMEOUT_S):
        async with AsyncExitStack() as resources:
            nursery = await resources.enter_async_context(trio.open_nursery())
            broker = await start_broker(data, nursery, shutdown_grace_s=grace_s)
            stream = await resources.enter_async_context(
                await trio.open_tcp_stream(broker.endpoints[0].host, broker.endpoints[0].port)
            )
            bystander = await resources.enter_async_context(
                await trio.open_tcp_stream(broker.endpoints[0].host, broker.endpoints[0].port)
            )
            connect = b"CONNECT\naccept-version:1.2\nhost:h\nclient-id:c\n\n\0"
            subscribe = b"SUBSCRIBE\nid:0\ndestination:/topic/a\ndurable-subscription-name:d\nreceipt:s\n\n\0"
            await bystander.send_all(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
            await stream.send_all(connect + subscribe)
            received = b""
            while b"receipt-id:s" not in received:
                received += await stream.receive_some()
            with locked(data):
                await stream.send_all(b"SEND\ndestination:/topic/a\nreceipt:r\n\none\0")
                await until(lambda: broker.journal.statistics().state.value == "failing")
                began_at = trio.current_time()
                broker.stop.set()
                await broker.stopped.wait()
                took_s = trio.current_time() - began_at
                said = b""
                with suppress(trio.BrokenResourceError):
                    while chunk := await bystander.receive_some():
                        said += chunk
    return took_s, said


async def test_a_broker_that_cannot_write_stops_within_its_grace_and_says_so(data: Path) -> None:
    with capture_logs() as logged:
        took_s, _ = await stopped_while_failing(data, 0.3)

    assert took_s < 3 * 0.3 + 1.0, "one for the clients, one for the journal"
    assert any("did not take" in entry["event"] for entry in logged)


async def test_a_broker_that_cannot_write_tells_its_clients_that_it_stops(data: Path) -> None:
    _, said = await stopped_while_failing(data, 0.3)

    assert b"ERROR" in said
    assert b"shutting down" in said
