"""Whether stored data is as it was written, beyond what `paging.py` and `loading.py` check."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select

from stompbroker.storage.failures import StoreDamaged
from stompbroker.storage.row_format import checksum
from stompbroker.storage.schema import ledger_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, Row

__all__ = ["check_batch", "check_structure", "ledger_page", "misread_is_damage"]

#: Batches of the ledger that are read at once. Each has the records of one transaction, at most some 100 KiB.
PAGE: Final = 32


@contextmanager
def misread_is_damage() -> Iterator[None]:
    """Raises StoreDamaged for stored values of the wrong type or format."""
    try:
        yield
    except (TypeError, ValueError, struct.error) as error:
        raise StoreDamaged(f"what was stored cannot be read ({error})") from error


def check_structure(connection: Connection, table: str) -> None:
    """Raises StoreDamaged if SQLite finds rows by one index and not by another. Reads the whole table."""
    found: str = connection.exec_driver_sql(f"PRAGMA integrity_check('{table}')").scalars().first() or "ok"
    if found != "ok":
        raise StoreDamaged(f"the table {table} contradicts itself ({found})")


def ledger_page(connection: Connection, after: int, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """The next few batches of the ledger with an id above `after`."""
    id = ledger_batches.c.id
    return connection.execute(select(ledger_batches).where(id > after, *conditions).order_by(id).limit(PAGE)).all()


def check_batch(row: Row[Any]) -> None:
    """Raises StoreDamaged if a row of `ledger_batches` is not as it was written."""
    *values, payload, found = tuple(row)
    if found is not None and found != checksum(tuple(values), payload):
        raise StoreDamaged(f"batch {row.id} of the ledger cannot be read: it is not as it was written")
