"""Numbers as a person reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker_report.readable_numbers import compact, count, duration, factor, share, size


def plain(text: str) -> str:
    """With blanks that break, as one writes them in a test."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (-3, "0 s"),
        (0.0000003, "0.3 µs"),
        (0.00035, "350 µs"),
        (0.0009996, "1 ms"),
        (0.035, "35 ms"),
        (0.0354, "35.4 ms"),
        (0.9996, "1 s"),
        (1.2, "1.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (200, "3 min 20 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (86399, "1 d"),
        (273_600, "3 d 4 h"),
        (100_000_000, "1,157 d 10 h"),
    ],
)
def test_a_time_has_the_unit_that_fits_it(seconds: float | None, text: str) -> None:
    assert plain(duration(seconds)) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (None, "–"),
        (0, "0 %"),
        (0.00001, "< 0.01 %"),
        (0.0042, "0.42 %"),
        (0.042, "4.2 %"),
        (0.995, "99.50 %"),
        (0.99999, "> 99.99 %"),
        (1, "100 %"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_to_all(part: float | None, text: str) -> None:
    assert plain(share(part)) == text


@pytest.mark.parametrize(
    ("number_of_bytes", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (20.3 * 1024**2, "20.3 MiB"), (5e12, "4.55 TiB")],
)
def test_a_size_has_the_unit_that_fits_it(number_of_bytes: float | None, text: str) -> None:
    assert plain(size(number_of_bytes)) == text


def test_counts_have_separators_and_axes_have_little_room() -> None:
    assert [count(None), count(0), count(1_234_567)] == ["–", "0", "1,234,567"]
    assert [plain(compact(number)) for number in (0, 950, 1_200, 35_000_000)] == ["0", "950", "1.2 k", "35 M"]
    assert [factor(None), factor(3.14), factor(109.4)] == ["–", "3.1×", "109×"]


@given(st.floats(min_value=0, max_value=1e10))
def test_no_time_breaks_a_line_or_is_long(seconds: float) -> None:
    text = duration(seconds)

    assert " " not in text
    assert len(text) <= len("115,740 d 23 h")


@given(st.floats(min_value=1e-6, max_value=1e9), st.floats(min_value=1.2, max_value=1e3))
def test_a_time_that_is_much_longer_is_written_otherwise(seconds: float, times: float) -> None:
    assert duration(seconds) != duration(seconds * times)
