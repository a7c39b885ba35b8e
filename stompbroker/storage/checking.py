"""Whether a database is as it was written, beyond what is read anyway.

Law: reads, and says what is wrong; the caller decides when. Messages are checked by reading their pages.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy import select

from stompbroker.storage.backend import translated_reading
from stompbroker.storage.failures import StoreDamaged
from stompbroker.storage.row_format import checksum
from stompbroker.storage.schema import ledger_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Row

    from stompbroker.storage.backend import Backend

__all__ = ["Checks", "check_structure", "is_batch_sound", "misread_is_damage"]

#: Batches of the ledger that are looked at in one go.
BATCHES: Final = 32


@final
class Checks:
    """Of one store. Its methods raise StoreDamaged or StoreFailing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: Whether no damage was met, here or elsewhere.
        self.is_sound = True

    @property
    def tables(self) -> list[str]:
        """What `check_table` can be asked about."""
        return self._backend.checked_tables

    def check_table(self, table: str) -> None:
        """Whether the database finds all rows of a table in every way there is. Looks at all of it."""
        with self._noting_damage(), translated_reading(self._backend) as connection:
            check_structure(connection, table)

    def check_ledger(self, after: int) -> int | None:
        """Whether the next few of the ledger's batches behind `after` are as they were written. Returns the last one,
        None if there are no more."""
        page = select(ledger_batches).where(ledger_batches.c.id > after).order_by(ledger_batches.c.id).limit(BATCHES)
        with self._noting_damage(), translated_reading(self._backend) as connection, misread_is_damage():
            rows = connection.execute(page).all()
            for row in rows:
                if not is_batch_sound(row):
                    raise StoreDamaged(f"the ledger's batch {row.id} is not as it was written")
        return rows[-1].id if rows else None

    @contextmanager
    def _noting_damage(self) -> Iterator[None]:
        try:
            yield
        except StoreDamaged:
            self.is_sound = False
            raise


@contextmanager
def misread_is_damage() -> Iterator[None]:
    """Data that we wrote and cannot make sense of is damaged."""
    try:
        yield
    except (TypeError, ValueError, struct.error) as error:
        raise StoreDamaged(f"what was stored cannot be read ({error})") from error


def check_structure(connection: Connection, table: str) -> None:
    """SQLite may find a row by one way and not by another. Raises StoreDamaged, with what it says then."""
    found: str = connection.exec_driver_sql(f"PRAGMA integrity_check('{table}')").scalars().first() or "ok"
    if found != "ok":
        raise StoreDamaged(f"the table {table} contradicts itself ({found})")


def is_batch_sound(row: Row[Any]) -> bool:
    """Of a whole row of `ledger_batches`."""
    *values, payload, found = tuple(row)
    return found is None or found == checksum(tuple(values), payload)
