"""Long lists, a page at a time: nothing twice, nothing left out, whatever comes and goes in between."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.control import ControlError, Looking, Record, TopN
from stompbroker.control.listing import Page, list_params, take_page
from stompbroker.control.looking import SLACK, STEP_ROWS
from stompbroker.control.request import Method

FIELDS = ("name", "size", "rate")


class Thing(NamedTuple):
    name: str
    size: int
    rate: float = 0.0


@dataclass(frozen=True)
class Change:
    """Between two pages."""

    added: list[Thing]
    #: Indices into what there is, modulo its length.
    removed: list[int]


# Few values, so that many are equal; names of all kinds.
names = st.text(st.sampled_from("aAbß.é\u2028\U0001f600"), min_size=1, max_size=4)
things = st.builds(Thing, names, st.integers(-2, 2), st.sampled_from([0.0, -1.5, 2.5, 1e9]))
lists = st.lists(things, max_size=30, unique_by=lambda thing: thing.name)
changes = st.builds(
    Change,
    added=st.lists(things, max_size=5, unique_by=lambda thing: thing.name),
    removed=st.lists(st.integers(0, 100), max_size=5),
)
sorts = st.sampled_from([f"{sign}{field}" for field in FIELDS for sign in ("", "-")])
limits = st.integers(1, 7)


async def ask(items: list[Thing], **params: Any) -> Page[Thing]:
    broker: Any = SimpleNamespace(looking=Looking())
    fields = {name: partial(lambda name, _, thing: getattr(thing, name), name) for name in FIELDS}
    Method(ask, Record("Things", {}), list_params(FIELDS)).check(params)
    return await take_page(broker, items, lambda thing: [thing.name], fields, **params)


def take(items: list[Thing], **params: Any) -> Page[Thing]:
    return trio.run(partial(ask, items, **params))


def take_all(items: list[Thing], **params: Any) -> list[Thing]:
    """Page by page."""
    page = take(items, **params)
    found = list(page.items)
    while page.next_cursor is not None:
        page = take(items, **params, cursor=page.next_cursor)
        assert page.items, "where there is a cursor there is something behind it"
        found += page.items
    return found


def sorted_naively(items: list[Thing], sort: str) -> list[Thing]:
    field = sort.removeprefix("-")
    return sorted(items, key=lambda thing: (getattr(thing, field), thing.name), reverse=sort.startswith("-"))


@given(lists, sorts, limits)
def test_all_pages_are_the_sorted_list(items: list[Thing], sort: str, limit: int) -> None:
    assert take_all(items, sort=sort, limit=limit) == sorted_naively(items, sort)


@given(lists, sorts, limits, st.text(st.sampled_from("aAbß."), max_size=2))
def test_a_filter_leaves_what_contains_the_text_in_whatever_case(
    items: list[Thing], sort: str, limit: int, text: str
) -> None:
    matching = [thing for thing in items if text.lower() in thing.name.lower()]
    assert take_all(items, sort=sort, limit=limit, q=text) == sorted_naively(matching, sort)
    assert take(items, sort=sort, limit=limit, q=text).total == len(matching)


@given(lists, sorts, limits, st.lists(changes, max_size=8))
def test_what_stays_is_listed_once_and_nothing_twice_whatever_comes_and_goes(
    items: list[Thing], sort: str, limit: int, changes: list[Change]
) -> None:
    present = {thing.name: thing for thing in items}
    stayed = set(present)
    page = take(list(present.values()), sort=sort, limit=limit)
    found = list(page.items)
    for change in changes:
        if page.next_cursor is None:
            break
        for index in change.removed:
            if present:
                gone = sorted(present)[index % len(present)]
                del present[gone]
                stayed.discard(gone)
        for thing in change.added:
            if thing.name not in present and thing.name not in {each.name for each in found}:
                present[thing.name] = thing
        page = take(list(present.values()), sort=sort, limit=limit, cursor=page.next_cursor)
        found += page.items
    if page.next_cursor is not None:
        found += take_all_from(list(present.values()), page.next_cursor, sort=sort, limit=limit)

    assert found == sorted_naively(found, sort), "and in order"
    listed = [thing.name for thing in found]
    assert len(listed) == len(set(listed))
    assert stayed <= set(listed)


def take_all_from(items: list[Thing], cursor: str, **params: Any) -> list[Thing]:
    found: list[Thing] = []
    following: str | None = cursor
    while following is not None:
        page = take(items, **params, cursor=following)
        found += page.items
        following = page.next_cursor
    return found


def test_the_last_page_has_no_cursor_also_when_it_is_full() -> None:
    items = [Thing(str(number), number) for number in range(6)]
    first = take(items, limit=3)
    assert first.next_cursor is not None
    second = take(items, limit=3, cursor=first.next_cursor)
    assert ([thing.name for thing in second.items], second.next_cursor) == (["3", "4", "5"], None)
    assert first.total == second.total == 6


def test_when_the_rows_behind_a_cursor_are_gone_the_page_is_empty() -> None:
    items = [Thing(str(number), number) for number in range(6)]
    cursor = take(items, limit=3).next_cursor
    assert cursor is not None
    assert take(items[:3], limit=3, cursor=cursor) == Page([], 3, None)


def test_a_hundred_are_listed_if_nobody_says_how_many() -> None:
    items = [Thing(f"{number:03}", 0) for number in range(150)]
    page = take(items)
    assert [thing.name for thing in page.items] == [f"{number:03}" for number in range(100)]


def cursor_of(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "ü",
        "====",
        cursor_of(1),
        cursor_of(None),
        cursor_of([]),
        cursor_of({}),
        cursor_of(["name", "a"]),
        cursor_of(["name", "a", "a", "a"]),
        cursor_of(["size", 1, "a"]),
        cursor_of(["-name", "a", "a"]),
        cursor_of(["name", "a", 1]),
        cursor_of(["name", None, "a"]),
        cursor_of(["name", ["a"], "a"]),
        cursor_of(["name", 1, "a"]),
        urlsafe_b64encode(b"[" * 9000).decode(),
        urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_what_is_no_cursor_of_ours_is_refused(cursor: str) -> None:
    with pytest.raises(ControlError, match="cursor is the next_cursor of an answer with the same sort"):
        take([Thing("a", 1), Thing("b", 2)], cursor=cursor)


def test_a_number_is_no_text() -> None:
    with pytest.raises(ControlError, match="cursor is"):
        take([Thing("a", 1)], sort="size", cursor=cursor_of(["size", "1", "a"]))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"sort": "colour"}, "sort is one of name, size, rate, with - before it for descending"),
        ({"sort": "--name"}, "sort is one of"),
        ({"sort": 1}, "sort is a text"),
        ({"limit": 0}, "limit is a whole number from 1 to 1000"),
        ({"limit": 1001}, "limit is a whole number from 1 to 1000"),
        ({"limit": True}, "limit is a whole number"),
        ({"q": 7}, "q is a text"),
        ({"cursor": 7}, "cursor is a text"),
    ],
)
def test_what_is_not_understood_is_refused(params: dict[str, Any], said: str) -> None:
    with pytest.raises(ControlError, match=said):
        take([], **params)


async def test_others_run_while_a_long_list_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at the time there are STEP_ROWS rows."""
    monkeypatch.setattr("stompbroker.control.looking.STEP_S", -1.0)
    items = [Thing(str(number), number) for number in range(10 * STEP_ROWS)]
    turns = 0
    is_done = False

    async def take_turns() -> None:
        nonlocal turns
        while not is_done:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await ask(items)
        is_done = True
    assert turns >= 9


@given(st.lists(st.integers(), unique=True), st.integers(1, 5), st.booleans())
def test_they_are_the_first_of_all(numbers: list[int], limit: int, is_descending: bool) -> None:
    best: TopN[tuple[int]] = TopN(limit, is_descending=is_descending)
    for number in numbers:
        best.put((number,))

    assert best.take() == [(number,) for number in sorted(numbers, reverse=is_descending)[:limit]]
    assert best.count == len(numbers)


@pytest.mark.parametrize("is_descending", [True, False])
def test_few_are_kept_of_many(is_descending: bool) -> None:
    best: TopN[tuple[int]] = TopN(3, is_descending=is_descending)
    for number in range(10 * SLACK):
        best.put((number * 7919 % (10 * SLACK),))

    assert len(best._rows) <= 3 + SLACK
    assert [row[0] for row in best.take()] == ([4999, 4998, 4997] if is_descending else [0, 1, 2])
