"""Random valid frames from many connections, to a broker in the same process whose invariants are checked all the time.

Only the broker's sockets are replaced, by memory streams. A run ends with the first fault: an unexpected ERROR, a
connection that the broker closes, a broken invariant, a traceback. At the end every message with a receipt must have
been delivered and have one ledger record per auditor.
"""

from __future__ import annotations

import random
import sqlite3
import time
import traceback
from collections import Counter
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow.parquet as pq
import structlog
import trio
from trio.testing import memory_stream_pair

from soak.wild_client import AUDITORS, Seen, WildClient
from stompbroker.broker import Broker, opened_store
from stompbroker.config import Settings
from stompbroker.journal import StoreJournal
from stompbroker.ledger import Kind
from stompbroker.ledger.payload import unpack
from stompbroker.stomp import Version
from stompbroker.transport import StreamTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
    from pathlib import Path

    from stompbroker.delivery import Subscription

CONNECTIONS: Final = 20
#: Seconds between two checks of all invariants, and at least this multiple of the time that a check takes.
_CHECK_S: Final = 1.0
_CHECK_PAUSES: Final = 2
#: Seconds without an answer after which the broker counts as stuck.
_PATIENCE_S: Final = 60.0
_MOST_FRAMES_AT_ONCE: Final = 60
#: Probabilities of the ways in which a connection ends after a chunk.
_PARTS, _VANISHES = 0.01, 0.01

#: The columns that the verdict needs.
_READ_COLUMNS: Final = ("client_id", "subscription_name", "message_id", "weight")

_SETTINGS: Final[dict[str, Any]] = {
    "redelivery_first_delay_ms": 5,
    "redelivery_max_delay_ms": 100,
    "max_attempts": 5,
    # A client that waits for receipts acknowledges nothing. If it fills the window itself, it waits for itself and is
    # disconnected after this time, as documented.
    "block_timeout_s": 1.0,
    "lake_export_interval_s": 86_400,
    "topics": [{"pattern": "chaos.kept", "retain_messages": 500}],
}


@final
class Wrong(Exception):
    """The broker broke a rule."""


@final
@dataclass(slots=True, kw_only=True)
class ChaosOutcome:
    seen: Seen
    checks: int = 0
    elapsed_s: float = 0.0
    complaints: list[str] = field(default_factory=list)


async def run_chaos(
    directory: Path, *, frames: int, seed: int, show: Callable[[str], None] = lambda _text: None
) -> ChaosOutcome:
    outcome = ChaosOutcome(seen=Seen())
    started_at = time.monotonic()
    with _tracebacks_seen(outcome.complaints):
        try:
            await _run(directory, frames, seed, outcome, show)
        except* Wrong as wrong:
            outcome.complaints += [str(each) for each in _leaves(wrong)]
        except* AssertionError as broken:
            outcome.complaints += [f"INVARIANT: {_told(each)}" for each in _leaves(broken)]
        except* Exception as failure:
            outcome.complaints += [f"TRACEBACK: {_told(each)}" for each in _leaves(failure)]
    outcome.elapsed_s = time.monotonic() - started_at
    return outcome


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    return [
        leaf
        for each in group.exceptions
        for leaf in (_leaves(each) if isinstance(each, BaseExceptionGroup) else [each])
    ]


@final
class _tracebacks_seen:  # noqa: N801 -- a context manager
    """Turns a logged traceback into a complaint; hides everything else."""

    def __init__(self, complaints: list[str]) -> None:
        self._complaints = complaints

    def __enter__(self) -> None:
        self._before = structlog.get_config()
        structlog.configure(processors=[self._note], cache_logger_on_first_use=False)

    def _note(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event.get("exc_info"):
            self._complaints.append(f"TRACEBACK: {event.get('event')}\n{traceback.format_exc()}")
        raise structlog.DropEvent

    def __exit__(self, *_: object) -> None:
        structlog.configure(**self._before)


async def _run(directory: Path, frames: int, seed: int, outcome: ChaosOutcome, show: Callable[[str], None]) -> None:
    settings = Settings(data=directory, **_SETTINGS)
    async with opened_store(settings) as opened, trio.open_nursery() as nursery:
        chaos = _Chaos(Broker(settings, opened), nursery, outcome)
        await chaos.broker.start_services(nursery)
        nursery.start_soon(chaos.check_again_and_again, show)
        for slot in range(AUDITORS):
            await chaos.drain(slot)
        async with trio.open_nursery() as clients:
            for slot in range(CONNECTIONS):
                clients.start_soon(chaos.run_client, slot, frames, random.Random(f"{seed}-{slot}"))
        for slot in range(AUDITORS):
            await chaos.drain(slot)
        await chaos.journal.wait_idle()
        chaos.check()
        outcome.complaints += _judge(outcome.seen, _records(directory))
        nursery.cancel_scope.cancel()


@final
class _Chaos:
    def __init__(self, broker: Broker, nursery: trio.Nursery, outcome: ChaosOutcome) -> None:
        self.broker = broker
        self._nursery = nursery
        self._outcome = outcome
        self._seen = outcome.seen

    @property
    def journal(self) -> StoreJournal:
        assert isinstance(self.broker.journal, StoreJournal)
        return self.broker.journal

    # Looking ---------------------------------------------------------------------------------------------------------

    async def check_again_and_again(self, show: Callable[[str], None]) -> None:
        took_s = 0.0
        while True:
            await trio.sleep(max(_CHECK_S, _CHECK_PAUSES * took_s))
            began_at_s = time.monotonic()
            self.check()
            took_s = time.monotonic() - began_at_s
            show(f"{self._seen.frames:,} frames, {self._seen.deliveries:,} deliveries, {self._outcome.checks} checks")
            if self._outcome.complaints:
                raise Wrong("stopped after the first complaint")

    def check(self) -> None:
        self.broker.registry.check_invariants()
        self.journal.check_invariants()
        for session in self.broker.sessions.values():
            session.check_invariants()
        self._outcome.checks += 1

    # Clients ---------------------------------------------------------------------------------------------------------

    async def run_client(self, slot: int, frames: int, chance: random.Random) -> None:
        client = WildClient(slot, chance, self._seen)
        while self._seen.frames < frames:
            version = chance.choice(tuple(Version))
            async with self._connected(client, version) as connection:
                while self._seen.frames < frames:
                    said = [client.say() for _ in range(chance.randrange(1, _MOST_FRAMES_AT_ONCE))]
                    await connection.send(b"".join(said) + client.ask_for_receipt())
                    await connection.wait_until(lambda: not client.owed)
                    ending = chance.random()
                    if connection.is_over or ending < _VANISHES:
                        break
                    if ending < _VANISHES + _PARTS:
                        await connection.send(client.part())
                        await connection.wait_until(lambda: not client.owed)
                        break

    async def drain(self, slot: int) -> None:
        """Let an auditor receive everything that is left for it."""
        client = WildClient(slot, random.Random(slot), self._seen)
        async with self._connected(client, Version.V1_2) as connection:
            await connection.send(client.subscribe_to_drain())
            await connection.wait_until(lambda: not client.owed)
            subscription = self._auditor(slot)
            with trio.move_on_after(_PATIENCE_S) as patience:
                while subscription.unsettled:
                    before = subscription.unsettled
                    await connection.send(client.acknowledge_all())
                    await trio.sleep(0.01)
                    if subscription.unsettled < before:
                        patience.deadline = trio.current_time() + _PATIENCE_S
            if subscription.unsettled:
                raise Wrong(f"STALLED: {subscription.unsettled:,} messages do not reach auditor {slot}")
            await connection.send(client.part())
            await connection.wait_until(lambda: not client.owed)

    def _auditor(self, slot: int) -> Subscription:
        (found,) = [
            subscription
            for identity, subscription in self.broker.registry.durable.items()
            if (identity.scope, identity.name) == (f"client-{slot}", "auditor")
        ]
        return found

    @asynccontextmanager
    async def _connected(self, client: WildClient, version: Version) -> AsyncIterator[_Connection]:
        """Disconnects without a word at the end of the block."""
        self._seen.connections += 1
        ours, theirs = memory_stream_pair()
        transport = StreamTransport(theirs, f"chaos {self._seen.connections}")
        self._nursery.start_soon(self.broker.serve_connection, transport)
        client.forget(version)
        connection = _Connection(client, ours)
        async with ours, trio.open_nursery() as nursery:
            nursery.start_soon(connection.read)
            await connection.connect()
            yield connection
            nursery.cancel_scope.cancel()


@final
class _Connection:
    """One connection of a client; reads all the time."""

    def __init__(self, client: WildClient, stream: trio.abc.Stream) -> None:
        self._client = client
        self._stream = stream
        self._has_come = trio.Event()
        self.is_over = False

    async def read(self) -> None:
        while chunk := bytes(await self._stream.receive_some()):
            self._client.take(chunk)
            self._tell()
        self.is_over = True
        self._tell()

    def _tell(self) -> None:
        self._has_come.set()
        self._has_come = trio.Event()

    async def connect(self) -> None:
        await self.send(self._client.greet())
        await self.wait_until(lambda: self._client.is_connected)

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError:
            await self.wait_until(lambda: False)  # raises the reason, once it is read

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Until the condition holds, or the broker has ended the connection for an expected reason."""
        with trio.move_on_after(_PATIENCE_S) as patience:
            while not is_so() and not self.is_over:
                await self._has_come.wait()
        client = self._client
        if client.error:
            raise Wrong(f"ERROR: client {client.slot}, {client.version.value}: {client.error}")
        if patience.cancelled_caught:
            raise Wrong(f"STALLED: client {client.slot} waits for {len(client.owed)} receipts")
        if self.is_over and client.error is None and not is_so():
            raise Wrong(f"CLOSED: client {client.slot}, {client.version.value}: without an ERROR")


# The verdict ---------------------------------------------------------------------------------------------------------


def _records(directory: Path) -> list[Counter[str | None]]:
    """For each auditor the number of records by message id; under None, the messages in records of ranges, which have
    no id."""
    found: list[Counter[str | None]] = [Counter() for _ in range(AUDITORS)]
    for table in _recorded(directory):
        columns = [table.column(name).to_pylist() for name in _READ_COLUMNS]
        for client_id, name, message_id, weight in zip(*columns, strict=True):
            if name == "auditor":
                found[int(client_id.removeprefix("client-"))][message_id] += weight
    return found


def _recorded(directory: Path) -> Iterator[Any]:
    """From the database and from the lake, where a day that ends during the run is exported to."""
    with closing(sqlite3.connect(directory / "stompbroker.db")) as database:
        left = [name for (name,) in database.execute("SELECT name FROM ledger_exports")]
        if left:
            raise Wrong(f"UNFINISHED: the export of {left[0]} is under way, so what it holds may be in both places")
        for (payload,) in database.execute("SELECT payload FROM ledger_batches WHERE kind = 'deliveries'"):
            yield from unpack(Kind.DELIVERIES, [(0, payload)])
    for file in (directory / "lake" / Kind.DELIVERIES.value).rglob("*.parquet"):
        yield pq.ParquetFile(file).read(columns=list(_READ_COLUMNS))


def _judge(seen: Seen, records: list[Counter[str | None]]) -> list[str]:
    came = {body: seen.message_ids[body] for body in seen.promised if body in seen.message_ids}
    found: dict[str, list[Any]] = {
        "LOST, a receipt and not delivered": sorted(seen.promised - came.keys()),
        "DOUBLED, more than one message id": [body for body, ids in came.items() if len(ids) > 1],
    }
    for slot, recorded in enumerate(records):
        missing = [body for body, ids in came.items() if not any(recorded[id] for id in ids)]
        # A message that was acknowledged after UNSUBSCRIBE may be in a record of a range.
        found[f"MISSING, no record for auditor {slot}"] = missing[recorded[None] :]
        found[f"RECORDED TWICE for auditor {slot}"] = [
            id for id, count in recorded.items() if id is not None and count > 1
        ]
    return [f"{what}: {len(which):,} messages, {which[0]!r:.60} for instance" for what, which in found.items() if which]
