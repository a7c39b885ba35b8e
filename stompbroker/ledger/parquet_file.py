"""Records from payloads into one Parquet file.

Law: the fixed schema, whatever is in it; nothing is sorted. Memory is bounded by the row group, whatever the payloads
unpack to.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from stompbroker.ledger.payload import unpack_all
from stompbroker.ledger.schema import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.ledger.kinds import Kind

__all__ = ["write_parquet"]

#: A row group is written when it has so many records, or bytes in memory. Larger ones are read no quicker.
ROW_GROUP_RECORDS: Final = 128 * 1024
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024


def write_parquet(kind: Kind, batches: Iterable[tuple[int, bytes]], file: IO[bytes]) -> int:
    """Id and payload of each batch. Returns how many records they had. Raises BrokenPayload, which names the batch."""
    schema = SCHEMAS[kind]
    records = 0
    waiting: list[pa.RecordBatch] = []
    waiting_records = waiting_bytes = 0
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=True, version="2.6") as writer:

        def write_waiting() -> None:
            nonlocal waiting_records, waiting_bytes
            if waiting:
                # In one piece: there may be a few records in each of many thousand batches.
                table = pa.Table.from_batches(waiting, schema).combine_chunks()
                writer.write_table(table, row_group_size=ROW_GROUP_RECORDS)
                waiting.clear()
                waiting_records = waiting_bytes = 0

        for unpacked in unpack_all(kind, batches):
            waiting.append(unpacked)
            records += unpacked.num_rows
            waiting_records += unpacked.num_rows
            waiting_bytes += unpacked.nbytes
            if waiting_records >= ROW_GROUP_RECORDS or waiting_bytes >= ROW_GROUP_BYTES:
                write_waiting()
        write_waiting()
    return records
