"""Kills during acknowledging and exporting, and what the ledger has afterwards.

One durable subscriber acknowledges in portions, each with a receipt, and some more without. Files are exported every
second and on request, so kills meet the ledger in every state: between commit and receipt, and with files planned,
being written, written and deleted from the database. At the end the lake and the unexported records must hold every
confirmed delivery once, and none that was not answered.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow.parquet as pq

from stompbroker.ledger import Kind
from stompbroker.ledger.payload import unpack
from tests.end_to_end.raw_client import RawClient, frame, send_frame
from tests.support.prepared_process import PYTHON, PreparedProcess, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stompbroker.stomp import Frame
    from tests.support.broker_process import BrokerProcess

#: Settings of the broker.
SETTINGS: Final[dict[str, Any]] = {"lake_export_interval_s": 1, "redelivery_first_delay_ms": 0}

_TOPIC: Final = "/topic/orders"
_CLIENT_ID: Final = "billing"
_PUBLISHED_PER_KILL: Final = 300
#: Portions confirmed before a kill, messages in each, and messages acknowledged without waiting.
_MOST_PORTIONS, _MOST_IN_PORTION, _UNCONFIRMED = 6, 40, 20
_EXPORTS: Final = 0.3


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOutcome:
    kills: int
    #: Ids of deliveries with a confirmed ACK, and of all acknowledged ones.
    confirmed: frozenset[str]
    answered: frozenset[str]
    in_lake: tuple[str, ...]
    in_database: tuple[str, ...]

    def complaints(self) -> list[str]:
        counts = Counter((*self.in_lake, *self.in_database))
        doubled = [id for id, count in counts.items() if count > 1]
        found = {
            "DOUBLED: more than one record of": doubled,
            "MISSING: confirmed, and no record of": sorted(self.confirmed - counts.keys()),
            "INVENTED: a record, and no answer to": sorted(counts.keys() - self.answered),
        }
        return [f"{what} {len(ids)} deliveries, {ids[0]} for instance" for what, ids in found.items() if ids]


def run_ledger(
    broker: BrokerProcess, *, kills: int, seed: int, show: Callable[[str], None] = lambda _text: None
) -> LedgerOutcome:
    """Needs a running broker on an embedded database, and kills it at the end."""
    chance = random.Random(seed)
    confirmed: set[str] = set()
    answered: set[str] = set()
    exports: list[subprocess.Popen[bytes]] = []
    _subscriber(broker).close()
    for number in range(1, kills + 1):
        show(f"kill {number} of {kills}: {len(confirmed):,} confirmed ACKs, {len(exports)} exports asked for")
        _publish(broker)
        with _subscriber(broker) as subscriber:
            inbox: list[Frame] = []
            for _ in range(chance.randrange(1, _MOST_PORTIONS)):
                count = chance.randrange(1, _MOST_IN_PORTION)
                inbox += _next_of(subscriber, count - len(inbox))
                portion, inbox = inbox[:count], inbox[count:]
                answered.update(_ids(portion))
                if chance.random() < _EXPORTS:
                    exports.append(_ask_for_export(broker))
                inbox += _acknowledge(subscriber, portion)
                confirmed.update(_ids(portion))
            inbox += _next_of(subscriber, _UNCONFIRMED - len(inbox))
            answered.update(_ids(inbox))
            subscriber.send_raw(b"".join(frame("ACK", id=message.headers["ack"]) for message in inbox))
            broker.kill()
        for process in exports:
            process.wait()  # one that found the broker gone exports by itself, and holds the data directory
        broker.restart()
    broker.kill()
    for process in exports:
        process.wait()
    return LedgerOutcome(
        kills=kills + 1,
        confirmed=frozenset(confirmed),
        answered=frozenset(answered),
        in_lake=tuple(in_lake(broker.data)),
        in_database=tuple(in_database(broker.data)),
    )


# Its clients ----------------------------------------------------------------------------------------------------------


def _subscriber(broker: BrokerProcess) -> RawClient:
    client = RawClient.connected(broker.address, client_id=_CLIENT_ID)
    client.subscribe(_TOPIC, durable_subscription_name="orders", ack="client-individual")
    return client


def _publish(broker: BrokerProcess) -> None:
    with RawClient.connected(broker.address) as publisher:
        publisher.send_raw(send_frame(_TOPIC, b"order") * (_PUBLISHED_PER_KILL - 1))
        publisher.send_raw(send_frame(_TOPIC, b"order", receipt="published"))
        publisher.expect_receipt("published")


def _acknowledge(client: RawClient, messages: list[Frame]) -> list[Frame]:
    """Acknowledge and wait until it is on disk; returns the messages that arrived meanwhile."""
    client.send_raw(b"".join(frame("ACK", id=message.headers["ack"]) for message in messages[:-1]))
    client.send_raw(frame("ACK", id=messages[-1].headers["ack"], receipt="kept"))
    came = []
    while (received := client.next_frame()).command == "MESSAGE":
        came.append(received)
    assert (received.command, received.headers) == ("RECEIPT", {"receipt-id": "kept"})
    return came


def _next_of(client: RawClient, count: int) -> list[Frame]:
    return [client.next_message() for _ in range(count)]


def _ids(messages: list[Frame]) -> set[str]:
    return {message.headers["message-id"] for message in messages}


def _ask_for_export(broker: BrokerProcess) -> subprocess.Popen[bytes]:
    """Ask for an export without waiting for it."""
    command = [*PYTHON, "-m", "stompbroker", "ledger", "export", "--data", str(broker.data)]
    return PreparedProcess(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())


# What is left ---------------------------------------------------------------------------------------------------------


def in_lake(data: Path) -> list[str]:
    return [row["message_id"] for row in records_in_lake(data)]


def in_database(data: Path) -> list[str]:
    return [row["message_id"] for row in records_in_database(data)]


def records_in_lake(data: Path) -> Iterator[dict[str, Any]]:
    for file in (data / "lake" / "deliveries").glob("dt=*/[!.]*.parquet"):
        yield from pq.ParquetFile(file).read().to_pylist()


def records_in_database(data: Path) -> Iterator[dict[str, Any]]:
    """Those that are in no file."""
    with closing(sqlite3.connect(data / "stompbroker.db")) as database:
        exports = database.execute("SELECT name, day, after_batch, last_batch FROM ledger_exports").fetchall()
        batches = database.execute("SELECT id, day, payload FROM ledger_batches WHERE kind = 'deliveries'").fetchall()
    in_files = [export[1:] for export in exports if any((data / "lake" / "deliveries").glob(f"dt=*/{export[0]}"))]
    for number, day, payload in batches:
        if not any(day == file_day and after < number <= last for file_day, after, last in in_files):
            for records in unpack(Kind.DELIVERIES, [(number, payload)]):
                yield from records.to_pylist()
