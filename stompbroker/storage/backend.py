"""A database as `Store` needs it: what both engines share, and what each supplies.

`store.py` knows what happens in which order, `sqlite/` and `postgres.py` know how. Unless a method says otherwise, it
raises its driver's errors, which `failures` translates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from stompbroker.storage.failures import Failures, StoreDamaged, StoreRefused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy import Connection, Engine

    from stompbroker.storage.batch_writing import BatchWriter
    from stompbroker.storage.paging import PageLimits, Rows
    from stompbroker.storage.sqlite.checkpoints import Checkpoints


class Backend(ABC):
    """`where` names the database for people, without password. The defaults are those of a file without a lock."""

    #: The statement that begins a writing transaction; empty if the driver begins one by itself.
    begin = ""
    #: Tables whose structure can be checked, beyond their rows. A server does that itself.
    checked_tables: Sequence[str] = ()
    #: Keeps the size of an embedded file in bounds. A server does that itself.
    upkeep: Checkpoints | None = None
    batch_writer: BatchWriter

    def __init__(self, where: str, writers: Engine, readers: Engine, passwords: Collection[str] = ()) -> None:
        self.where = where
        self._writers = writers
        #: For errors that are to be translated otherwise than `reading` does.
        self.readers = readers
        self.dialect = writers.dialect
        self.failures = Failures(writers, where, passwords)
        #: False once damage was found.
        self.is_sound = True

    @abstractmethod
    def stored_bytes(self) -> int: ...

    @abstractmethod
    def read_rows(self, connection: Connection, topic_id: int, start: int, stop: int, limits: PageLimits) -> Rows:
        """The messages of a topic at offsets start <= o < stop."""

    def connect(self) -> Connection:
        """A new connection for writing."""
        return self._writers.connect()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reading, in a transaction, from any thread. Raises StoreFailing or StoreDamaged."""
        try:
            with self.failures.translated(), self.readers.begin() as connection:
                yield connection
        except StoreDamaged:
            self.is_sound = False
            raise
        except StoreRefused as refusal:  # our question is right, so the stored values are not
            self.is_sound = False
            raise StoreDamaged(str(refusal)) from refusal

    def writing(self) -> AbstractContextManager[object]:
        """Held during a write; keeps upkeep out."""
        return nullcontext()

    def lock(self) -> str | None:
        """Take the lock that keeps other brokers out, or check that we still hold it. Returns another holder's
        description, or None if the lock is ours."""
        return None

    def close(self) -> None:
        """Release the lock, and close everything but connections from `connect`. Raises nothing."""
        self.readers.dispose()
        self._writers.dispose()


def discard(connection: Connection) -> None:
    """Close it without asking a server that may be gone."""
    connection.invalidate()
    connection.close()
