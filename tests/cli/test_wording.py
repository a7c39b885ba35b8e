"""What clients write does nothing to a terminal, lines are broken where one would break them, and times are told as
people tell them."""

from __future__ import annotations

import sys
import unicodedata
from datetime import UTC, datetime, timedelta

import pytest

from stompbroker.cli.wording import counted, duration, in_one_piece, labelled, moment, relative
from stompbroker.visible_text import readable

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b/c%20 [red]", "a b/c%20 [red]"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\r\nb\tc", r"a\x0d\x0ab\x09c"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\u2028", r"\u2028"),
        ("\u061ca\u200e\u200f\u2066\u2069", r"\u061ca\u200e\u200f\u2066\u2069"),
        ("no\u200bthing\ufeff\xad", r"no\u200bthing\ufeff\xad"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud800", r"\ud800"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("می‌خواهم €", "می‌خواهم €"),
    ],
)
def test_what_moves_the_cursor_is_escaped_and_nothing_else(text: str, shown: str) -> None:
    assert readable(text) == shown
    assert readable(shown) == shown


def test_no_control_character_is_left() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))

    left = {sign for sign in readable(everything) if unicodedata.category(sign) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}

    assert left == {"\u200c", "\u200d"}, "joiners belong to words and to emoji"


def test_lines_can_be_kept() -> None:
    assert readable("a\r\n\tb\n\rc", keeps_lines=True) == "a\n\tb\n\\x0dc"


def test_values_stand_below_each_other_and_go_on_there() -> None:
    pairs = [
        ("a", "one two three four five"),
        ("long", "x"),
        ("", in_one_piece("five six seven eight nine")),
        ("b", ""),
    ]

    assert labelled(pairs, width=20) == [
        "  a     one two",
        "        three four",
        "        five",
        "  long  x",
        "        five six seven eight nine",
        "  b",
    ]


def test_without_a_width_no_line_is_broken() -> None:
    assert labelled([("a", "word " * 100 + "end")], width=None) == ["  a  " + "word " * 100 + "end"]


@pytest.mark.parametrize(("number", "words"), [(0, "0 letters"), (1, "1 letter"), (1234, "1,234 letters")])
def test_things_are_counted(number: int, words: str) -> None:
    assert counted(number, "letter") == words


# Times


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-86400 * 4000, "4,000 d ago"),
        (-7200, "2 h ago"),
        (-3599, "59 min ago"),
        (-60, "1 min ago"),
        (-1, "1 s ago"),
        (-0.9, "now"),
        (0, "now"),
        (0.9, "now"),
        (4.2, "in 4 s"),
        (61, "in 1 min"),
    ],
)
def test_how_far_an_instant_is_from_now(seconds: float, words: str) -> None:
    assert relative((NOW + timedelta(seconds=seconds)).isoformat(), NOW) == words


@pytest.mark.parametrize("missing", [None, ""])
def test_no_instant_is_no_text(missing: str | None) -> None:
    assert (relative(missing, NOW), moment(missing, NOW)) == ("", "")


def test_an_instant_is_told_to_the_second() -> None:
    assert moment("2029-12-31T23:59:50.999+00:00", NOW) == "2029-12-31 23:59:50 (9 s ago)"


def test_less_than_a_second_is_none() -> None:
    assert duration(0.5) == "0 s"
