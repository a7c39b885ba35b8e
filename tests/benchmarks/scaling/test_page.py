"""The page about growth."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.comparison.results import Unmeasured
from benchmarks.scaling import page
from benchmarks.scaling.results import LongRunFound
from tests.benchmarks.scaling.made_growth import RUN, growth, slices


def test_a_row_has_median_spread_ratio_cost_and_what_limited_it() -> None:
    text = page.rendered(growth(), {})

    assert "| 1 | **500 k/s** (400 k/s – 600 k/s) | 1.00 × | 2.00 µs | broker |\n" in text
    assert "| 10 | **1.50 M/s** | 3.00 × | 0.50 µs | **GENERATOR** |\n" in text


def test_where_bodies_grow_their_bytes_stand_instead_of_a_ratio() -> None:
    text = page.rendered(growth(), {})

    assert "| bytes in a body | deliveries | bodies delivered | broker per delivery | limit |\n" in text
    assert "| 1,048,576 | **500 /s** | 500 MiB/s | 2,000 µs | broker |\n" in text


def test_a_point_that_broke_has_its_reason_below_the_table_of_its_series() -> None:
    assert "- 10 topics: **BROKEN**: it died with a log\n" in page.rendered(growth(), {})


def test_a_long_run_has_its_flatness_and_a_row_for_each_slice() -> None:
    costs_us = [90.0] * 3 + [50.0] * 3 + [52.0] * 3 + [55.0] * 3

    text = page.rendered(growth(LongRunFound(run=RUN, slices=slices(*costs_us))), {})

    assert "600,000 messages in 2 minutes" in text
    assert "quarter of the run it is **1.10 ×** that of the second quarter" in text
    assert "| 2.0 | 55.0 µs | 1.50 ms | 120 MiB |\n" in text
    assert text.count(" 1.50 ms |") == len(costs_us)


def test_a_long_run_that_broke_says_so_and_one_that_was_not_asked_for_says_nothing() -> None:
    assert "## Over time\n\n**BROKEN**: it died\n" in page.rendered(growth(Unmeasured("it died", is_broken=True)), {})
    assert "## Over time" not in page.rendered(growth(), {})


def test_circumstances_and_pictures_are_shown_and_a_quick_run_says_that_it_is_no_measure() -> None:
    made = growth()

    text = page.rendered(replace(made, series=replace(made.series, is_quick=True)), {"bodies": "plots/a.svg"})

    assert "| commit | 0123456789ab |" in text
    assert "| stompbroker | 1.0 |" in text
    assert "## Size of the body\n\n![a](plots/a.svg)\n" in text
    assert "no measure of anything" in text
    assert "no measure of anything" not in page.rendered(made, {})
