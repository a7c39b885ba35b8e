"""Where results go: the marts, and the files of each date's report.

Law: what is there is whole. Everything is written beside its place under a name that begins with a dot, which readers
skip, and then put there; doing it again gives the same. Only the dates that were asked for are touched.

    <out>/marts/<table>/dt=YYYY-MM-DD/*.parquet
    <out>/reports/dt=YYYY-MM-DD/<file>
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import functions as F

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.filesystems import Place, place_of
from stompbroker_report.schemas import MARTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import date

    from pyspark.sql import DataFrame

__all__ = ["Results"]

_UNFINISHED: Final = ".unfinished"
_REPLACED: Final = ".replaced"


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
        """Those of its rows that are of these dates; a date with no rows has no folder."""
        folder = f"{self._place.path}/marts/{table}"
        unfinished = f"{folder}/{_UNFINISHED}"
        keys = [field.name for field in MARTS[table] if field.dataType.typeName() in ("string", "integer")]
        rows = frame.select(*MARTS[table].names).where(F.col("dt").isin(*days))
        with self._writing():
            self._remove(unfinished)
            # One file per date, in one order: marts are small, and a reader has one thing to open.
            in_order = rows.repartition("dt").sortWithinPartitions("dt", *keys)
            in_order.write.partitionBy("dt").parquet(self._place.uri_of(unfinished))
            for day in days:
                self._swap(f"{unfinished}/dt={day}", f"{folder}/dt={day}", f"{folder}/{_REPLACED}-{day}")
            self._remove(unfinished)

    def read_mart(self, table: str, day: date, piece_rows: int) -> Iterator[pa.RecordBatch]:
        """What `write_mart` has written for a date, in pieces of at most so many rows."""
        with self._writing():
            for entry in self._place.listing(f"marts/{table}/dt={day}"):
                if entry.extension == "parquet" and not entry.base_name.startswith("."):
                    with pq.ParquetFile(entry.path, filesystem=self._place.filesystem) as file:
                        yield from file.iter_batches(piece_rows)

    def write_text(self, day: date, name: str, text: str) -> None:
        """A file of a date's report."""
        self._write(f"reports/dt={day}", name, text)

    def write_overview(self, name: str, text: str) -> None:
        """A file about all reports."""
        self._write("reports", name, text)

    def reports(self, name: str) -> list[str]:
        """The texts of a file, of every date that has one; the first date first."""
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
        """A folder cannot be replaced in one step: for a moment there is none."""
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
            sentence = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
            raise ReportError(Cause.UNWRITABLE, f"Results cannot be written to {self._where}: {sentence}.") from error
