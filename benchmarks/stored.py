"""What the measured broker has on disk: rows of its embedded database, sizes of its files.

Reads only what costs the broker next to nothing: sizes, counts of small tables, the end of an index. Transactions end
before a method returns, so that no checkpoint waits for them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self, final

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_DATABASE: Final = "stompbroker.db"

SmallTable = Literal["cursors", "redeliveries"]


@final
class Stored:
    """The database of a running broker, for the length of a `with` block."""

    def __init__(self, data: Path) -> None:
        uri = f"{(data / _DATABASE).absolute().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def row_count(self, table: SmallTable) -> int:
        return int(self._value(f"SELECT count(*) FROM {table}"))

    def largest_cursor_bytes(self) -> int:
        """Size of the largest cursor's settled ranges."""
        return int(self._value("SELECT coalesce(max(length(settled)), 0) FROM cursors"))

    def topic_id(self, topic: str) -> int:
        return int(self._value("SELECT id FROM topics WHERE name = ?", topic))

    def has_messages(self, topic_id: int) -> bool:
        return bool(self._value("SELECT EXISTS (SELECT 1 FROM messages WHERE topic_id = ?)", topic_id))

    def free_bytes(self) -> int:
        """Unused bytes of the file, which new messages fill before it grows."""
        return int(self._value("PRAGMA freelist_count")) * int(self._value("PRAGMA page_size"))

    def _value(self, query: str, *parameters: object) -> Any:
        with closing(self._connection.execute(query, parameters)) as cursor:
            return cursor.fetchone()[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSizes:
    database_bytes: int
    #: Of the write-ahead log.
    log_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.database_bytes + self.log_bytes


def sizes_in(data: Path) -> StoreSizes:
    """Sizes of a broker's embedded database, which may not exist yet or any more."""
    return StoreSizes(
        database_bytes=_size_of(data / _DATABASE),
        log_bytes=_size_of(data / f"{_DATABASE}-wal"),
    )


def bytes_in(data: Path) -> int:
    """Size of all files of the broker: database, write-ahead log and others."""
    return sum(map(_size_of, data.glob("*")))


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # removed since it was listed
        return 0
