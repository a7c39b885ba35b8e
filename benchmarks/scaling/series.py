"""The series as data: each is one scenario with one number changed from point to point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from benchmarks.scenarios import Crowd, Throughput, topics_in_turn

_KIBIBYTE: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    #: Position on the axis.
    at: int
    scenario: Throughput | Crowd

    @property
    def name(self) -> str:
        return self.scenario.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    title: str
    #: Label of the axis.
    axis: str
    #: Whether the axis is the size of bodies.
    has_bytes: bool = False
    points: tuple[Point, ...]


def _with_subscribers(subscribers: int) -> Point:
    title = f"1 → {subscribers}"
    return Point(
        at=subscribers, scenario=Throughput(name=f"subscribers-{subscribers}", title=title, subscribers=subscribers)
    )


def _with_topics(topics: int) -> Point:
    return Point(at=topics, scenario=topics_in_turn(topics))


def _with_body(body_bytes: int) -> Point:
    scenario = Throughput(name=f"body-{body_bytes}", title=f"{body_bytes:,} bytes", body_bytes=body_bytes)
    return Point(at=body_bytes, scenario=scenario)


SERIES: Final = (
    Series(
        name="subscribers",
        title="Subscribers of one topic",
        axis="subscribers",
        points=tuple(map(_with_subscribers, (1, 2, 5, 10, 50, 200))),
    ),
    Series(
        name="topics",
        title="Topics, published to in turn, each with a subscription",
        axis="topics",
        points=tuple(map(_with_topics, (1, 10, 100, 1_000, 10_000))),
    ),
    Series(
        name="bodies",
        title="Size of the body",
        axis="bytes in a body",
        has_bytes=True,
        points=tuple(map(_with_body, (64, 256, *(size * _KIBIBYTE for size in (1, 4, 16, 64, 256, 1024))))),
    ),
)


def quickened(series: Series) -> Series:
    """The same points, measured for a third of the time."""
    return replace(
        series,
        points=tuple(
            replace(point, scenario=replace(point.scenario, duration_s=point.scenario.duration_s / 3))
            for point in series.points
        ),
    )
