"""Writing to a store: batches in, behind the fence, on one connection of its driver.

Needs no SQLAlchemy, so that the process that writes to an embedded file is small. One thread at a time calls what
writes (`commit`, `recover`, `would_accept`, `close`), since it waits for a disk or a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from stompbroker.storage.failures import StoreDamaged, StoreFailing, StoreRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor

    from stompbroker.storage.batch import Batch
    from stompbroker.storage.batch_writing import BatchWriter
    from stompbroker.storage.failures import Failures
    from stompbroker.storage.fence import Fence
    from stompbroker.storage.lease import Lease


class Writing(ABC):
    """The defaults are those of a server, which needs no upkeep.

    Methods for subclasses raise their driver's errors unless they say otherwise.

    Invariants:
        there is a writing connection, unless the last write failed and `recover` has not succeeded since
        no transaction is open on it between two calls
    """

    #: The statement that begins a writing transaction; empty if the driver begins one by itself.
    _begin = ""
    _batch_writer: BatchWriter

    def __init__(self, where: str, failures: Failures, fence: Fence) -> None:
        #: The database, for people, without password.
        self.where = where
        #: False once damage was found.
        self.is_sound = True
        #: Whether somebody else may own it: then `close` asks the database nothing.
        self.is_lost = False
        #: None: we have none, and the lock alone keeps others out.
        self.lease: Lease | None = None
        self._failures = failures
        self._fence = fence
        #: What `_connect` returned.
        self._writer: Any = None

    # For subclasses --------------------------------------------------------------------------------------------------

    @abstractmethod
    def _connect(self) -> Any:
        """A new connection for writing."""

    @abstractmethod
    def _driver_of(self, writer: Any) -> DBAPIConnection:
        """The driver's own connection."""

    @abstractmethod
    def _discard(self, writer: Any) -> None:
        """Close it without asking a server that may be gone."""

    def _writing_alone(self) -> AbstractContextManager[object]:
        """Held during a write; keeps upkeep out."""
        return nullcontext()

    def _give_back(self, writer: Any) -> None:  # noqa: B027 - only a server has leases
        """Let others take the store from now on."""

    def _lock_again(self) -> str | None:
        """Check that we still hold the lock, or take it again. Returns another holder's description, or None if the
        lock is ours or there is none."""
        return None

    def _free_bytes_after_commit(self) -> int | None:
        """As `free_bytes`, without another look."""
        return None

    def _note_written(self, cursor: DBAPICursor, batch: Batch) -> None:  # noqa: B027 - a server need not care
        """The batch is in the transaction, about to be committed."""

    # Writing ---------------------------------------------------------------------------------------------------------

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

    def _commit(self, connection: DBAPIConnection, batch: Batch) -> None:
        with self._transaction(connection) as cursor:
            self._fence.advance(cursor, batch.number)
            self._batch_writer.write(cursor, batch)
            self._note_written(cursor, batch)

    def write(self, batch: Batch, *, measures: bool) -> tuple[int | None, bool, int | None]:
        """Commit, and tell how much is free, whether a checkpoint is due and, if it `measures`, the store's size."""
        self.commit(batch)
        return self._free_bytes_after_commit(), self.needs_checkpoint, self.stored_bytes() if measures else None

    def would_accept(self, batch: Batch) -> bool:
        """Whether these rows could be written. Writes nothing. Raises StoreFailing."""
        try:
            with self._writing() as connection, self._transaction(connection, keeps=False) as cursor:
                self._batch_writer.write(cursor, batch)
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
                with self._writing_alone(), self._transaction(self._driver_of(writer)) as cursor:
                    last_batch = self._fence.last_batch(cursor)
                if holder is not None and self.lease is None:
                    # We are still the owner, so this is our own lost session, which the server has not missed yet.
                    raise StoreFailing(f"The lock of the store {self.where} is held by {holder}.")
            except BaseException:
                self._discard(writer)
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
                with suppress(*self._failures.errors), self._transaction(self._driver_of(self._writer)) as cursor:
                    if is_sound and self.is_sound:
                        self._fence.note_closed(cursor)
                    self._give_back(self._writer)
            self._discard_writer()

    @contextmanager
    def _writing(self) -> Iterator[DBAPIConnection]:
        """The writing connection. It is discarded after any error but a refusal of the rows."""
        if self._writer is None:
            raise StoreFailing(f"The store {self.where} has failed and is not recovered.")
        try:
            with self._writing_alone(), self._failures.translated():
                yield self._driver_of(self._writer)
        except StoreRefused:
            raise
        except BaseException as error:
            if isinstance(error, StoreDamaged):
                self.is_sound = False
            self._discard_writer()
            raise

    @contextmanager
    def _transaction(self, connection: DBAPIConnection, *, keeps: bool = True) -> Iterator[DBAPICursor]:
        """The driver's own: SQLAlchemy's would take a tenth of the time of a small batch. Unless it `keeps` what is
        done, it is rolled back."""
        cursor = connection.cursor()
        try:
            if self._begin:
                cursor.execute(self._begin)
            yield cursor
            if keeps:
                connection.commit()
            else:
                connection.rollback()
        except BaseException:
            with suppress(*self._failures.errors):
                connection.rollback()
            raise

    def _discard_writer(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with suppress(*self._failures.errors):
                self._discard(writer)

    # Upkeep ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def stored_bytes(self) -> int:
        """The size of the database. Raises StoreFailing."""

    def free_bytes(self) -> int | None:
        """Free space on the file system and inside the file; None on a server, which takes care of that.

        Raises StoreFailing.
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
