"""Long lists, a page at a time.

Law: filtered by a text, sorted by one field and then by name, and cut to a page; the cursor names the last row of a
page by its value and name, so that the next page begins behind it whatever has come or gone in between. Looking at all
rows is done in short steps; only the rows of the page are described.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from stompbroker.control.request import ControlError, number, optional_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from stompbroker.control.looking import Looking

__all__ = ["LIST_PARAMS", "Best", "Page", "Wanted", "described", "take_page"]

LIST_PARAMS: Final = frozenset({"q", "sort", "limit", "cursor"})
MAX_LIMIT: Final = 1000
DEFAULT_LIMIT: Final = 100
#: Rows looked at between two looks at the time.
STEP_ROWS: Final = 20
#: Rows gathered before those are dropped that are not among the first.
SLACK: Final = 500
_NO_CURSOR: Final = "cursor is the next_cursor of an answer with the same sort"

Item = TypeVar("Item")
Row = TypeVar("Row", bound=tuple[Any, ...])
Key = tuple[Any, str]


@final
class Best(Generic[Row]):
    """The first `limit` of many rows, in their order. Others are dropped now and then, a little at a time, so that
    neither the last step nor the memory grows with how many there are.

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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which page of a list."""

    text: str
    field: str
    is_descending: bool
    limit: int
    after: Key | None

    @classmethod
    def read(cls, params: Mapping[str, Any], fields: Sequence[str]) -> Wanted:
        """Raises ControlError. The first of the fields is the default."""
        sort = optional_text("sort", params.get("sort")) or fields[0]
        name = sort.removeprefix("-")
        if name not in fields:
            raise ControlError(f"sort is one of {', '.join(fields)}, with - before it for descending, not {sort!r}")
        return cls(
            text=(optional_text("q", params.get("q")) or "").lower(),
            field=name,
            is_descending=sort.startswith("-"),
            limit=number("limit", params.get("limit", DEFAULT_LIMIT), 1, MAX_LIMIT),
            after=_read_cursor(optional_text("cursor", params.get("cursor")), sort),
        )

    def cursor(self, key: Key) -> str:
        sort = f"-{self.field}" if self.is_descending else self.field
        return urlsafe_b64encode(json.dumps([sort, *key]).encode()).decode()


@final
@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    items: list[Item]
    #: How many there are that match.
    total: int
    next_cursor: str | None

    def described(self, name: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        return {"total": self.total, "next_cursor": self.next_cursor, name: items}


async def take_page(
    wanted: Wanted,
    items: Iterable[Item],
    texts: Callable[[Item], Sequence[str]],
    value: Callable[[Item], Any],
    looking: Looking,
) -> Page[Item]:
    """`texts`: what is searched, its name, which is like no other's, first. `value`: what is sorted by."""
    listed = list(items)
    behind: Best[tuple[Key, int]] = Best(wanted.limit, is_descending=wanted.is_descending)
    total = 0
    async with looking.at_once() as look:
        for index, item in enumerate(listed):
            searched = texts(item)
            if not wanted.text or any(wanted.text in text.lower() for text in searched):
                total += 1
                key = value(item), searched[0]
                if wanted.after is None or _is_behind(key, wanted.after, is_descending=wanted.is_descending):
                    behind.put((key, index))
            if index % STEP_ROWS == 0 and look.is_over:
                await look.pause()
    picked = behind.take()
    return Page(
        [listed[index] for _, index in picked],
        total,
        wanted.cursor(picked[-1][0]) if behind.count > len(picked) else None,
    )


async def described(
    describe: Callable[[Item], dict[str, Any]], items: Iterable[Item], looking: Looking
) -> list[dict[str, Any]]:
    """In short steps between which others run: each entry is consistent."""
    found = []
    async with looking.at_once() as look:
        for item in items:
            found.append(describe(item))
            if look.is_over:
                await look.pause()
    return found


def _is_behind(key: Key, after: Key, *, is_descending: bool) -> bool:
    if isinstance(key[0], str) != isinstance(after[0], str):
        raise ControlError(_NO_CURSOR)  # made by somebody else
    return key < after if is_descending else key > after


def _read_cursor(cursor: str | None, sort: str) -> Key | None:
    if cursor is None:
        return None
    try:
        made_for, value, name = json.loads(urlsafe_b64decode(cursor))
        if made_for == sort and isinstance(name, str) and isinstance(value, (int, float, str)):
            return value, name
    except (ValueError, TypeError, RecursionError):
        pass  # whatever it is, it is none of ours
    raise ControlError(_NO_CURSOR)
