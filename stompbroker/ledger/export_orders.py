"""What the exporting process is told, and what it answers: JSON on standard input, and a line for each file on output.

The database's password goes this way, and on no command line.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple, final

from stompbroker.storage import ExportRow

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOrder:
    #: As in the settings.
    database: str
    data: str
    lake: str
    store_id: str
    exports: Sequence[ExportRow]
    #: What the lake says when all files are there.
    complete_until_ns: int
    exported_at_ns: int
    #: Remove unfinished files and everything before this day; None: neither.
    delete_before_day: int | None

    def as_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, given: bytes) -> ExportOrder:
        fields = json.loads(given)
        fields["exports"] = [ExportRow(*row) for row in fields["exports"]]
        return cls(**fields)


class FileWritten(NamedTuple):
    export: int
    #: Within the lake.
    path: str
    records: int

    def as_line(self) -> str:
        return json.dumps(list(self))

    @classmethod
    def read_all(cls, output: bytes) -> list[FileWritten]:
        """Of whole lines: a killed process may leave half a line."""
        return [cls(*json.loads(line)) for line in output.splitlines(keepends=True) if line.endswith(b"\n")]
