"""A database for tests, and what the storage's tests put into it.

Law: knows the interface of `stompbroker.storage` and how to look at a database behind its back.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, final

import psycopg

from stompbroker.ids import Offset
from stompbroker.message import Message, Origin
from stompbroker.storage import (
    Batch,
    CursorRow,
    ExportRow,
    LedgerRow,
    MessageRun,
    RedeliveryRow,
    SubscriptionRow,
    TopicRow,
    open_store,
    opening,
)
from tests.support.messages import make_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from stompbroker.commitlog import Log
    from stompbroker.storage import Store


@final
class Place:
    """A database that is this test's alone."""

    def __init__(self, database: str, directory: Path, opened: ExitStack) -> None:
        self.database = database
        self.directory = directory
        self._opened = opened

    @property
    def is_sqlite(self) -> bool:
        return not self.database

    def open(self) -> Store:
        """A store at this place that is closed when the test ends."""
        store = open_store(self.database, self.directory)
        self._opened.callback(store.close)
        return store

    def owned_store(self, description: str = "the first broker") -> Store:
        store = self.open()
        store.take_ownership(description)
        return store

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """What the database says, to a connection that has nothing to do with the store."""
        if self.is_sqlite:
            file = sqlite3.connect(self.directory / "stompbroker.db", isolation_level=None)
            try:
                return file.execute(statement).fetchall()
            finally:
                file.close()
        with psycopg.connect(self.database.replace("+psycopg", ""), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def count(self, table: str) -> int:
        number: int = self.query(f"SELECT count(*) FROM {table}")[0][0]
        return number


def current_revision(database: str, directory: Path) -> str | None:
    """The last migration; None before the first."""
    engine, _ = opening._engine(database, directory, migrates=True)
    with engine.connect() as connection:
        return opening._current_revision(connection)


def topic(
    id: int, *, kind: str = "topic", name: str = "", next_offset: int = 0, whole_from: int | None = None
) -> TopicRow:
    known_from = None if whole_from is None else Offset(whole_from)
    return TopicRow(id, kind, name or f"topic.{id}", Offset(next_offset), known_from)


def publication(number: int, messages: Sequence[Message], *, topic_id: int = 1, first_offset: int = 0) -> Batch:
    """A batch with one topic and messages in it."""
    return Batch(
        number=number,
        topics=[topic(topic_id, next_offset=first_offset + len(messages))],
        messages=[MessageRun(topic_id, Offset(first_offset), messages)],
    )


def subscription(
    id: int,
    *,
    name: str = "",
    is_no_local: bool = False,
    last_seen_at_ns: int = 2,
    is_ordered: bool = False,
    delivery: str = "",
) -> SubscriptionRow:
    return SubscriptionRow(
        id=id,
        owner="",
        kind="named",
        scope="client",
        name=name or f"name {id}",
        destination="/topic/a.>",
        pattern="a.>",
        ack_mode="client-individual",
        is_no_local=is_no_local,
        created_at_ns=1,
        last_seen_at_ns=last_seen_at_ns,
        is_ordered=is_ordered,
        delivery=delivery,
    )


def cursor(
    subscription_id: int,
    topic_id: int,
    *,
    ack_floor: int = 0,
    settled: tuple[tuple[int, int], ...] = (),
    sent_up_to: int = 0,
    generation: int = 0,
) -> CursorRow:
    return CursorRow(subscription_id, topic_id, Offset(ack_floor), settled, Offset(sent_up_to), generation)


def redelivery(
    subscription_id: int, topic_id: int, offset: int, *, attempts: int = 1, is_final: bool = False, nacks: int = 0
) -> RedeliveryRow:
    return RedeliveryRow(
        subscription_id,
        topic_id,
        Offset(offset),
        attempts,
        due_at_ns=1_800_000_000_000_000_000,
        reason="refused",
        first_attempt_at_ns=1_700_000_000_000_000_001,
        last_attempt_at_ns=1_700_000_000_000_000_002,
        is_final=is_final,
        nacks=nacks,
    )


def ledger(
    id: int,
    *,
    kind: str = "deliveries",
    day: int = 20_000,
    records: int = 3,
    made_at_ns: int = 5,
    payload: bytes = b"payload",
) -> LedgerRow:
    return LedgerRow(id, kind, day, records, made_at_ns, lambda: payload)


def export(
    id: int,
    *,
    kind: str = "deliveries",
    day: int = 20_000,
    after_batch: int = 0,
    last_batch: int = 1,
    is_written: bool = False,
) -> ExportRow:
    name = f"{kind}-{id}.parquet"
    return ExportRow(id, kind, day, name, after_batch, last_batch, 3, planned_at_ns=7, is_written=is_written)


def expiring(
    body: bytes = b"body",
    *,
    published_at_ns: int = 0,
    lifetime_ns: int | None = None,
    only_for: int | None = None,
    group_key: str | None = None,
    outcome_to: str | None = None,
) -> Message:
    """A message that is not for everybody, or not for ever; or with a key, or whose publisher asks for its outcome."""
    origin = Origin(
        "publisher",
        is_plain=True,
        lifetime_ns=lifetime_ns,
        only_for=only_for,
        group_key=group_key,
        outcome_to=outcome_to,
    )
    return Message(len(body), make_message(body).tail, origin, published_at_ns)


def bodies(page: Log) -> list[tuple[int, bytes]]:
    return [(offset, message.body) for offset, message in page]
