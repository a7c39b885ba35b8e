"""Makes `store_before_queues.db.gz`: a store as the release before queues left it (commit 802706d, revision 0005).

It runs with the code of that commit, in a checkout of it, and writes beside itself:

    git worktree add ../before-queues 802706d && cd ../before-queues
    PYTHONPATH=. python PATH/TO/tests/migrations/make_store_before_queues.py

What it leaves is listed in `test_store_before_queues.py`.
"""

from __future__ import annotations

import gzip
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from tests.support.broker_under_test import BrokerUnderTest

TARGET = Path(__file__).with_name("store_before_queues.db.gz")
TOPICS = [{"pattern": "kept", "retain_messages": 100}]


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


async def fill(broker: BrokerUnderTest) -> None:
    orders = await broker.durable_subscriber(prefetch_count="20", redelivery_delay="60000", max_attempts="5")
    strict = await broker.client(client_id="strict")
    await strict.subscribe(
        "/topic/a", durable_subscription_name="strict", ack="client", ordering="strict", no_local="true"
    )
    addressed = await broker.client()
    await addressed.subscribe("/topic/a.>", id="everything", durable="true", ack="client-individual")
    named = await broker.client()
    await named.subscribe("/topic/a.b", x_queue_name="queue-like", ack="auto")
    await broker.store_messages(*numbered(0, 30))
    await broker.store_messages(b"only for those who are there", persistent="false")
    await broker.store_messages(*numbered(30, 60))
    await broker.store_messages(*numbered(0, 5), destination="/topic/a.b", price="10:20")

    got = await orders.next_messages(20)
    for message in got[:10:2]:
        await orders.send("ACK", id=message.headers["ack"])
    await orders.send("NACK", id=got[1].headers["ack"], reason="no paper", delay="600000")
    await orders.send("NACK", id=got[3].headers["ack"], reason="unreadable", requeue="false")
    await broker.settle()
    for subscriber in (orders, strict, addressed, named):
        await subscriber.vanish()
    await broker.store_messages(*numbered(5, 8), destination="/topic/a.b")
    await broker.store_messages(*numbered(0, 7), destination="/topic/kept")
    await broker.store_messages(b"late", destination="/topic/a", ttl="4102444800000")


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with running_broker(store_in=Path(directory), topics=TOPICS) as broker:
            await fill(broker)
            await broker.settle()
        database = Path(directory) / "stompbroker.db"
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        TARGET.write_bytes(gzip.compress(database.read_bytes(), 9, mtime=0))
    print(TARGET, TARGET.stat().st_size, "bytes")


if __name__ == "__main__":
    trio.run(main)
