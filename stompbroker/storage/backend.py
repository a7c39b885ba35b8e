"""What a store needs of a database engine.

Law: the interface between `store.py`, which knows what happens, and the two engines, which know how. Whatever an
implementation raises is its driver's; `failures` says what that means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Dialect
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage.batch import Batch
    from stompbroker.storage.batch_writing import BatchWriter
    from stompbroker.storage.failures import Failures
    from stompbroker.storage.paging import PageReader

__all__ = ["Backend"]


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
        """What is known of whoever holds the lock, beside what `journal_state` says."""

    def note_written(self, cursor: DBAPICursor, batch: Batch) -> None:
        """The batch stands in the transaction, about to be committed."""

    @property
    def checked_tables(self) -> list[str]:
        """Those whose structure can be checked, beyond the rows themselves."""

    def free_bytes(self) -> int | None: ...

    def stored_bytes(self) -> int: ...

    @property
    def is_checkpoint_due(self) -> bool: ...

    @property
    def is_checkpoint_overdue(self) -> bool: ...

    def checkpoint(self, *, truncate: bool) -> None: ...

    def close(self) -> None:
        """Give back the lock and close everything but connections from `connect`. Raises nothing."""
