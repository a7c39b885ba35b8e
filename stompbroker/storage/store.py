"""The store: batches in, pages and start-up state out.

Law: knows in which order things happen and what an error means, and leaves SQL to its neighbours and engines to its
backend. Everything here waits for a disk or a network, so it is called from threads: one at a time for what writes
(`take_ownership`, `commit`, `recover`, `would_accept`, `close`), others beside it for what reads or tidies up.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, final

from stompbroker.errors import OperatorError
from stompbroker.storage.backend import translated_reading
from stompbroker.storage.checking import Checks, misread_is_damage
from stompbroker.storage.failures import StoreDamaged, StoreFailing, StoreRefused
from stompbroker.storage.loading import load
from stompbroker.storage.ownership import Fence, Ownership, holder_of, note_closed, take
from stompbroker.storage.paging import MAX_PAGE_BYTES, MAX_PAGE_ROWS, PageLimits, lost_of, page_of
from stompbroker.storage.surveys import Surveys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.commitlog import Log
    from stompbroker.storage.backend import Backend
    from stompbroker.storage.batch import Batch, Kept

__all__ = ["Store"]


@final
class Store:
    """A database that is ours. Made by `open_store`.

    Invariants:
        there is a writing connection unless the last write failed and `recover` has not succeeded since
        no transaction is open on it between two calls
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: Made anew by every process, so that no earlier one passes the fence.
        self._token = secrets.token_hex(16)
        self._fence = Fence(self._token, backend.where, backend.dialect)
        self._writer: Connection | None = None
        self.surveys = Surveys(backend)
        self.checks = Checks(backend)

    @property
    def where(self) -> str:
        """The database, for people; without password."""
        return self._backend.where

    def take_ownership(self, description: str) -> Ownership:
        """Become the owner. `description` is shown to a broker that finds the store taken: process, host, since when.

        Raises OperatorError, naming the holder, if another broker holds the store, or if the database fails.
        """
        with self._backend.failures.translated_for_operator("Cannot take the store"):
            if not self._backend.lock():
                raise OperatorError(
                    f"The store {self.where} is held by another broker: {self._holder()}. "
                    "Stop that one first, or give this one a store of its own."
                )
            self._writer = self._backend.connect()
            with self._backend.writing(), self._writer.begin():
                return take(self._writer, self._token, description)

    def hand_over(self) -> str:
        """Leave writing to another process, which is given what this returns. `recover` takes it back."""
        self._discard_writer()
        return self._token

    def adopt(self, token: str) -> None:
        """Write as the process that has handed over. Raises StoreFailing."""
        self._token = token
        self._fence = Fence(token, self.where, self._backend.dialect)
        with self._backend.failures.translated():
            self._writer = self._backend.connect()

    def commit(self, batch: Batch) -> None:
        """Write the batch, durably, as a whole.

        Raises StoreTaken; StoreRefused, with nothing written; or StoreFailing: then `recover` must be called, and
        says whether it was written.
        """
        with self._writing() as connection, self._transaction(connection) as cursor:
            self._fence.advance(cursor, batch.number)
            self._backend.batch_writer.write(cursor, batch)
            self._backend.upkeep.note_written(cursor, batch)
        if self._backend.upkeep.is_overdue:
            # The batch is safe. If the log cannot be shortened, a later commit will fail and say so.
            with suppress(StoreFailing):
                self.checkpoint()

    def would_accept(self, batch: Batch) -> bool:
        """Whether these rows could be written; nothing is. Raises StoreFailing."""
        try:
            with self._writing() as connection, connection.begin() as transaction:
                self._backend.batch_writer.write(connection.connection.cursor(), batch)
                transaction.rollback()
        except StoreRefused:
            return False
        return True

    def recover(self) -> int:
        """Start over after StoreFailing: a new connection, the lock, and the number of the last batch there is.

        Raises StoreTaken or StoreFailing.
        """
        self._discard_writer()
        with self._backend.failures.translated():
            is_locked = self._backend.lock()
            writer = self._backend.connect()
            try:
                with self._backend.writing(), writer.begin():
                    last_batch = self._fence.last_batch(writer)
                if not is_locked:
                    # The owner is still us, so our own lost session holds it, which the server has not missed yet.
                    raise StoreFailing(f"The lock of the store {self.where} is held by {self._backend.lock_holder()}.")
            except BaseException:
                writer.invalidate()
                writer.close()
                raise
        self._writer = writer
        return last_batch

    def load(self) -> Kept:
        """Everything but messages. Raises OperatorError if that contradicts itself or cannot be read."""
        with self._backend.failures.translated_for_operator("Cannot read the store"):
            with self._backend.reading() as connection:
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
        """The messages of a topic at offsets from `start` on, below `stop`; the log's end says how far they were read.

        A page ends with the message that reaches a limit, so it has one at least, if there is one. It ends before what
        is damaged or lost. Raises StoreDamaged if that is at `start`, or StoreFailing.
        """
        limits = PageLimits(max_rows, max_bytes)
        while True:
            try:
                return self._read_page(topic_id, start, stop, limits)
            except StoreDamaged:
                self.checks.is_sound = False
                if stop - start <= 1:
                    raise
                stop = start + (stop - start) // 2

    def _read_page(self, topic_id: int, start: int, stop: int, limits: PageLimits) -> Log:
        try:
            with translated_reading(self._backend) as connection, misread_is_damage():
                found = self._backend.read_rows(connection, topic_id, start, stop, limits)
                page, absent = page_of(found, topic_id, start, stop)
                lost = lost_of(connection, topic_id, absent) if absent else None
        except StoreRefused as refusal:  # what is asked for is right, so what is there is not
            raise StoreDamaged(str(refusal)) from refusal
        if lost is not None:
            raise StoreDamaged(f"the message at offset {lost} was stored and is not there any more")
        return page

    def free_bytes(self) -> int | None:
        """Room for more, on the file system and inside the file; None where that is the server's business.

        Cheap: one system call. Raises StoreFailing.
        """
        with self._backend.failures.translated():
            return self._backend.upkeep.free_bytes()

    def stored_bytes(self) -> int:
        """The size of the database. Raises StoreFailing."""
        with self._backend.failures.translated():
            return self._backend.upkeep.stored_bytes()

    @property
    def needs_checkpoint(self) -> bool:
        """Whether `checkpoint` has something to do. Never true on a server, which does that itself."""
        return self._backend.upkeep.is_due

    def checkpoint(self, *, truncate: bool = False) -> None:
        """Shorten the write-ahead log, or give it room, and give back free pages if there are many; beside all else.

        With `truncate` the log's file becomes empty, for which writers may have to wait a moment: for quiet times.
        Raises StoreFailing, which says nothing about batches.
        """
        with self._backend.failures.translated():
            self._backend.upkeep.run(truncate=truncate)

    def close(self) -> None:
        """Give everything back, as soon as nobody writes. Raises nothing; the store cannot be used afterwards.

        The next start checks it, unless it is sound and we could say so.
        """
        with self._backend.writing():
            if self._writer is not None and self.checks.is_sound:
                with suppress(StoreFailing, StoreRefused), self._backend.failures.translated(), self._writer.begin():
                    note_closed(self._writer, self._token)
            self._discard_writer()
        self._backend.close()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """The writing connection; after an error that is not about the rows there is none any more."""
        if self._writer is None:
            raise StoreFailing(f"The store {self.where} has failed and is not recovered.")
        try:
            with self._backend.writing(), self._backend.failures.translated():
                yield self._writer
        except StoreRefused:
            raise
        except BaseException as error:
            self.checks.is_sound = self.checks.is_sound and not isinstance(error, StoreDamaged)
            self._discard_writer()
            raise

    @contextmanager
    def _transaction(self, connection: Connection) -> Iterator[DBAPICursor]:
        """The driver's own: SQLAlchemy's way into one and out again is a tenth of what a small batch costs."""
        driver_connection = connection.connection
        cursor = driver_connection.cursor()
        try:
            if self._backend.begin:
                cursor.execute(self._backend.begin)
            yield cursor
            driver_connection.commit()
        except BaseException:
            with suppress(StoreFailing, StoreRefused), self._backend.failures.translated():
                driver_connection.rollback()
            raise

    def _discard_writer(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with suppress(StoreFailing, StoreRefused), self._backend.failures.translated():
                writer.invalidate()
                writer.close()

    def _holder(self) -> str:
        with self._backend.reading() as connection:
            description = holder_of(connection)
        return f"{description or 'one that is just starting'} ({self._backend.lock_holder()})"
