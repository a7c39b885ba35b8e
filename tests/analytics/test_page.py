"""The page of a report: what it says, in which order, and that nothing in it is a stranger's HTML."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from html.parser import HTMLParser
from typing import final

import pytest

from stompbroker_report.measures import Scope
from stompbroker_report.page import index, page
from tests.analytics.made_content import DATE, HOSTILE, busy_day, empty_day, outcomes, quiet_day

#: Elements without an end.
VOID = {"meta", "path", "use", "rect"}


@final
class Read(HTMLParser):
    """What a reader of a page sees: its text without style, its headings, and every element that is in it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.open: list[str] = []
        self._said: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "h2":
            self.headings.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self._said.append(data)
        if self.open and self.open[-1] == "h2":
            self.headings[-1] += data

    @property
    def said(self) -> str:
        return " ".join(" ".join(self._said).replace("\N{NO-BREAK SPACE}", " ").split())


CONTENTS = {"busy": busy_day, "quiet": quiet_day, "empty": empty_day}


@cache
def page_of(name: str) -> str:
    """Drawn once for all tests that only read it."""
    return page(CONTENTS[name]())


@pytest.mark.parametrize("name", CONTENTS)
def test_the_same_content_gives_the_same_bytes(name: str) -> None:
    assert page(CONTENTS[name]()) == page_of(name)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_page_is_whole_and_needs_nothing_but_itself(name: str) -> None:
    text = page_of(name)

    read = Read(text)

    assert read.open == []
    assert text.startswith("<!doctype html>\n")
    assert not {tag for tag, _ in read.elements} & {"script", "link", "img", "iframe", "object", "base", "form"}
    for tag, attributes in read.elements:
        assert not any(attribute.startswith("on") for attribute in attributes), (tag, attributes)
        for attribute in ("src", "href", "xlink:href"):
            assert (attributes.get(attribute) or "#").startswith("#"), (tag, attributes)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_what_is_read_over_coffee_comes_first() -> None:
    read = Read(page_of("busy"))

    assert read.headings == [
        "What stands out",
        "Dead letters",
        "Slowest subscribers",
        "Backlog",
        "The day in hours",
        "How it ended",
        "Groups and queues",
        "Topics",
        "Subscriptions",
        "Topic by subscription",
        "The days before",
    ]
    assert read.said.index("This date is complete") < read.said.index("738,614") < read.said.index("What stands out")


def test_numbers_have_separators_and_units() -> None:
    said = Read(page_of("busy")).said

    for part in ("738,614", "98.8 %", "1,204", "700 ms", "61,530", "37.2 MiB", "22 h 40 min", "usually 676,000"):
        assert part in said, part


def test_strangers_text_is_text() -> None:
    text = page_of("busy")

    assert "<script" not in text
    assert "\u202e" not in text
    assert Read(text).said.count(HOSTILE.replace("\u202e", r"\u202e")) >= 6


@pytest.mark.parametrize("name", ["<b>&\"'", "\x00\x1b[31m", "\u2028\u2066\ufeff", " ", "]]>-->", "{0}{x}%s", "مرحبا"])
def test_any_name_of_a_topic_and_a_subscription_leaves_the_page_whole(name: str) -> None:
    read = Read(page(quiet_day(topic=name, subscription=name)))

    assert read.open == []
    assert len(read.elements) == len(Read(page_of("quiet")).elements)


def test_very_long_names_are_cut_in_the_middle_and_whole_when_asked_for() -> None:
    name = "start" + "n" * 5_000 + "end"

    text = page(quiet_day(topic=name))

    titles = [attributes["title"] for tag, attributes in Read(text).elements if tag == "bdi" and "title" in attributes]
    assert titles
    assert all(title and title.startswith("startn") for title in titles)
    assert max(len(word) for word in Read(text).said.split()) <= 80
    assert "nend" in Read(text).said


def test_all_other_reasons_are_the_last_row_however_many_come_before() -> None:
    *_, rest = busy_day().reasons
    named = tuple(replace(rest, reason=f"reason {number}") for number in range(20))

    text = page(replace(busy_day(), reasons=(*named, rest)))

    assert text.index("reason 19") < text.index("all other reasons")


def test_a_date_that_is_not_complete_says_so_first() -> None:
    content = busy_day()
    until = datetime(2026, 11, 15, 17, 42, 5, tzinfo=UTC)

    so_far = Read(page(replace(content, head=replace(content.head, is_complete=False, complete_until=until)))).said
    unknown = Read(page(replace(content, head=replace(content.head, is_complete=False, complete_until=None)))).said

    assert so_far.index("This date is not complete") < so_far.index("738,614")
    assert "before 2026-11-15 17:42:05 is certain" in so_far
    assert "It is not known whether this date is complete" in unknown


def test_records_that_are_there_twice_and_unknown_outcomes_are_said() -> None:
    content = busy_day()

    said = Read(
        page(
            replace(
                content,
                head=replace(content.head, duplicate_records=12),
                day=replace(content.day, outcomes=outcomes(acked=1, unknown=7)),
            )
        )
    ).said

    assert "12 records are in the lake more than once" in said
    assert "7 deliveries ended in a way that this report does not know" in said


def test_a_day_without_deliveries_says_what_there_is() -> None:
    read = Read(page_of("empty"))

    assert read.headings == ["What stands out", "Backlog", "The days before"]
    assert "nothing to compare with" in read.said
    assert "There is no snapshot of this day" in read.said


def test_a_day_of_one_subscription_says_that_nothing_stands_out() -> None:
    said = Read(page_of("quiet")).said

    for part in (
        "Nothing stands out.",
        "No delivery used up its attempts.",
        "every durable subscription had caught up",
    ):
        assert part in said, part
    assert "1 topic topic" in said


def test_what_stands_out_is_a_sentence_and_what_belongs_to_one_name_stands_together() -> None:
    content = busy_day()
    dead, slow_ack, *_ = content.changes

    said = Read(page(content)).said
    grouped = Read(
        page(replace(content, changes=(slow_ack, dead, replace(dead, scope=slow_ack.scope, name=slow_ack.name))))
    ).said

    assert "The whole day dead letters ↑ 1,204 (109×) usually 11, between 0 and 14" in said
    assert "billing/invoices subscription p99 time to ack ↑ 1 min 4 s (58×)" in said
    assert "prices.us topic deliveries ↓ 54,321" in said
    assert "metrics.host.cpu topic new, with 903 deliveries" in said
    assert "9 more stand out less." in said
    assert grouped.index("dead letters ↑ 1,204") < grouped.index("The whole day")


def test_a_tile_whose_number_stands_out_is_marked() -> None:
    content = busy_day()
    calm = replace(content, changes=tuple(change for change in content.changes if change.scope is not Scope.DAY))

    assert page(content).count('class="tile bad"') == 1
    assert page(calm).count('class="tile bad"') == 0


def test_what_is_left_out_is_counted() -> None:
    said = Read(page_of("busy")).said

    assert "6 more 40" in said
    assert "The 8 with most deliveries, of 140 topics" in said
    assert "The other 132 have 5,120 deliveries" in said
    assert "2 more 6" in said


def test_groups_say_who_had_how_much_and_how_much_is_not_shown() -> None:
    said = Read(page_of("busy")).said

    assert "The 4 with most deliveries, of 9 groups and queues" in said
    assert "/queue/jobs 90,000 12 8.3 % 50.0 % 0.04 % 31 1,200" in said
    assert "worker-1 45,000 50.0 % 31 1.0 %" in said
    assert "2 more 400 0.44 %" in said
    assert "Groups and queues" not in Read(page_of("quiet")).said


def test_the_index_lists_the_newest_first_and_links_to_each() -> None:
    older = replace(quiet_day(), head=replace(quiet_day().head, date=DATE - timedelta(days=1), is_complete=False))

    read = Read(index([older, busy_day()]))

    links = [attributes["href"] for tag, attributes in read.elements if tag == "a"]
    assert links == ["dt=2026-11-15/report.html", "dt=2026-11-14/report.html"]
    assert "2026-11-14 Sat not complete" in read.said
