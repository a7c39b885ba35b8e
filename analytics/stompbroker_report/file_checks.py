"""What is wrong with one Parquet file, in words.

Knows a file and the columns it should have. The caller names the file and says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import fs

#: The years 1 to 9999 in microseconds since 1970: Python has no others.
_FIRST_US: Final = -62_135_596_800_000_000
_LAST_US: Final = 253_402_300_799_999_999
#: Rows checked at once.
_PIECE_ROWS: Final = 64 * 1024


def difference(footer: pq.FileMetaData, expected: pa.Schema) -> str | None:
    """Why Spark cannot read this file as `expected`, as far as the footer says; None if it can.

    A nullable column may be missing (the file is older), and there may be others (the file is newer).
    """
    return _in_columns(footer.schema.to_arrow_schema(), expected) or _in_values(footer, expected)


def broken_texts(path: str, filesystem: fs.FileSystem, expected: pa.Schema) -> str | None:
    """Which column has texts that are not UTF-8, if any; reads all texts, since Spark does not check them.

    Raises OSError or ArrowException if the file cannot be read.
    """
    texts = [field.name for field in expected if pa.types.is_string(field.type)]
    with pq.ParquetFile(path, filesystem=filesystem) as file:
        known = [name for name in texts if name in file.schema_arrow.names]
        for piece in file.iter_batches(_PIECE_ROWS, columns=known):
            for name in known:
                try:
                    piece.column(name).validate(full=True)
                except pa.ArrowInvalid:
                    return f"its column {name!r} has a text that is not UTF-8"
    return None


def _in_columns(found: pa.Schema, expected: pa.Schema) -> str | None:
    for field in expected:
        index = found.get_field_index(field.name)
        if index == -1:
            if field.nullable:
                continue
            return f"it has no column {field.name!r}"
        kind = found.field(index).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if kind != field.type:
            return f"its column {field.name!r} is {kind}, not {field.type}"
    return None


def _in_values(footer: pq.FileMetaData, expected: pa.Schema) -> str | None:
    for column in _chunks(footer):
        name, found = column.path_in_schema, column.statistics
        index = expected.get_field_index(name)
        if index == -1 or found is None:
            continue
        field = expected.field(index)
        if not field.nullable and found.has_null_count and found.null_count:
            return f"its column {name!r} has nulls"
        is_time = pa.types.is_timestamp(field.type) and found.has_min_max
        if is_time and not _FIRST_US <= found.min_raw <= found.max_raw <= _LAST_US:
            return f"its column {name!r} has a time before the year 1 or after the year 9999"
    return None


def _chunks(footer: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    """Every column chunk of every row group."""
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            yield footer.row_group(group).column(index)
