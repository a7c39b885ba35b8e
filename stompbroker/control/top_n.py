"""The first few of many, while one goes through them.

Law: rows in, those that come first out, in their order. What cannot be among them is dropped now and then, a little at
a time, so that neither the last step nor the memory grows with how many there are.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, final

__all__ = ["Best"]

#: Rows gathered before those are dropped that are not among the first.
SLACK: Final = 500

Row = TypeVar("Row", bound=tuple[Any, ...])


@final
class Best(Generic[Row]):
    """
    Invariants:
        count is the number of rows that were put, and all of the first `limit` of them are kept
    """

    __slots__ = ("_is_descending", "_limit", "_rows", "count")

    def __init__(self, limit: int, *, is_descending: bool) -> None:
        self._limit = limit
        self._is_descending = is_descending
        self._rows: list[Row] = []
        self.count = 0

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._rows)

    def put(self, row: Row) -> None:
        self.count += 1
        self._rows.append(row)
        if len(self._rows) >= self._limit + SLACK:
            self._rows = self.take()

    def take(self) -> list[Row]:
        return sorted(self._rows, reverse=self._is_descending)[: self._limit]
