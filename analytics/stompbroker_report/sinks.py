"""Where results are written and deleted: the marts, and the files of each date's report.

Readers never see half a file: everything is written under a name that begins with a dot, which they skip, and then
renamed. Writing again gives the same. Only the requested dates are touched.

    <out>/marts/<table>/dt=YYYY-MM-DD/*.parquet
    <out>/reports/dt=YYYY-MM-DD/<file>
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import date
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import functions as F

from stompbroker_report.errors import Cause, ReportError, first_line
from stompbroker_report.filesystems import Place, place_of
from stompbroker_report.schemas import MARTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark.sql import DataFrame

_UNFINISHED: Final = ".unfinished"
_REPLACED: Final = ".replaced"
#: Rows of a file that are read at once, where all are wanted.
_PIECE_ROWS: Final = 16 * 1024

#: A row, by column. Times have a timezone.
Row = dict[str, Any]


@final
class Results:
    """The directory that a report is written to.

    Raises, here and in every method:
        ReportError: it cannot be written to.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        with self._writing():
            self._place: Place = place_of(where)
            if self._place.scheme == "s3://":
                raise ReportError(
                    Cause.UNWRITABLE,
                    f"Results cannot be written to {where}: Spark cannot write to an object store. Name a directory "
                    "with --out, and copy what it holds.",
                )
            self._place.filesystem.create_dir(self._place.path, recursive=True)

    def write_mart(self, table: str, frame: DataFrame, days: Collection[date]) -> None:
        """Write the rows of these dates; a date without rows gets no folder."""
        with self._written(table, frame.where(F.col("dt").isin(*days)), days):
            pass

    def write_and_read_mart(self, table: str, frame: DataFrame, days: Collection[date]) -> list[Row]:
        """The same; returns the rows of all dates, without another job. For tables with few rows a date."""
        with self._written(table, frame, days) as inside:
            return [
                row | {"dt": day}
                for day, _ in _dates(self._place, inside)
                for piece in self._pieces(f"{inside}/dt={day}", _PIECE_ROWS)
                for row in piece.to_pylist()
            ]

    @contextmanager
    def _written(self, table: str, frame: DataFrame, days: Collection[date]) -> Iterator[str]:
        """A folder with the whole frame, by date; after the block these dates are in place, and the rest is gone."""
        inside = f"marts/{table}/{_UNFINISHED}"
        folder = f"{self._place.path}/marts/{table}"
        unfinished = f"{self._place.path}/{inside}"
        keys = [field.name for field in MARTS[table] if field.dataType.typeName() in ("string", "integer")]
        with self._writing():
            self._remove(unfinished)
            # One sorted file per date: marts are small, and readers have one file to open.
            in_order = frame.select(*MARTS[table].names).repartition("dt").sortWithinPartitions("dt", *keys)
            in_order.write.partitionBy("dt").parquet(self._place.uri_of(unfinished))
            yield inside
            for day in days:
                self._swap(f"{unfinished}/dt={day}", f"{folder}/dt={day}", f"{folder}/{_REPLACED}-{day}")
            self._remove(unfinished)

    def read_mart(self, table: str, day: date, piece_rows: int) -> Iterator[pa.RecordBatch]:
        """What `write_mart` wrote for a date, at most `piece_rows` rows at a time."""
        with self._writing():
            yield from self._pieces(f"marts/{table}/dt={day}", piece_rows)

    def _pieces(self, inside: str, piece_rows: int) -> Iterator[pa.RecordBatch]:
        for entry in self._place.listing(inside):
            if entry.extension == "parquet" and not entry.base_name.startswith("."):
                with pq.ParquetFile(entry.path, filesystem=self._place.filesystem) as file:
                    yield from file.iter_batches(piece_rows)

    def write_text(self, day: date, name: str, text: str) -> None:
        """Write a file of a date's report."""
        self._write(f"reports/dt={day}", name, text)

    def write_overview(self, name: str, text: str) -> None:
        """Write a file about all reports."""
        self._write("reports", name, text)

    def reports(self, name: str) -> list[str]:
        """The content of this file for every date that has one, oldest first."""
        with self._writing():
            texts = [
                self._place.read_text(f"reports/{entry.base_name}/{name}") for entry in self._place.listing("reports")
            ]
        return [text for text in texts if text is not None]

    def _write(self, folder: str, name: str, text: str) -> None:
        path = f"{self._place.path}/{folder}"
        with self._writing():
            self._place.filesystem.create_dir(path, recursive=True)
            with self._place.filesystem.open_output_stream(f"{path}/{_UNFINISHED}-{name}") as stream:
                stream.write(text.encode())
            self._place.filesystem.move(f"{path}/{_UNFINISHED}-{name}", f"{path}/{name}")

    def _swap(self, new: str, place: str, aside: str) -> None:
        """Replace a folder. That takes two renames; in between there is none."""
        self._remove(aside)
        if self._exists(place):
            self._place.filesystem.move(place, aside)
        if self._exists(new):
            self._place.filesystem.move(new, place)
        self._remove(aside)

    def _exists(self, path: str) -> bool:
        return bool(self._place.filesystem.get_file_info(path).type != fs.FileType.NotFound)

    def _remove(self, path: str) -> None:
        if self._exists(path):
            self._place.filesystem.delete_dir(path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            said = first_line(error)
            raise ReportError(Cause.UNWRITABLE, f"Results cannot be written to {self._where}: {said}.") from error


def delete_before(out: str, first_kept: date) -> list[date]:
    """Delete reports and marts of older dates; returns the dates that had any, oldest first.

    Only folders named after a date are deleted, where `Results` puts them.

    Raises:
        ReportError: something cannot be deleted.
    """
    deleted: set[date] = set()
    try:
        place = place_of(out)
        for folder in ("reports", *(f"marts/{name}" for name in MARTS)):
            for day, path in _dates(place, folder):
                if day < first_kept:
                    place.filesystem.delete_dir(path)
                    deleted.add(day)
    except (OSError, pa.ArrowException) as error:
        raise ReportError(Cause.UNWRITABLE, f"Old results in {out} cannot be deleted: {first_line(error)}.") from error
    return sorted(deleted)


def _dates(place: Place, folder: str) -> Iterator[tuple[date, str]]:
    for entry in place.listing(folder):
        if entry.type == fs.FileType.Directory and entry.base_name.startswith("dt="):
            with suppress(ValueError):
                yield date.fromisoformat(entry.base_name.removeprefix("dt=")), entry.path
