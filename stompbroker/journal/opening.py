"""Opens a store: becomes its owner, reads what it had kept, chooses who writes to it; and closes it.

The caller holds the lock of the data directory.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.journal.store_writer import StoreWriter
from stompbroker.storage import Kept, Ownership, Store, WritingProcess, open_store, recognise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

#: How long a thread may run Python before another gets its turn. With the usual 5 ms each return of the journal's
#: thread from the database waits that long for a busy event loop (a batch of 500 rows: 18 against 147 µs a row).
SWITCH_INTERVAL_S: Final = 0.0005
#: How long a store may take to be closed, its last write included.
CLOSE_S: Final = 5.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStore:
    store: Store
    writer: StoreWriter
    ownership: Ownership
    kept: Kept


@asynccontextmanager
async def own_store(
    database: str, directory: Path, writing: WritingProcess | None = None
) -> AsyncIterator[OpenedStore]:
    """The PostgreSQL database at the URL `database` or, if that is empty, the SQLite file in `directory`.

    The process `writing` writes to an SQLite file, if there is one; else a thread. Raises OperatorError.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    description = f"process {os.getpid()} on {socket.gethostname()}, since {started_at}"
    is_embedded = not database

    def take(store: Store) -> tuple[Ownership, Kept]:
        ownership, kept = store.take_ownership(description), store.load()
        if is_embedded:
            recognise(directory, ownership.store_id)
        return ownership, kept

    store = await trio.to_thread.run_sync(open_store, database, directory)
    writer = StoreWriter(store)
    try:
        ownership, kept = await trio.to_thread.run_sync(take, store)
        if writing is not None and is_embedded:
            await writer.adopt(writing)
        yield OpenedStore(store=store, writer=writer, ownership=ownership, kept=kept)
    finally:
        # Shielded, because nothing else closes it; with a limit, because it may hang.
        with trio.move_on_after(CLOSE_S, shield=True):
            await writer.close()
            await trio.to_thread.run_sync(store.close, abandon_on_cancel=True)
