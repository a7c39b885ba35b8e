"""The lake that the broker has written, checked before anything is computed from it.

Law: the only place that reads it. Every file's footer is read first, so that a torn or foreign one is named in a
sentence; Spark would end in a stack trace, or take other columns for ours. A file that appears later is not read.
Names that begin with `_` or `.` are not data. Spark from PyPI cannot read an object store, so what is needed of a lake
there is fetched first.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import functions as F

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.file_checks import broken_texts, difference
from stompbroker_report.filesystems import Place, place_of
from stompbroker_report.lake_schema import TABLES
from stompbroker_report.schemas import LAKE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Lake", "open_lake"]

_COMPLETE_UNTIL: Final = "_complete_until.json"
_PARTITION: Final = "dt="
_PATTERN: Final = re.compile(r"[\\*?\[\]{}]")
_LOCAL: Final = fs.LocalFileSystem()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """What there is, as it was when `open_lake` looked."""

    place: Place
    #: By table, then by date; every file by its path. A date without files is not in it.
    files: Mapping[str, Mapping[date, tuple[str, ...]]]
    #: Up to when everything is there; None: the lake does not say.
    complete_until: datetime | None

    @property
    def dates(self) -> list[date]:
        """In one of the tables, the first first."""
        return sorted({day for table in self.files.values() for day in table})

    def is_complete(self, day: date) -> bool:
        """Whether the whole date is there."""
        end = datetime.combine(day + timedelta(days=1), time(), UTC)
        return self.complete_until is not None and self.complete_until >= end

    def require(self, days: Collection[date]) -> None:
        """That these dates are there, and whole: before Spark is started, which takes seconds.

        Raises:
            ReportError: one is missing, or a file of one is torn, or is none of ours.
        """
        dates = self.dates
        missing = [day for day in sorted(days) if day not in dates]
        if missing:
            raise ReportError(
                Cause.NO_DATE,
                f"The lake {self.place.path} has nothing for {', '.join(map(str, missing[:3]))}"
                f"{f' and {len(missing) - 3} more dates' if len(missing) > 3 else ''}; it goes from {dates[0]} to "
                f"{dates[-1]}. A date is there once something was settled on it and exported: 'stompbroker ledger "
                "export' has a broker export at once.",
            )
        for table, by_date in self.files.items():
            for day in sorted(days):
                for path in by_date.get(day, ()):
                    self._check(table, path)

    def read(self, spark: SparkSession, table: str, days: Collection[date]) -> DataFrame:
        """All rows of these dates, with `dt`; a date that the lake does not have has none.

        Raises:
            ReportError: a file is torn, or is none of ours.
        """
        paths = [path for day in sorted(days) for path in self.files[table].get(day, ())]
        for path in paths:
            self._check(table, path)
        if not paths:
            return spark.createDataFrame([], LAKE[table])
        root = self.place.uri_of(f"{self.place.path}/{table}")
        # Spark takes an address for a pattern.
        uris = [_PATTERN.sub(r"\\\g<0>", self.place.uri_of(path)) for path in paths]
        return _with_kinds(spark.read.schema(LAKE[table]).option("basePath", root).parquet(*uris))

    def raise_for_broken_texts(self, days: Collection[date]) -> None:
        """For when a text was met that is not UTF-8: looks through all files of these dates, which takes a while.

        Raises:
            ReportError: one of them has it, in this column.
        """
        for table, by_date in self.files.items():
            for path in (path for day in sorted(days) for path in by_date.get(day, ())):
                try:
                    found = broken_texts(path, self.place.filesystem, TABLES[table])
                except (OSError, pa.ArrowException) as error:
                    raise ReportError(Cause.UNREADABLE_FILE, f"{path} cannot be read: {_first_line(error)}.") from error
                if found is not None:
                    raise _foreign(table, path, found)

    @property
    def is_in_object_store(self) -> bool:
        """Whether only pyarrow can read it."""
        return self.place.scheme == "s3://"

    def fetch(self, days: Collection[date], directory: Path) -> Lake:
        """The same lake with these dates alone, as files in a directory of this machine.

        Raises:
            ReportError: a file is torn, is none of ours, or cannot be fetched.
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
            raise ReportError(Cause.UNREADABLE_FILE, f"{path} cannot be fetched: {_first_line(error)}.") from error
        return target

    def _check(self, table: str, path: str) -> None:
        try:
            found = difference(pq.read_metadata(path, filesystem=self.place.filesystem), TABLES[table])
        except pa.ArrowException as error:
            raise ReportError(
                Cause.UNREADABLE_FILE,
                f"{path} is not a whole Parquet file ({_first_line(error)}). The broker renames a file into the lake "
                "when it is complete, so something else wrote or cut it: move it away, or restore it from a backup.",
            ) from error
        except OSError as error:
            raise ReportError(Cause.UNREADABLE_FILE, f"{path} cannot be read: {_first_line(error)}.") from error
        if found is not None:
            raise _foreign(table, path, found)


def _with_kinds(records: DataFrame) -> DataFrame:
    """What does not say its kind is a topic; others have it in their names, so that no topic is taken for a queue."""
    kind = F.coalesce("kind", F.lit("topic"))
    name = F.when(kind == "topic", F.col("topic")).otherwise(F.concat(F.lit("/"), kind, F.lit("/"), "topic"))
    return records.withColumns({"kind": kind, "topic": name})


def open_lake(where: str) -> Lake:
    """Looks which dates there are.

    Raises:
        ReportError: there is no lake, it is empty, or it cannot be read.
    """
    try:
        place = place_of(where)
        files = {table: dict(_partitions(place, table)) for table in TABLES}
        complete_until = _complete_until(place)
    except (OSError, pa.ArrowException) as error:
        raise ReportError(Cause.NO_LAKE, f"The lake {where} cannot be read: {_first_line(error)}.") from error
    lake = Lake(place=place, files=files, complete_until=complete_until)
    if not lake.dates:
        raise ReportError(
            Cause.NO_LAKE,
            f"There is nothing in the lake {where}. The broker writes settled deliveries there every hour; "
            "'stompbroker ledger export' has it write at once.",
        )
    return lake


def _partitions(place: Place, table: str) -> Iterator[tuple[date, tuple[str, ...]]]:
    for folder in place.listing(table):
        name = folder.base_name
        if folder.type != fs.FileType.Directory or not name.startswith(_PARTITION):
            continue
        try:
            day = date.fromisoformat(name.removeprefix(_PARTITION))
            # 20261115 and 2026-W46-7 are dates to Python, and none to Spark; and the last one of all has no end.
            if name != f"{_PARTITION}{day}" or day == date.max:
                raise ValueError
        except ValueError:
            raise ReportError(
                Cause.UNREADABLE_FILE, f"{folder.path} is named like a date and is none. Move it out of the lake."
            ) from None
        listed = place.listing(f"{table}/{name}")
        paths = tuple(
            entry.path for entry in listed if entry.type == fs.FileType.File and entry.base_name[:1] not in ("_", ".")
        )
        if paths:
            yield day, paths


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
            "writes it anew with its next export.",
        ) from error
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _foreign(table: str, path: str, found: str) -> ReportError:
    return ReportError(
        Cause.UNREADABLE_FILE, f"{path} is not a file of the table {table!r}: {found}. Move it out of the lake."
    )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
