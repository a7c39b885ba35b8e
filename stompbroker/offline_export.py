"""Brings the ledger to the lake while no broker runs: the exporter on a store, and nothing else of a broker.

Law: for its time this process is what a broker would be, holder of the directory and owner of the store. So a broker
that starts meanwhile is refused, and an export that was killed is repeated by whoever comes next. Nothing is created or
migrated, and only the ledger changes.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from stompbroker.actors import exporter
from stompbroker.clock import Clock
from stompbroker.config import EMBEDDED, EMBEDDED_FILE, MEMORY, without_password
from stompbroker.config.data_directory import EXPORT, LOCK_NAME, hold
from stompbroker.errors import OperatorError
from stompbroker.journal import own_store
from stompbroker.ledger import ExportOrder, Exports, RoundFailed, Rounds
from stompbroker.signals import Signal
from stompbroker.storage import MARKER_NAME, Batch, StoreFailing, StoreRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.config import Settings
    from stompbroker.journal import OpenedStore, StoreWriter
    from stompbroker.ledger import RoundResult


async def export_offline(settings: Settings, show: Callable[[str], None]) -> RoundResult:
    """Bring everything that is settled to the lake. `show` is told what takes its time.

    Raises DirectoryHeld, or OperatorError, alone or in a group. Cancelled or killed, it loses nothing.
    """
    _refuse_unsuitable(settings)
    # With a server, whose own lock keeps brokers out, the directory may be on another machine.
    has_directory = settings.database == EMBEDDED or (settings.data / LOCK_NAME).exists()
    with hold(settings.data, EXPORT) if has_directory else nullcontext():
        async with own_store(
            settings.database, settings.data, purpose="an export of its ledger, ", may_migrate=False
        ) as opened:
            # After a broker that was killed, the next one has to check the store: we do not.
            opened.store.is_sound = opened.ownership.was_closed
            return await _export(settings, opened, show)


def _refuse_unsuitable(settings: Settings) -> None:
    """Raises OperatorError if there is no ledger, or if exporting it here could do harm."""
    if settings.database == MEMORY:
        raise OperatorError('With the database "memory" nothing is stored, and there is no ledger.')
    if not settings.ledger:
        raise OperatorError(
            "The settings say ledger = false: what is in the store stays there until that is true again."
        )
    data, lock = settings.data, settings.data / LOCK_NAME
    if settings.database == EMBEDDED:
        if not (data / EMBEDDED_FILE).exists() and not (data / MARKER_NAME).exists():
            raise OperatorError(
                f"No broker is running with the data directory {data}, and none has stored anything there. Name the "
                "broker's directory with --data; or its server with --database, if it has one."
            )
    elif not lock.exists() and Path(settings.lake_place).is_relative_to(data.absolute()):
        raise OperatorError(
            f"No broker has ever run with the data directory {data}, so the lake of "
            f"{without_password(settings.database)} is not there. Name the broker's directory with --data, or set lake."
        )
    if lock.exists() and (owner := lock.stat().st_uid) != os.geteuid():
        raise OperatorError(
            f"The data directory {data} belongs to the user with the number {owner}, whose broker could not use what "
            "another user creates there. Run this as that user."
        )


async def _export(settings: Settings, opened: OpenedStore, show: Callable[[str], None]) -> RoundResult:
    ownership, clock, changed = opened.ownership, Clock(), Signal()
    exports = Exports(
        opened.kept.exports,
        opened.kept.gathered,
        changed.wake,
        store_id=ownership.store_id,
        start_number=ownership.start_number,
        export_bytes=settings.lake_export_bytes,
    )
    rounds = Rounds(exports, clock, interval_s=settings.lake_export_interval_s)
    order = ExportOrder(
        database=settings.database,
        data=str(settings.data.absolute()),
        lake=settings.lake_place,
        store_id=ownership.store_id,
    )
    export = partial(exporter.run, retention_days=settings.lake_retention_days)
    show(f"no broker is running: exporting {exports.waiting().records:,} records to {order.lake}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write_down, exports, changed, opened.writer, ownership.batch)
        nursery.start_soon(export, exports, rounds, order, clock, trio.lowlevel.checkpoint)
        try:
            result = await rounds.export_now()
        except RoundFailed as failure:
            raise OperatorError(
                f"The lake {order.lake} cannot be written: {str(failure).rstrip('.')}. The records stay in the store."
            ) from failure
        while exports.has_leftovers:
            await exports.progressed.wait()
        nursery.cancel_scope.cancel()
    return result


async def _write_down(exports: Exports, changed: Signal, writer: StoreWriter, number: int) -> None:
    """The journal's part: what `exports` decides goes to the store, behind batch `number`. Raises OperatorError."""
    while True:
        while not exports.has_changes:
            await changed.wait()
        number += 1
        batch = Batch(number=number)
        exports.take(batch)
        try:
            await writer.commit(batch, measures=False)
            if writer.needs_checkpoint:
                await writer.checkpoint()
        except (StoreFailing, StoreRefused) as failure:
            raise OperatorError(f"{failure} The export ends; the next one begins where this one stopped.") from failure
        exports.note_written(batch)
