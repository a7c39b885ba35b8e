"""How long results are kept: reports and marts of old dates are deleted.

Law: deletes folders that are named after a date and lie where this package puts them, and nothing else.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import fs

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.filesystems import place_of
from stompbroker_report.schemas import MARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbroker_report.filesystems import Place

__all__ = ["delete_before"]

_PARTITION: Final = "dt="


def delete_before(out: str, first_kept: date) -> list[date]:
    """Delete what is older than that date; returns the dates of which there was something, the oldest first.

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
        said = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise ReportError(Cause.UNWRITABLE, f"Old results in {out} cannot be deleted: {said}.") from error
    return sorted(deleted)


def _dates(place: Place, folder: str) -> Iterator[tuple[date, str]]:
    for entry in place.listing(folder):
        if entry.type != fs.FileType.Directory or not entry.base_name.startswith(_PARTITION):
            continue
        try:
            yield date.fromisoformat(entry.base_name.removeprefix(_PARTITION)), entry.path
        except ValueError:
            continue
