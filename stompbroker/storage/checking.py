"""Whether a database is as it was written, beyond what is read anyway.

Law: reads and says what is wrong, if anything; whoever asks decides when. Messages are checked by reading their pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stompbroker.storage.checksums import checksum
from stompbroker.storage.schema import ledger_batches

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["check_batches", "check_structure"]

#: Batches of the ledger that are looked at in one go.
BATCHES: Final = 32


def check_structure(connection: Connection, table: str) -> str | None:
    """SQLite may find a row by one way and not by another: then this is what it says."""
    found: str = connection.exec_driver_sql(f"PRAGMA integrity_check('{table}')").scalars().first() or "ok"
    return None if found == "ok" else f"the table {table} contradicts itself ({found})"


def check_batches(connection: Connection, after: int) -> tuple[int | None, str | None]:
    """The last of the next few batches of the ledger behind `after`, and what is wrong with one of them."""
    rows = connection.execute(
        select(ledger_batches).where(ledger_batches.c.id > after).order_by(ledger_batches.c.id).limit(BATCHES)
    ).all()
    last = None
    for *values, payload, found in map(tuple, rows):
        last = values[0]
        if found is not None and found != checksum(tuple(values), payload):
            return None, f"the ledger's batch {last} is not as it was written"
    return last, None
