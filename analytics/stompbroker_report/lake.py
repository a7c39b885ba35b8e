"""Reads the lake that the broker writes, and checks its files first.

Every footer is read before Spark starts, so a torn or foreign file gets a sentence instead of Spark's stack trace.
Files that appear later are not read, and names that begin with `_` or `.` are not data. Spark from PyPI cannot read an
object store, so the needed dates are fetched from there first.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import functions as F

from stompbroker_report.errors import Cause, ReportError, first_line
from stompbroker_report.file_checks import broken_texts, difference
from stompbroker_report.filesystems import Place, place_of
from stompbroker_report.lake_schema import TABLES
from stompbroker_report.schemas import LAKE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_COMPLETE_UNTIL: Final = "_complete_until.json"
_PARTITION: Final = "dt="
_PATTERN: Final = re.compile(r"[\\*?\[\]{}]")
_LOCAL: Final = fs.LocalFileSystem()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The files of the lake, as `open_lake` found them."""

    place: Place
    #: By table, then by date: the paths of its files. Dates without files are missing.
    files: Mapping[str, Mapping[date, tuple[str, ...]]]
    #: Of all tables together, by date.
    bytes_by_date: Mapping[date, int]
    #: Until when the lake is complete; None: it does not say.
    complete_until: datetime | None

    @property
    def dates(self) -> list[date]:
        """Dates that any table has, in order."""
        return sorted({day for table in self.files.values() for day in table})

    def is_complete(self, day: date) -> bool:
        """Whether the whole date is in the lake."""
        end = datetime.combine(day + timedelta(days=1), time(), UTC)
        return self.complete_until is not None and self.complete_until >= end

    def require(self, days: Collection[date]) -> None:
        """Check these dates before Spark is started, which takes seconds.

        Raises:
            ReportError: a date is missing, or one of its files is torn or foreign.
        """
        dates = self.dates
        missing = [day for day in sorted(days) if day not in dates]
        if missing:
            raise ReportError(
                Cause.NO_DATE,
                f"The lake {self.place.path} has nothing for {', '.join(map(str, missing[:3]))}"
                f"{f' and {len(missing) - 3} more dates' if len(missing) > 3 else ''}; it goes from {dates[0]} to "
                f"{dates[-1]}. A date is there once something was settled on it and exported: 'stompbroker ledger "
                "export' makes a broker export at once.",
            )
        for table, by_date in self.files.items():
            for day in sorted(days):
                for path in by_date.get(day, ()):
                    self._check(table, path)

    def read(self, spark: SparkSession, table: str, days: Collection[date]) -> DataFrame:
        """All rows of these dates, with `dt`; a date that is not in the lake has none.

        Raises:
            ReportError: a file is torn or foreign.
        """
        paths = [path for day in sorted(days) for path in self.files[table].get(day, ())]
        for path in paths:
            self._check(table, path)
        if not paths:
            return spark.createDataFrame([], LAKE[table])
        root = self.place.uri_of(f"{self.place.path}/{table}")
        # Spark reads a URI as a glob pattern.
        uris = [_PATTERN.sub(r"\\\g<0>", self.place.uri_of(path)) for path in paths]
        return _with_kinds(spark.read.schema(LAKE[table]).option("basePath", root).parquet(*uris))

    def raise_for_broken_texts(self, days: Collection[date]) -> None:
        """Find the file with a text that is not UTF-8 among all files of these dates, which takes a while.

        Raises:
            ReportError: names the file and the column.
        """
        for table, by_date in self.files.items():
            for path in (path for day in sorted(days) for path in by_date.get(day, ())):
                try:
                    found = broken_texts(path, self.place.filesystem, TABLES[table])
                except (OSError, pa.ArrowException) as error:
                    raise ReportError(Cause.UNREADABLE_FILE, f"{path} cannot be read: {first_line(error)}.") from error
                if found is not None:
                    raise _foreign(table, path, found)

    @property
    def is_in_object_store(self) -> bool:
        """Whether only pyarrow can read it, not Spark."""
        return self.place.scheme == "s3://"

    def fetch(self, days: Collection[date], directory: Path) -> Lake:
        """Copy these dates to a directory of this machine, as a lake of its own.

        Raises:
            ReportError: a file is torn or foreign, or cannot be fetched.
        """
        files: dict[str, dict[date, tuple[str, ...]]] = {}
        for table, by_date in self.files.items():
            files[table] = {
                day: tuple(self._fetch_one(table, path, directory / table / f"dt={day}") for path in by_date[day])
                for day in sorted(days)
                if day in by_date
            }
        return replace(self, place=place_of(str(directory)), files=files)

    def _fetch_one(self, table: str, path: str, folder: Path) -> str:
        self._check(table, path)
        folder.mkdir(parents=True, exist_ok=True)
        target = str(folder / path.rpartition("/")[2])
        try:
            fs.copy_files(path, target, source_filesystem=self.place.filesystem, destination_filesystem=_LOCAL)
        except (OSError, pa.ArrowException) as error:
            raise ReportError(Cause.UNREADABLE_FILE, f"{path} cannot be fetched: {first_line(error)}.") from error
        return target

    def _check(self, table: str, path: str) -> None:
        try:
            found = difference(pq.read_metadata(path, filesystem=self.place.filesystem), TABLES[table])
        except pa.ArrowException as error:
            raise ReportError(
                Cause.UNREADABLE_FILE,
                f"{path} is not a whole Parquet file ({first_line(error)}). The broker renames a file into the lake "
                "when it is complete, so something else wrote or cut it: move it away, or restore it from a backup.",
            ) from error
        except OSError as error:
            raise ReportError(Cause.UNREADABLE_FILE, f"{path} cannot be read: {first_line(error)}.") from error
        if found is not None:
            raise _foreign(table, path, found)


def _with_kinds(records: DataFrame) -> DataFrame:
    """Without a kind it is a topic; other kinds become part of the name, so that a queue is not taken for a topic."""
    kind = F.coalesce("kind", F.lit("topic"))
    name = F.when(kind == "topic", F.col("topic")).otherwise(F.concat(F.lit("/"), kind, F.lit("/"), "topic"))
    return records.withColumns({"kind": kind, "topic": name})


def open_lake(where: str) -> Lake:
    """Find out which dates there are.

    Raises:
        ReportError: there is no lake, it is empty, or it cannot be read.
    """
    try:
        place = place_of(where)
        files: dict[str, dict[date, tuple[str, ...]]] = {}
        bytes_by_date: Counter[date] = Counter()
        for table in TABLES:
            found = dict(_partitions(place, table))
            files[table] = {day: tuple(entry.path for entry in entries) for day, entries in found.items()}
            bytes_by_date.update({day: sum(entry.size for entry in entries) for day, entries in found.items()})
        complete_until = _complete_until(place)
    except (OSError, pa.ArrowException) as error:
        raise ReportError(Cause.NO_LAKE, f"The lake {where} cannot be read: {first_line(error)}.") from error
    lake = Lake(place=place, files=files, bytes_by_date=bytes_by_date, complete_until=complete_until)
    if not lake.dates:
        raise ReportError(
            Cause.NO_LAKE,
            f"There is nothing in the lake {where}. The broker writes settled deliveries there every hour; "
            "'stompbroker ledger export' makes it write at once.",
        )
    return lake


def _partitions(place: Place, table: str) -> Iterator[tuple[date, list[fs.FileInfo]]]:
    for folder in place.listing(table):
        name = folder.base_name
        if folder.type != fs.FileType.Directory or not name.startswith(_PARTITION):
            continue
        try:
            day = date.fromisoformat(name.removeprefix(_PARTITION))
            # Python accepts 20261115 and 2026-W46-7, Spark does not; and the last date of all has no next midnight.
            if name != f"{_PARTITION}{day}" or day == date.max:
                raise ValueError
        except ValueError:
            raise ReportError(
                Cause.UNREADABLE_FILE, f"{folder.path} is named like a date but is not one. Move it out of the lake."
            ) from None
        listed = place.listing(f"{table}/{name}")
        files = [entry for entry in listed if entry.type == fs.FileType.File and entry.base_name[:1] not in ("_", ".")]
        if files:
            yield day, files


def _complete_until(place: Place) -> datetime | None:
    text = place.read_text(_COMPLETE_UNTIL)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(json.loads(text)["complete_until"])
    except (ValueError, TypeError, KeyError) as error:
        raise ReportError(
            Cause.UNREADABLE_FILE,
            f"{place.path}/{_COMPLETE_UNTIL} does not say until when the lake is complete. Delete it: the broker "
            "writes it again with its next export.",
        ) from error
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _foreign(table: str, path: str, found: str) -> ReportError:
    return ReportError(
        Cause.UNREADABLE_FILE, f"{path} is not a file of the table {table!r}: {found}. Move it out of the lake."
    )
