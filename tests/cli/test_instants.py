"""How points in time are said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stompbroker.cli.instants import duration, moment, relative

NOW = datetime(2030, 1, 1, tzinfo=UTC)


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
