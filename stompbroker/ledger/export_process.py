"""The process that writes the lake: `python -m stompbroker.ledger.export_process`.

Law: does what one order says, at low priority, and ends. It reads from the database itself, so that nothing of it goes
through the broker's event loop. Whatever it is told may have been done before, by one that was killed: a file takes the
place of its earlier self, and holds the same. What does not work is a sentence on standard error and an exit code.

One that was left behind by a broker that was killed can find that its successor has written the file, and deletes its
batches. So a file is finished only if it has as many records as were planned.
"""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, final

from stompbroker.errors import OperatorError
from stompbroker.ledger.export_orders import ExportOrder, FileWritten
from stompbroker.ledger.kinds import Kind
from stompbroker.ledger.lake import open_lake, partition
from stompbroker.ledger.parquet_file import write_parquet
from stompbroker.ledger.payload import BrokenPayload
from stompbroker.storage import StoreDamaged, read_ledger

if TYPE_CHECKING:
    from stompbroker.ledger.lake import Lake
    from stompbroker.storage import ExportRow

__all__ = ["ExitCode", "carry_out"]

#: Added to the priority of whoever starts it: clients come first.
NICENESS = 10


@final
class ExitCode(IntEnum):
    DONE = 0
    #: The lake or the database does not work; it may later.
    FAILED = 1
    #: The ledger is damaged; what is not is in the lake.
    BROKEN = 3


def carry_out(order: ExportOrder) -> ExitCode:
    try:
        lake = open_lake(order.lake, order.store_id)
        if order.delete_before_day is not None:
            lake.sweep()
        is_broken = False
        for export in order.exports:
            try:
                print(_write(lake, export, order).as_line(), flush=True)
            except (BrokenPayload, StoreDamaged) as error:
                # The others are worth having, whatever became of this one.
                print(f"The ledger is damaged: {error}.", file=sys.stderr)
                is_broken = True
        if is_broken:
            return ExitCode.BROKEN
        lake.note_complete(order.complete_until_ns, order.exported_at_ns)
        if order.delete_before_day is not None:
            lake.delete_before(order.delete_before_day)
    except OperatorError as error:
        print(error, file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.DONE


def _write(lake: Lake, export: ExportRow, order: ExportOrder) -> FileWritten:
    """Raises OperatorError, BrokenPayload or StoreDamaged."""
    kind = Kind(export.kind)
    path = f"{partition(kind, export.day)}/{export.name}"
    with lake.writing(path) as file:
        records = write_parquet(kind, read_ledger(order.database, Path(order.data), export), file)
        if records != export.records:
            raise BrokenPayload(f"there are {records} records for {path}, not {export.records}")
    return FileWritten(export.id, path, records)


if __name__ == "__main__":
    os.nice(NICENESS)
    sys.exit(carry_out(ExportOrder.read(sys.stdin.buffer.read())))
