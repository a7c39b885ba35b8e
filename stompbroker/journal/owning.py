"""From the settings to a store that is ours: opened at once, or on stand-by until its owner's lease is over.

Law: decides when to try, and nothing of who may have it: `Store.take_ownership` does, in one transaction.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from stompbroker.journal.store_writer import StoreWriter
from stompbroker.storage import (
    Kept,
    Ownership,
    Standing,
    Store,
    StoreFailing,
    StoreHeld,
    StoreUnreachable,
    WritingProcess,
    note_owner,
    open_store,
    recall_owner,
    recognise,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

#: How long a thread may run Python before another gets its turn. With the usual 5 ms each return of the journal's
#: thread from the database waits that long for a busy event loop (a batch of 500 rows: 18 against 147 µs a row).
SWITCH_INTERVAL_S: Final = 0.0005
#: How long a store may take to be closed, its last write included.
CLOSE_S: Final = 5.0
#: How often a stand-by looks at the owner's lease: so long clients may wait for nothing.
LOOK_S: Final = 0.25
#: How long past its end we wait for the lease of a broker that shows no other sign of life.
OVER_S: Final = 0.1

log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStore:
    store: Store
    writer: StoreWriter
    ownership: Ownership
    kept: Kept
    #: Whether the last owner had another data directory.
    is_from_elsewhere: bool = False


@asynccontextmanager
async def own_store(
    database: str,
    directory: Path,
    writing: WritingProcess | None = None,
    *,
    lease_s: float = 0.0,
    when_waiting: Callable[[Standing], None] | None = None,
    purpose: str = "",
    may_migrate: bool = True,
) -> AsyncIterator[OpenedStore]:
    """The PostgreSQL database at the URL `database` or, if that is empty, the SQLite file in `directory`.

    The process `writing` writes to an SQLite file, if there is one; else a thread. On a server there is a lease, unless
    `lease_s` is 0. With `when_waiting`, wait for a store that another broker has, and call it if that is so. A broker
    that finds the store taken shows the `purpose`. Raises OperatorError.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    taking = _Taking(database, directory, lease_s if database else 0.0, purpose, may_migrate)
    if when_waiting is None:
        store, ownership, kept = await taking.take_soon()
    else:
        store, ownership, kept = await taking.take_when_free(when_waiting)
    writer = StoreWriter(store)
    try:
        if writing is not None and not database:
            await writer.adopt(writing)
        is_from_elsewhere = bool(database) and ownership.last_owner not in ("", taking.predecessor)
        yield OpenedStore(
            store=store, writer=writer, ownership=ownership, kept=kept, is_from_elsewhere=is_from_elsewhere
        )
    finally:
        # Shielded, because nothing else closes it; with a limit, because it may hang.
        with trio.move_on_after(CLOSE_S, shield=True):
            await writer.close()
            await _close(store)


@final
class _Taking:
    """One broker's attempts at one store."""

    def __init__(self, database: str, directory: Path, lease_s: float, purpose: str, may_migrate: bool) -> None:
        self._database = database
        self._directory = directory
        self._lease_s = lease_s
        self._open = partial(open_store, database, directory, may_migrate=may_migrate)
        #: Dead, as we hold its directory.
        self.predecessor = recall_owner(directory) if database else ""
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._description = f"{purpose}process {os.getpid()} on {socket.gethostname()}, since {started_at}"

    async def take_soon(self) -> tuple[Store, Ownership, Kept]:
        """At once; or when the lease of a broker is over that shows no other sign of life. Raises StoreHeld."""
        try:
            return await self._take()
        except StoreHeld as held:
            if held.lasts_s is None:
                raise
            log.info("waiting for the lease of the last broker, which may be dead", lasts_s=round(held.lasts_s, 1))
            await trio.sleep(held.lasts_s + OVER_S)
        return await self._take()

    async def take_when_free(self, when_waiting: Callable[[Standing], None]) -> tuple[Store, Ownership, Kept]:
        """However long that takes. At first the database must work, so that a mistake in its name is seen."""
        standing: Standing | None = None
        began_at_s = 0.0
        while True:
            try:
                taken = await self._take()
            except (StoreHeld, StoreUnreachable) as why_not:
                if standing is None and not isinstance(why_not, StoreHeld):
                    raise
                log.debug("the store cannot be taken yet", reason=str(why_not))
            else:
                if standing is not None:
                    log.warning(
                        "taken over from another broker",
                        owner=standing.description,
                        why=standing.how_it_ended,
                        took_s=round(trio.current_time() - began_at_s, 3),
                    )
                return taken
            standing = await self._wait_until_free(when_waiting)
            began_at_s = trio.current_time()

    async def _wait_until_free(self, when_waiting: Callable[[Standing], None]) -> Standing:
        store: Store | None = None
        told: str | None = None
        is_unreachable = False
        try:
            while True:
                try:
                    if store is None:
                        store = await trio.to_thread.run_sync(self._open)
                    standing = await trio.to_thread.run_sync(store.look_at_owner, abandon_on_cancel=True)
                except StoreUnreachable as failure:
                    if not is_unreachable:
                        log.warning("on stand-by, and the store cannot be reached", reason=str(failure))
                    is_unreachable = True
                else:
                    is_unreachable = False
                    if standing.is_over or not standing.owner:
                        return standing
                    if told != standing.owner:
                        told = standing.owner
                        log.info("on stand-by", store=store.where, owner=standing.description)
                        when_waiting(standing)
                await trio.sleep(LOOK_S)
        finally:
            if store is not None:
                with trio.move_on_after(CLOSE_S, shield=True):
                    await _close(store)

    async def _take(self) -> tuple[Store, Ownership, Kept]:
        store = await trio.to_thread.run_sync(self._open)
        try:
            ownership = await trio.to_thread.run_sync(self._take_in_thread, store)
            async with trio.open_nursery() as loading:
                loading.start_soon(_keep_lease, store)
                kept = await trio.to_thread.run_sync(store.load)
                loading.cancel_scope.cancel()
            # What comes before the actor that renews it is synchronous.
            await trio.to_thread.run_sync(store.renew_lease)
        except BaseException:
            with trio.move_on_after(CLOSE_S, shield=True):
                await _close(store)
            raise
        return store, ownership, kept

    def _take_in_thread(self, store: Store) -> Ownership:
        ownership = store.take_ownership(self._description, lease_s=self._lease_s, predecessor=self.predecessor)
        if self._database:
            note_owner(self._directory, store.token)
        else:
            recognise(self._directory, ownership.store_id)
        return ownership


async def _keep_lease(store: Store) -> None:
    """Loading may take longer than the lease."""
    while store.lease is not None:
        await trio.sleep(store.lease.renewal_s)
        with suppress(StoreFailing):
            await trio.to_thread.run_sync(store.renew_lease)


async def _close(store: Store) -> None:
    await trio.to_thread.run_sync(store.close, abandon_on_cancel=True)
