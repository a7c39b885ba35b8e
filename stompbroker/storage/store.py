"""The store: batches in, pages and start-up state out.

Knows in which order things happen and what an error means; `sqlite/store.py` and `postgres.py` know how. Everything
here waits for a disk or a network, so it is called from threads: one at a time for writing (`take_ownership`, `commit`,
`recover`, `would_accept`, `close`), any number for reading and upkeep.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from stompbroker.storage.failures import Failures, StoreDamaged, StoreFailing, StoreRefused
from stompbroker.storage.lease import Lease, Standing
from stompbroker.storage.loading import check_structure, load
from stompbroker.storage.ownership import Fence, Ownership
from stompbroker.storage.paging import (
    MAX_PAGE_BYTES,
    MAX_PAGE_ROWS,
    PageLimits,
    check_batch,
    ledger_page,
    misread_is_damage,
    read_page,
)
from stompbroker.storage.surveys import Surveys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.commitlog import Log
    from stompbroker.storage.batch import Batch, Kept
    from stompbroker.storage.batch_writing import BatchWriter
    from stompbroker.storage.paging import Rows


class Store(ABC):
    """A database that is ours. Made by `open_store`. The defaults are those of a server, which needs no upkeep.

    Methods for subclasses raise their driver's errors unless they say otherwise.

    Invariants:
        there is a writing connection, unless the last write failed and `recover` has not succeeded since
        no transaction is open on it between two calls
    """

    #: The tables that `check_table` can check. A server does that itself.
    checked_tables: Sequence[str] = ()
    #: The statement that begins a writing transaction; empty if the driver begins one by itself.
    _begin = ""
    _batch_writer: BatchWriter

    def __init__(self, where: str, writers: Engine, readers: Engine, passwords: Collection[str] = ()) -> None:
        #: The database, for people, without password.
        self.where = where
        #: False once damage was found.
        self.is_sound = True
        #: Whether somebody else may own it: then `close` asks the database nothing.
        self.is_lost = False
        #: None: we have none, and the lock alone keeps others out.
        self.lease: Lease | None = None
        self.surveys = Surveys(self.reading)
        self._writers = writers
        self._readers = readers
        self._failures = Failures(writers, where, passwords)
        self._fence = Fence(where, writers.dialect)
        self._writer: Connection | None = None

    # For subclasses --------------------------------------------------------------------------------------------------

    @abstractmethod
    def _read_rows(self, connection: Connection, topic_id: int, start: int, stop: int, limits: PageLimits) -> Rows:
        """The messages of a topic at offsets start <= o < stop."""

    def _connect(self) -> Connection:
        """A new connection for writing."""
        return self._writers.connect()

    def _writing_alone(self) -> AbstractContextManager[object]:
        """Held during a write; keeps upkeep out."""
        return nullcontext()

    def _admit(self, connection: Connection, predecessor: str) -> None:  # noqa: B027 - a file has its directory's lock
        """See that nobody else owns the store, and keep others out. The caller's transaction takes it then.

        `predecessor` is the token of an owner that is known to be dead. Raises StoreHeld.
        """

    def _begin_lease(self, connection: Connection, lease: Lease) -> None:  # noqa: B027 - only a server has them
        """In the transaction that has taken the store."""

    def _give_back(self, connection: Connection) -> None:  # noqa: B027 - only a server has leases
        """Let others take the store from now on."""

    def _lock_again(self) -> str | None:
        """Check that we still hold the lock, or take it again. Returns another holder's description, or None if the
        lock is ours or there is none."""
        return None

    def _note_written(self, cursor: DBAPICursor, batch: Batch) -> None:  # noqa: B027 - a server need not care
        """The batch is in the transaction, about to be committed."""

    # Writing ---------------------------------------------------------------------------------------------------------

    @property
    def token(self) -> str:
        """What our row says whose it is."""
        return self._fence.owner

    def take_ownership(self, description: str, *, lease_s: float = 0.0, predecessor: str = "") -> Ownership:
        """Become the owner; with a lease, unless that is 0. `description` (process, host, since when) is shown to a
        broker that finds the store taken. `predecessor` is the token of an owner that is known to be dead.

        Raises StoreHeld, naming the holder, if another broker owns the store; StoreUnreachable if the database fails;
        OperatorError if it is damaged.
        """
        lease = Lease(lease_s) if lease_s else None
        with self._failures.translated_for_operator("Cannot take the store"):
            self._discard_writer()
            self._writer = self._connect()
            try:
                with self._writing_alone(), self._writer.begin():
                    self._admit(self._writer, predecessor)
                    ownership = self._fence.take(self._writer, description)
                    if lease is not None:
                        self._begin_lease(self._writer, lease)
            except BaseException:
                self._discard_writer()
                raise
        self.lease = lease
        return ownership

    def look_at_owner(self) -> Standing:
        """How it stands with the owner, for who waits to be the next one. Raises StoreUnreachable."""
        return Standing()

    def renew_lease(self) -> None:  # noqa: B027 - only a server has them
        """Raises StoreTaken or StoreWentBack, or StoreFailing: then it may be tried again, as long as it lasts."""

    def hand_over(self) -> str:
        """Leave writing to another process, which calls `adopt` with the token returned. `recover` takes it back."""
        self._discard_writer()
        return self._fence.owner

    def adopt(self, token: str) -> None:
        """Write in place of the process that handed over. Raises StoreFailing."""
        self._fence.owner = token
        with self._failures.translated():
            self._writer = self._connect()

    def commit(self, batch: Batch) -> None:
        """Write the batch, durably, as a whole.

        Raises StoreTaken; StoreRefused, with nothing written; or StoreFailing: then `recover` must be called, which
        tells whether it was written.
        """
        with self._writing() as connection:
            self._commit(connection, batch)
        self._fence.written = batch.number

    def _commit(self, connection: Connection, batch: Batch) -> None:
        with self._transaction(connection) as cursor:
            self._fence.advance(cursor, batch.number)
            self._batch_writer.write(cursor, batch)
            self._note_written(cursor, batch)

    def write(self, batch: Batch, *, measures: bool) -> tuple[int | None, bool, int | None]:
        """Commit, and tell how much is free, whether a checkpoint is due and, if it `measures`, the store's size."""
        self.commit(batch)
        return self.free_bytes(), self.needs_checkpoint, self.stored_bytes() if measures else None

    def would_accept(self, batch: Batch) -> bool:
        """Whether these rows could be written. Writes nothing. Raises StoreFailing."""
        try:
            with self._writing() as connection, connection.begin() as transaction:
                self._batch_writer.write(connection.connection.cursor(), batch)
                transaction.rollback()
        except StoreRefused:
            return False
        return True

    def recover(self) -> int:
        """Start over after StoreFailing: a new connection, the lock, and the number of the last batch written.

        Raises StoreTaken or StoreFailing.
        """
        self._discard_writer()
        with self._failures.translated():
            holder = self._lock_again()
            writer = self._connect()
            try:
                with self._writing_alone(), writer.begin():
                    last_batch = self._fence.last_batch(writer)
                if holder is not None and self.lease is None:
                    # We are still the owner, so this is our own lost session, which the server has not missed yet.
                    raise StoreFailing(f"The lock of the store {self.where} is held by {holder}.")
            except BaseException:
                discard(writer)
                raise
        self._writer = writer
        return last_batch

    def close(self, *, is_sound: bool = True) -> None:
        """Close everything as soon as nobody writes. Raises nothing; the store cannot be used afterwards.

        The next start checks the store, unless no damage was found, also by the caller (`is_sound`), and that could be
        written down.
        """
        with self._writing_alone():
            if self._writer is not None and not self.is_lost:
                with suppress(*self._failures.errors), self._writer.begin():
                    if is_sound and self.is_sound:
                        self._fence.note_closed(self._writer)
                    self._give_back(self._writer)
            self._discard_writer()
        self._readers.dispose()
        self._writers.dispose()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """The writing connection. It is discarded after any error but a refusal of the rows."""
        if self._writer is None:
            raise StoreFailing(f"The store {self.where} has failed and is not recovered.")
        try:
            with self._writing_alone(), self._failures.translated():
                yield self._writer
        except StoreRefused:
            raise
        except BaseException as error:
            if isinstance(error, StoreDamaged):
                self.is_sound = False
            self._discard_writer()
            raise

    @contextmanager
    def _transaction(self, connection: Connection) -> Iterator[DBAPICursor]:
        """The driver's own: SQLAlchemy's would take a tenth of the time of a small batch."""
        driver_connection = connection.connection
        cursor = driver_connection.cursor()
        try:
            if self._begin:
                cursor.execute(self._begin)
            yield cursor
            driver_connection.commit()
        except BaseException:
            with suppress(*self._failures.errors):
                driver_connection.rollback()
            raise

    def _discard_writer(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with suppress(*self._failures.errors):
                discard(writer)

    # Reading ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reading, in a transaction, from any thread. Raises StoreFailing or StoreDamaged."""
        try:
            with self._failures.translated(), self._readers.begin() as connection:
                yield connection
        except StoreDamaged:
            self.is_sound = False
            raise
        except StoreRefused as refusal:  # our question is right, so the stored values are not
            self.is_sound = False
            raise StoreDamaged(str(refusal)) from refusal

    def load(self) -> Kept:
        """Everything but messages. Raises OperatorError if it cannot be read or contradicts itself."""
        with self._failures.translated_for_operator("Cannot read the store"):
            with self._readers.begin() as connection, misread_is_damage():
                return load(connection)

    def read_page(
        self, topic_id: int, start: int, stop: int, *, max_rows: int = MAX_PAGE_ROWS, max_bytes: int = MAX_PAGE_BYTES
    ) -> Log:
        """The messages of a topic at offsets start <= o < stop; the log's end says how far they were read.

        A page ends with the message that reaches a limit, so it has at least one, if there is one. It ends before an
        altered or lost message. Raises StoreDamaged if that is at `start`, or StoreFailing.
        """
        limits = PageLimits(max_rows, max_bytes)
        while True:
            try:
                with self.reading() as connection, misread_is_damage():
                    rows = self._read_rows(connection, topic_id, start, stop, limits)
                    return read_page(connection, rows, topic_id, start, stop)
            except StoreDamaged:
                if stop - start <= 1:
                    raise
                stop = start + (stop - start) // 2

    def check_table(self, table: str) -> None:
        """Check the structure of a table, all of it. Raises StoreDamaged or StoreFailing."""
        with self.reading() as connection:
            check_structure(connection, table)

    def check_ledger(self, after: int) -> int | None:
        """Check the next few batches of the ledger behind `after`. Returns the last one checked, or None if there are
        no more. Raises StoreDamaged or StoreFailing."""
        with self.reading() as connection, misread_is_damage():
            rows = ledger_page(connection, after)
            for row in rows:
                check_batch(row)
        return rows[-1].id if rows else None

    # Upkeep ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def stored_bytes(self) -> int:
        """The size of the database. Raises StoreFailing."""

    def free_bytes(self) -> int | None:
        """Free space on the file system and inside the file; None on a server, which takes care of that.

        Costs one system call. Raises StoreFailing.
        """
        return None

    @property
    def needs_checkpoint(self) -> bool:
        """Whether `checkpoint` has something to do."""
        return False

    def checkpoint(self, *, truncate: bool = False) -> None:  # noqa: B027 - a server needs none
        """Shorten the write-ahead log or lengthen its file in advance, and release free pages if there are many.

        With `truncate`, for quiet times, the log's file becomes empty; writers may have to wait a moment for that.
        Raises StoreFailing, which says nothing about batches.
        """


def discard(connection: Connection) -> None:
    """Close it without asking a server that may be gone."""
    connection.invalidate()
    connection.close()
