"""The store: batches in, pages and start-up state out.

Knows in which order things happen and what an error means; `sqlite/store.py` and `postgres.py` know how. Everything
here waits for a disk or a network, so it is called from threads: one at a time for writing (`take_ownership`, and what
`writing.py` has), any number for reading and upkeep.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stompbroker.storage.failures import Failures, StoreDamaged, StoreRefused
from stompbroker.storage.fence import Fence
from stompbroker.storage.lease import Lease, Standing
from stompbroker.storage.loading import check_structure, load
from stompbroker.storage.ownership import Ownership, fence_texts, take
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
from stompbroker.storage.writing import Writing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection

    from stompbroker.commitlog import Log
    from stompbroker.storage.batch import Kept
    from stompbroker.storage.paging import Rows


class Store(Writing):
    """A database that is ours. Made by `open_store`."""

    #: The tables that `check_table` can check. A server does that itself.
    checked_tables: Sequence[str] = ()

    def __init__(self, where: str, writers: Engine, readers: Engine, passwords: Collection[str] = ()) -> None:
        failures = Failures.of_engine(writers, where, passwords)
        super().__init__(where, failures, Fence(where, fence_texts(writers.dialect)))
        self.surveys = Surveys(self.reading)
        self._writers = writers
        self._readers = readers

    # For subclasses --------------------------------------------------------------------------------------------------

    @abstractmethod
    def _read_rows(self, connection: Connection, topic_id: int, start: int, stop: int, limits: PageLimits) -> Rows:
        """The messages of a topic at offsets start <= o < stop."""

    def _connect(self) -> Connection:
        return self._writers.connect()

    def _driver_of(self, writer: Connection) -> DBAPIConnection:
        return writer.connection

    def _discard(self, writer: Connection) -> None:
        discard(writer)

    def _admit(self, connection: Connection, predecessor: str) -> None:
        """See that nobody else owns the store, and keep others out. The caller's transaction takes it then.

        `predecessor` is the token of an owner that is known to be dead. Raises StoreHeld.
        """

    def _begin_lease(self, connection: Connection, lease: Lease) -> None:
        """In the transaction that has taken the store."""

    # The owner -------------------------------------------------------------------------------------------------------

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
                    ownership = take(self._fence, self._writer, description)
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

    def renew_lease(self) -> None:
        """Raises StoreTaken or StoreWentBack, or StoreFailing: then it may be tried again, as long as it lasts."""

    def hand_over(self) -> dict[str, Any]:
        """Leave writing to another process, and say what its `adopt` takes. `recover` takes it back."""
        self._discard_writer()
        return {"file": self.where, "token": self._fence.owner}

    def close(self, *, is_sound: bool = True) -> None:
        super().close(is_sound=is_sound)
        self._readers.dispose()
        self._writers.dispose()

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


def discard(connection: Connection) -> None:
    """Close it without asking a server that may be gone."""
    connection.invalidate()
    connection.close()
