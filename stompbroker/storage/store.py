"""The store: batches in, pages and start-up state out.

Knows in which order things happen and what an error means; leaves SQL to its neighbours and engines to its backend.
Everything here waits for a disk or a network, so it is called from threads: one at a time for writing
(`take_ownership`, `commit`, `recover`, `would_accept`, `close`), any number for reading and upkeep.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, final

from stompbroker.errors import OperatorError
from stompbroker.storage.backend import discard
from stompbroker.storage.failures import StoreDamaged, StoreFailing, StoreRefused
from stompbroker.storage.loading import check_structure, load
from stompbroker.storage.ownership import Fence, Ownership, holder_of
from stompbroker.storage.paging import MAX_PAGE_BYTES, MAX_PAGE_ROWS, PageLimits, check_ledger, read_page
from stompbroker.storage.surveys import Surveys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.commitlog import Log
    from stompbroker.storage.backend import Backend
    from stompbroker.storage.batch import Batch, Kept


@final
class Store:
    """A database that is ours. Made by `open_store`.

    Invariants:
        there is a writing connection, unless the last write failed and `recover` has not succeeded since
        no transaction is open on it between two calls
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._fence = Fence(backend.where, backend.dialect)
        self._writer: Connection | None = None
        self.surveys = Surveys(backend)

    @property
    def where(self) -> str:
        """The database, for people, without password."""
        return self._backend.where

    @property
    def is_sound(self) -> bool:
        """Whether no damage was found so far."""
        return self._backend.is_sound

    def take_ownership(self, description: str) -> Ownership:
        """Become the owner. `description` (process, host, since when) is shown to a broker that finds the store taken.

        Raises OperatorError, naming the holder, if another broker holds the store, or if the database fails.
        """
        with self._backend.failures.translated_for_operator("Cannot take the store"):
            if (holder := self._backend.lock()) is not None:
                with self._backend.readers.begin() as connection:
                    broker = holder_of(connection) or "one that is just starting"
                raise OperatorError(
                    f"The store {self.where} is held by another broker: {broker} ({holder}). "
                    "Stop that one first, or give this one a store of its own."
                )
            self._writer = self._backend.connect()
            with self._backend.writing(), self._writer.begin():
                return self._fence.take(self._writer, description)

    def hand_over(self) -> str:
        """Leave writing to another process, which calls `adopt` with the token returned. `recover` takes it back."""
        self._discard_writer()
        return self._fence.owner

    def adopt(self, token: str) -> None:
        """Write in place of the process that handed over. Raises StoreFailing."""
        self._fence.owner = token
        with self._backend.failures.translated():
            self._writer = self._backend.connect()

    def commit(self, batch: Batch) -> None:
        """Write the batch, durably, as a whole.

        Raises StoreTaken; StoreRefused, with nothing written; or StoreFailing: then `recover` must be called, which
        tells whether it was written.
        """
        upkeep = self._backend.upkeep
        with self._writing() as connection, self._transaction(connection) as cursor:
            self._fence.advance(cursor, batch.number)
            self._backend.batch_writer.write(cursor, batch)
            if upkeep is not None:
                upkeep.note_written(cursor, batch)
        if upkeep is not None and upkeep.is_overdue:
            # The batch is safe. If the log cannot be shortened, a later commit will fail and say so.
            with suppress(StoreFailing):
                self.checkpoint()

    def would_accept(self, batch: Batch) -> bool:
        """Whether these rows could be written. Writes nothing. Raises StoreFailing."""
        try:
            with self._writing() as connection, connection.begin() as transaction:
                self._backend.batch_writer.write(connection.connection.cursor(), batch)
                transaction.rollback()
        except StoreRefused:
            return False
        return True

    def recover(self) -> int:
        """Start over after StoreFailing: a new connection, the lock, and the number of the last batch written.

        Raises StoreTaken or StoreFailing.
        """
        self._discard_writer()
        with self._backend.failures.translated():
            holder = self._backend.lock()
            writer = self._backend.connect()
            try:
                with self._backend.writing(), writer.begin():
                    last_batch = self._fence.last_batch(writer)
                if holder is not None:
                    # We are still the owner, so this is our own lost session, which the server has not missed yet.
                    raise StoreFailing(f"The lock of the store {self.where} is held by {holder}.")
            except BaseException:
                discard(writer)
                raise
        self._writer = writer
        return last_batch

    def load(self) -> Kept:
        """Everything but messages. Raises OperatorError if it cannot be read or contradicts itself."""
        with (
            self._backend.failures.translated_for_operator("Cannot read the store"),
            self._backend.readers.begin() as connection,
        ):
            return load(connection)

    def read_page(
        self,
        topic_id: int,
        start: int,
        stop: int,
        *,
        max_rows: int = MAX_PAGE_ROWS,
        max_bytes: int = MAX_PAGE_BYTES,
    ) -> Log:
        """The messages of a topic at offsets start <= o < stop; the log's end says how far they were read.

        A page ends with the message that reaches a limit, so it has at least one, if there is one. It ends before an
        altered or lost message. Raises StoreDamaged if that is at `start`, or StoreFailing.
        """
        limits = PageLimits(max_rows, max_bytes)
        while True:
            try:
                return read_page(self._backend, topic_id, start, stop, limits)
            except StoreDamaged:
                if stop - start <= 1:
                    raise
                stop = start + (stop - start) // 2

    @property
    def checked_tables(self) -> Sequence[str]:
        """The tables that `check_table` can check."""
        return self._backend.checked_tables

    def check_table(self, table: str) -> None:
        """Check the structure of a table, all of it. Raises StoreDamaged or StoreFailing."""
        with self._backend.reading() as connection:
            check_structure(connection, table)

    def check_ledger(self, after: int) -> int | None:
        """Check the next few batches of the ledger behind `after`. Returns the last one checked, or None if there are
        no more. Raises StoreDamaged or StoreFailing."""
        return check_ledger(self._backend, after)

    def free_bytes(self) -> int | None:
        """Free space on the file system and inside the file; None on a server, which takes care of that.

        Costs one system call. Raises StoreFailing.
        """
        with self._backend.failures.translated():
            return None if self._backend.upkeep is None else self._backend.upkeep.free_bytes()

    def stored_bytes(self) -> int:
        """The size of the database. Raises StoreFailing."""
        with self._backend.failures.translated():
            return self._backend.stored_bytes()

    @property
    def needs_checkpoint(self) -> bool:
        """Whether `checkpoint` has something to do. Never true on a server."""
        return self._backend.upkeep is not None and self._backend.upkeep.is_due

    def checkpoint(self, *, truncate: bool = False) -> None:
        """Shorten the write-ahead log or lengthen its file in advance, and release free pages if there are many.

        With `truncate`, for quiet times, the log's file becomes empty; writers may have to wait a moment for that.
        Raises StoreFailing, which says nothing about batches.
        """
        if self._backend.upkeep is not None:
            with self._backend.failures.translated():
                self._backend.upkeep.run(truncate=truncate)

    def close(self, *, is_sound: bool = True) -> None:
        """Close everything as soon as nobody writes. Raises nothing; the store cannot be used afterwards.

        The next start checks the store, unless no damage was found, also by the caller (`is_sound`), and that could be
        written down.
        """
        with self._backend.writing():
            if self._writer is not None and is_sound and self.is_sound:
                with suppress(*self._backend.failures.errors), self._writer.begin():
                    self._fence.note_closed(self._writer)
            self._discard_writer()
        self._backend.close()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """The writing connection. It is discarded after any error but a refusal of the rows."""
        if self._writer is None:
            raise StoreFailing(f"The store {self.where} has failed and is not recovered.")
        try:
            with self._backend.writing(), self._backend.failures.translated():
                yield self._writer
        except StoreRefused:
            raise
        except BaseException as error:
            if isinstance(error, StoreDamaged):
                self._backend.is_sound = False
            self._discard_writer()
            raise

    @contextmanager
    def _transaction(self, connection: Connection) -> Iterator[DBAPICursor]:
        """The driver's own: SQLAlchemy's would take a tenth of the time of a small batch."""
        driver_connection = connection.connection
        cursor = driver_connection.cursor()
        try:
            if self._backend.begin:
                cursor.execute(self._backend.begin)
            yield cursor
            driver_connection.commit()
        except BaseException:
            with suppress(*self._backend.failures.errors):
                driver_connection.rollback()
            raise

    def _discard_writer(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with suppress(*self._backend.failures.errors):
                discard(writer)
