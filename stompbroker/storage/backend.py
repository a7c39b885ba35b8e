"""What a store needs of a database engine.

Law: the interface between `store.py`, which knows what happens, and the two engines (`sqlite/`, `postgres/`), which
know how. Whatever an implementation raises is its driver's; `failures` says what that means.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Dialect
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage.batch import Batch
    from stompbroker.storage.batch_writing import BatchWriter
    from stompbroker.storage.failures import Failures
    from stompbroker.storage.paging import PageReader

__all__ = ["Backend", "Upkeep", "translated_reading"]


class Upkeep(Protocol):
    """The size of a database, and what it needs besides being written."""

    @property
    def is_due(self) -> bool: ...

    @property
    def is_overdue(self) -> bool:
        """It was not run for long: then the writer does it, so that the log does not grow for ever."""

    def run(self, *, truncate: bool) -> None: ...

    def note_written(self, cursor: DBAPICursor, batch: Batch) -> None:
        """The batch stands in the transaction, about to be committed."""

    def free_bytes(self) -> int | None: ...

    def stored_bytes(self) -> int: ...


class Backend(Protocol):
    @property
    def where(self) -> str:
        """The database, for people."""

    @property
    def begin(self) -> str:
        """What begins a transaction that writes; empty if the driver does that by itself."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def failures(self) -> Failures: ...

    @property
    def batch_writer(self) -> BatchWriter: ...

    @property
    def read_rows(self) -> PageReader: ...

    def connect(self) -> Connection:
        """A new connection for writing."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection for reading, in a transaction, for the length of the block. For any thread."""

    def writing(self) -> AbstractContextManager[object]:
        """Held while something is written; keeps upkeep out."""

    def lock(self) -> bool:
        """Keep all others out, or make sure that they still are; false if another one is in."""

    def lock_holder(self) -> str:
        """What is known of the holder of the lock, beside what `journal_state` says."""

    @property
    def checked_tables(self) -> list[str]:
        """Those whose structure can be checked, beyond the rows themselves."""

    @property
    def upkeep(self) -> Upkeep: ...

    def close(self) -> None:
        """Give back the lock and close everything but connections from `connect`. Raises nothing."""


@contextmanager
def translated_reading(backend: Backend) -> Iterator[Connection]:
    """A connection for reading, for the length of the block. Raises StoreFailing or StoreRefused for its errors."""
    with backend.failures.translated(), backend.reading() as connection:
        yield connection
