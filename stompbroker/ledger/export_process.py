"""The exporting process: `python -m stompbroker.ledger.export_process`.

Law: carries out one order at low priority, and ends. It reads the database itself, so that no record passes the
broker's event loop. Repeating an order is harmless: a file replaces its earlier self, and holds the same. Failures are
a sentence on standard error and an exit code.

After a broker was killed, its exporter may run while the successor's deletes the batches of a written file. So a file
is finished only if it has as many records as were planned.
"""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.parquet as pq

from stompbroker.errors import OperatorError
from stompbroker.ledger.lake import ExportOrder, FileWritten, Kind, open_lake, partition
from stompbroker.ledger.payload import BrokenPayload, unpack
from stompbroker.ledger.schema import SCHEMAS
from stompbroker.storage import StoreDamaged, read_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stompbroker.ledger.lake import Lake
    from stompbroker.storage import ExportRow

#: Added to the niceness of the broker: clients come first.
NICENESS: Final = 10
#: A row group is written when it has so many records, or bytes in memory. Larger ones are read no quicker.
ROW_GROUP_RECORDS: Final = 128 * 1024
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024


@final
class ExitCode(IntEnum):
    DONE = 0
    #: The lake or the database does not work; try again later.
    FAILED = 1
    #: The ledger is damaged; the sound part of it is in the lake.
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
                # Go on with the other files.
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
        records = _write_parquet(kind, read_ledger(order.database, Path(order.data), export), file)
        if records != export.records:
            raise BrokenPayload(f"there are {records} records for {path}, not {export.records}")
    return FileWritten(export.id, path, records)


def _write_parquet(kind: Kind, batches: Iterable[tuple[int, bytes]], file: IO[bytes]) -> int:
    """`batches` are ids and payloads; returns how many records they had. Memory is bounded by the row group. Raises
    BrokenPayload, which names the batch."""
    schema = SCHEMAS[kind]
    records = 0
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=True, version="2.6") as writer:
        for group in _row_groups(unpack(kind, batches)):
            # In one piece: there may be a few records in each of many thousand batches.
            table = pa.Table.from_batches(group, schema).combine_chunks()
            writer.write_table(table, row_group_size=ROW_GROUP_RECORDS)
            records += table.num_rows
            del group, table  # they would be kept while the next ones gather
    return records


def _row_groups(found: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    records = size_bytes = 0
    for each in found:
        group.append(each)
        records += each.num_rows
        size_bytes += each.nbytes
        if records >= ROW_GROUP_RECORDS or size_bytes >= ROW_GROUP_BYTES:
            yield group
            group = []
            records = size_bytes = 0
    if group:
        yield group


if __name__ == "__main__":
    os.nice(NICENESS)
    sys.exit(carry_out(ExportOrder.read(sys.stdin.buffer.read())))
