"""A store that the release before queues has left opens with today's code, whole; and then holds queues and groups.

`store_before_queues.db.gz` was made by commit 802706d, with `make_store_before_queues.py`. It holds, each of it closed
while there was more to do:

    billing/orders       /topic/a    acknowledged: five of the first ten; one refused, one dead, one lost; own wishes
    strict/strict        /topic/a    in strict order, behind its first message; no-local
    everything @ a.>     /topic/a.>  unread but for what was in flight
    queue-like           /topic/a.b  three unread; known by x-queue-name, in auto mode
    /topic/a                         61 messages, and a gap where one was not stored
    /topic/kept                      7 retained messages, nobody's
    /topic/DLQ.a                     a dead letter
    the ledger                       eleven records
"""

from __future__ import annotations

import gzip
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from alembic import command
from sqlalchemy import MetaData, create_engine

from stompbroker.ledger import Kind
from stompbroker.storage import migrate, opening
from tests.ledger.records import unpack_one
from tests.migrations.make_store_before_queues import TARGET, TOPICS, numbered
from tests.migrations.test_migrations import run
from tests.storage.place import Place
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest, Client

#: What /topic/a holds: at offset 30 nothing is stored.
IN_A = [*numbered(0, 60), b"late"]
IN_A_B = numbered(0, 8)
#: The last revision that commit knew.
REVISION = "0005"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The store as it was left, migrated as each engine wants it."""
    directory = tmp_path / "data"
    directory.mkdir()
    left = tmp_path / "left.db" if request.param == "postgresql" else directory / "stompbroker.db"
    left.write_bytes(gzip.decompress(TARGET.read_bytes()))
    url = "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    if url:
        copy_rows(left, url, directory)
        migrate(url, directory)
    with ExitStack() as opened:
        yield Place(url, directory, opened)


def copy_rows(left: Path, url: str, directory: Path) -> None:
    """As that commit would have left them in the other engine, whose tables it made by the same steps."""
    engine, _ = opening._engine(url, directory, migrates=True)
    run(engine, command.upgrade, REVISION)
    source = create_engine(f"sqlite:///{left}")
    tables = MetaData()
    tables.reflect(engine)
    with source.connect() as reading, engine.begin() as writing:
        for table in tables.sorted_tables:
            if table.name != "alembic_version":
                writing.execute(table.delete())
                rows = [dict(row._mapping) for row in reading.execute(table.select())]
                if rows:
                    writing.execute(table.insert(), rows)
    source.dispose()
    engine.dispose()


def records(place: Place) -> set[tuple[str, str, int, str]]:
    """Of deliveries, in the store and in the lake."""
    batches = place.query(f"SELECT payload FROM ledger_batches WHERE kind = '{Kind.DELIVERIES.value}'")
    tables = [unpack_one(Kind.DELIVERIES, bytes(payload)) for (payload,) in batches]
    files = (place.directory / "lake").rglob("*.parquet")
    tables += [pq.ParquetFile(file).read() for file in files if "deliveries" in str(file)]
    rows = [row for table in tables for row in table.to_pylist()]
    return {(row["topic"], row["subscription"], row["offset"], row["outcome"]) for row in rows}


def running(place: Place) -> Any:
    database = {"database": place.database} if place.database else {}
    # The letter is as old as the file: it must not expire.
    return running_broker(store_in=place.directory, topics=TOPICS, dead_letter_retain_s=0, **database)


async def take(client: Client, count: int) -> list[tuple[bytes, str, str | None]]:
    """Acknowledged one by one: bodies, with which delivery it was, and why there was one before."""
    taken = []
    for _ in range(count):
        message = await client.next_message()
        await client.send("ACK", id=message.headers["ack"])
        taken.append((message.body, message.headers["delivery-count"], message.headers.get("redelivery-reason")))
    await client.sync()
    return taken


async def expect_everything(broker: BrokerUnderTest) -> None:
    lost = "the connection was lost"
    orders = await broker.durable_subscriber(prefetch_count="1", redelivery_delay="60000", max_attempts="5")
    got = await take(orders, 55)
    assert sorted(body for body, _, _ in got) == sorted({*IN_A} - {b"0", b"2", b"3", b"4", b"6", b"8"})
    again = {body: (count, reason) for body, count, reason in got if count != "1"}
    assert again == {b"1": ("2", "no paper"), b"5": ("2", lost)}

    strict = await broker.client(client_id="strict")
    await strict.subscribe("/topic/a", durable_subscription_name="strict", ack="client", ordering="strict")
    got = await take(strict, len(IN_A))
    assert [body for body, _, _ in got] == IN_A
    assert got[0] == (b"0", "2", lost)

    everything = await broker.client()
    await everything.subscribe("/topic/a.>", id="everything", durable="true", ack="client-individual")
    got = await take(everything, len(IN_A) + len(IN_A_B))
    assert sorted(body for body, _, _ in got) == sorted([*IN_A, *IN_A_B])

    named = await broker.client()
    await named.subscribe("/topic/a.b", x_queue_name="queue-like", ack="auto")
    messages = await named.next_messages(3)
    assert [message.body for message in messages] == IN_A_B[5:]

    late = await broker.client()
    await late.subscribe("/topic/kept", **{"from": "earliest"})
    assert await late.next_bodies(7) == numbered(0, 7)

    call = broker.parts.control.call
    (letter,) = (await call("dead_letters", {"topic": "a"}))["letters"]
    assert letter["reason"] == "unreadable"
    assert (await call("redrive_dead_letters", {"topic": "a"}))["redriven"] == 1
    assert [body for body, _, _ in await take(orders, 1)] == [b"3"]
    await broker.expect_silence(orders, strict, everything, named, late)
    await orders.vanish()


async def test_nothing_is_lost_and_queues_and_groups_are_made_beside_it(place: Place) -> None:
    before = records(place)
    assert len(before) == 11

    async with running(place) as broker:
        await expect_everything(broker)
        await broker.store_messages(*numbered(0, 3), destination="/queue/a")
        member = await broker.subscriber("/topic/a", group="invoices", ack="client-individual")
        await member.vanish()
        await broker.store_messages(*numbered(0, 3), destination="/topic/a")
        await broker.settle()
    assert before <= records(place)

    async with running(place) as broker:
        keys = sorted(one.key for one in broker.registry.subscriptions)
        assert keys == [
            "/queue-like",
            "/queue/a",
            "billing/orders",
            "everything @ a.>",
            "group:invoices @ a",
            "strict/strict",
        ]
        consumer = await broker.subscriber("/queue/a", ack="client-individual")
        member = await broker.subscriber("/topic/a", group="invoices", ack="client-individual")
        orders = await broker.durable_subscriber()
        for client in (consumer, member, orders):
            assert [body for body, _, _ in await take(client, 3)] == numbered(0, 3)
        await broker.expect_silence(consumer, member, orders)
    assert before <= records(place)
