"""The pictures of the report: what is in them, and that they are the same each time."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from stompbroker_report import plots
from stompbroker_report.content import BacklogSeries, Durations
from stompbroker_report.palette import DAY, NIGHT, OUTCOMES
from tests.analytics.made_content import busy_day, distribution, empty_day, hour, quiet_day, slow

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker_report.content import ReportContent

ALL: dict[str, Callable[[ReportContent], plots.Plot | None]] = {
    "outcomes": lambda content: plots.deliveries_by_outcome(content.hours),
    "topics": lambda content: plots.deliveries_by_topic(content.topic_hours),
    "attempts": lambda content: plots.attempts(content.day.attempts_distribution),
    "time to ack": lambda content: plots.time_to_ack(content.slowest),
    "backlog": lambda content: plots.backlog_over_the_day(content.backlog),
}


def texts(plot: plots.Plot | None) -> list[str]:
    """Everything that can be read in a picture."""
    assert plot is not None
    root = ElementTree.fromstring(plot.svg)
    return [
        (element.text or "").replace("\N{NO-BREAK SPACE}", " ")
        for element in root.iter("{http://www.w3.org/2000/svg}text")
    ]


@pytest.mark.parametrize("name", ALL)
def test_the_same_content_gives_the_same_bytes(name: str) -> None:
    first, second = ALL[name](busy_day()), ALL[name](busy_day())

    assert first == second
    assert first is not None


@pytest.mark.parametrize("name", ALL)
def test_a_picture_is_whole_xml_without_outside_resources_sizes_and_colours_of_its_own(name: str) -> None:
    plot = ALL[name](busy_day())
    assert plot is not None

    root = ElementTree.fromstring(plot.svg)

    assert root.get("viewBox")
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert root.get("width") is None
    assert not re.search(r"#[0-9a-f]{6}", plot.svg)
    references = re.findall(r'(?:href="|url\()([^")]*)', plot.svg)
    assert all(reference.startswith("#") for reference in references)
    assert "font-family" not in plot.svg
    assert "<metadata" not in plot.svg


@pytest.mark.parametrize("name", ALL)
def test_nothing_to_draw_is_no_picture(name: str) -> None:
    assert ALL[name](empty_day()) is None


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("outcomes", {"deliveries per hour", "hour of the day (UTC)", "24"}),
        ("topics", {"deliveries per hour", "hour of the day (UTC)"}),
        ("attempts", {"deliveries (logarithmic)", "times sent", "never", "4–5", "11+", "0.73 %"}),
        ("time to ack", {"time to ack (logarithmic)", "1 ms", "10 s", "1 min", "billing/invoices"}),
        ("backlog", {"unsettled messages", "hour of the day (UTC)"}),
    ],
)
def test_axes_have_labels_and_units(name: str, labels: set[str]) -> None:
    assert labels <= set(texts(ALL[name](busy_day())))


def test_a_day_of_one_subscription_has_every_picture() -> None:
    for draw in ALL.values():
        assert draw(quiet_day()) is not None


def test_a_day_without_backlog_has_no_parts_of_messages_on_its_axis() -> None:
    assert not any("." in text for text in texts(plots.backlog_over_the_day(quiet_day().backlog)))


def test_only_what_there_is_has_a_key_in_the_order_of_the_outcomes() -> None:
    plot = plots.deliveries_by_outcome([hour(number, dead=1, acked=1200) for number in range(24)])

    assert plot is not None
    assert [key.text for key in plot.legend] == ["acked (28,800)", "dead (24)"]
    assert [key.colour for key in plot.legend] == [OUTCOMES["acked"], OUTCOMES["dead"]]


def test_topics_beyond_the_first_few_are_one_layer() -> None:
    plot = plots.deliveries_by_topic(busy_day().topic_hours)

    assert plot is not None
    assert len(plot.legend) == plots.MAX_LINES + 1
    assert plot.legend[-1].text.startswith("all other topics (")


def test_names_of_strangers_are_text_and_no_formula_and_have_room() -> None:
    plot = plots.time_to_ack([slow("<script>\u202e$x_1$", 1.0), slow("n" * 300, 0.1), slow("日本", 0.1)])

    shown = texts(plot)
    assert r"<script>\u202e$x_1$" in shown
    assert [len(text) for text in shown if text.startswith("nnn")] == [plots.MAX_LABEL]
    assert "<script" not in (plot.svg if plot else "")


def test_times_of_nothing_stand_at_the_end_of_the_axis_and_unknown_ones_nowhere() -> None:
    known = slow("known", 1.0)
    instant = replace(known, subscription="instant", time_to_ack=replace(known.time_to_ack, p50_s=0.0))
    unknown = Durations(deliveries=0, p50_s=None, p95_s=None, p99_s=None, max_s=None)

    shown = texts(plots.time_to_ack([known, instant, replace(known, subscription="unknown", time_to_ack=unknown)]))

    assert {"known", "instant"} <= set(shown)
    assert "unknown" not in shown
    only_instant = replace(known, time_to_ack=Durations(deliveries=1, p50_s=0.0, p95_s=0.0, p99_s=0.0, max_s=0.0))
    assert plots.time_to_ack([only_instant]) is None


def test_an_hour_without_a_snapshot_breaks_the_line() -> None:
    backlog = quiet_day().backlog
    points = tuple(point for point in backlog.points if point.hour_utc not in (4, 5))

    whole = plots.backlog_over_the_day(backlog)
    broken = plots.backlog_over_the_day(
        replace(backlog, points=points, series=(BacklogSeries(subscription="a", points=points),))
    )

    assert whole is not None
    assert broken is not None
    # A line begins with M; the axes' own are in both.
    assert len(re.findall(r"\bM ", broken.svg)) > len(re.findall(r"\bM ", whole.svg))


def test_drawing_leaves_the_settings_of_others_alone() -> None:
    before = dict(mpl.rcParams)

    plots.attempts(distribution(0, 5, 1))

    assert dict(mpl.rcParams) == before


# The colours


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [DAY, NIGHT], ids=["day", "night"])
def test_text_and_lines_can_be_told_from_what_they_stand_on(scheme: dict[str, str]) -> None:
    for name in ("ink", "muted", "accent", "bad"):
        assert contrast(scheme[name], scheme["surface"]) >= 4.5, name
        assert contrast(scheme[name], scheme["ground"]) >= 4.5, name
    for name in ("good", "warn", "bad"):
        assert contrast(scheme[name], scheme[f"{name}-ground"]) >= 4.5, name
    for name in OUTCOMES.values():
        assert contrast(scheme[name], scheme["surface"]) >= 3, name


def test_every_colour_has_a_name_of_its_own_in_both_schemes() -> None:
    assert list(DAY) == list(NIGHT)
    assert len(set(DAY.values())) == len(DAY)
