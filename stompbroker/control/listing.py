"""Long lists, a page at a time.

Law: rows are filtered by a text, sorted by one field and then by name. A cursor holds the value and name of a page's
last row, so the next page begins behind it whatever has come or gone since. Rows are gone through in short steps.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from stompbroker.control.looking import STEP_ROWS, TopN
from stompbroker.control.records import Record, Shown
from stompbroker.control.request import ControlError, Param

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stompbroker.control.caller import Caller
    from stompbroker.control.looking import Looking
    from stompbroker.control.parts import BrokerParts
    from stompbroker.control.records import SortFields
    from stompbroker.delivery import Pattern

MAX_LIMIT: Final = 1000
DEFAULT_LIMIT: Final = 100
_NO_CURSOR: Final = "cursor is the next_cursor of an answer with the same sort"
Item = TypeVar("Item")
Key = tuple[Any, str]


def list_params(fields: Iterable[str]) -> dict[str, Param]:
    """What `take_page` takes, for a list that can be sorted by these fields."""
    sorts = tuple(f"{sign}{name}" for name in fields for sign in ("", "-"))
    return {
        "q": Param(says="Only what contains this text."),
        "sort": Param(says="By which field; - before it for descending.", choices=sorts),
        "limit": Param(says="Entries in one answer; 100 if not given.", kind=int, low=1, high=MAX_LIMIT),
        "cursor": Param(says="The next_cursor of the answer before."),
    }


def page_of(name: str, record: Record[Any]) -> Record[Any]:
    """What `Page.answer` makes."""
    return Record(
        "".join(word.capitalize() for word in name.split("_")),
        {
            "total": Shown(int, says="How many there are that match."),
            "next_cursor": Shown(str | None, says="For the next page; null on the last one."),
            name: Shown([record]),
        },
    )


@final
@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    items: list[Item]
    #: How many there are that match.
    total: int
    next_cursor: str | None

    def answer(self, name: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        return {"total": self.total, "next_cursor": self.next_cursor, name: items}


async def seen(
    broker: BrokerParts, caller: Caller, items: Iterable[Item], destination: Callable[[Item], Pattern]
) -> list[Item]:
    """Those whose destination the caller sees."""
    listed = list(items)
    if not caller.is_restricted:
        return listed
    found = []
    async with broker.looking.at_once() as look:
        for item in listed:
            if caller.sees(destination(item)):
                found.append(item)
            await look.pause_if_over()
    return found


async def take_page(
    broker: BrokerParts,
    items: Iterable[Item],
    texts: Callable[[Item], Sequence[str]],
    fields: SortFields[Item],
    *,
    q: str = "",
    sort: str | None = None,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
) -> Page[Item]:
    """`texts` are searched for `q`; the first is the name, which must be unique."""
    sort = sort or next(iter(fields))
    value, is_descending = fields[sort.removeprefix("-")], sort.startswith("-")
    after = None if cursor is None else _read_cursor(cursor, sort)
    q = q.lower()
    listed = list(items)
    behind: TopN[tuple[Key, int]] = TopN(limit, is_descending=is_descending)
    total = 0
    async with broker.looking.at_once() as look:
        for index, item in enumerate(listed):
            searched = texts(item)
            if not q or any(q in text.lower() for text in searched):
                total += 1
                key = value(broker, item), searched[0]
                if after is None or _is_behind(key, after, is_descending=is_descending):
                    behind.put((key, index))
            if index % STEP_ROWS == 0:
                await look.pause_if_over()
    picked = behind.take()
    has_more = behind.count > len(picked)
    next_cursor = urlsafe_b64encode(json.dumps([sort, *picked[-1][0]]).encode()).decode() if has_more else None
    return Page([listed[index] for _, index in picked], total, next_cursor)


async def described(
    describe: Callable[[Item], dict[str, Any]], items: Iterable[Item], looking: Looking
) -> list[dict[str, Any]]:
    """In short steps, between which others run: each entry is consistent in itself."""
    found = []
    async with looking.at_once() as look:
        for item in items:
            found.append(describe(item))
            await look.pause_if_over()
    return found


def _is_behind(key: Key, after: Key, *, is_descending: bool) -> bool:
    if isinstance(key[0], str) != isinstance(after[0], str):
        raise ControlError(_NO_CURSOR)  # somebody else made it
    return key < after if is_descending else key > after


def _read_cursor(cursor: str, sort: str) -> Key:
    try:
        made_for, value, name = json.loads(urlsafe_b64decode(cursor))
        if made_for == sort and isinstance(name, str) and isinstance(value, (int, float, str)):
            return value, name
    except (ValueError, TypeError, RecursionError):
        pass  # no cursor of ours
    raise ControlError(_NO_CURSOR)
