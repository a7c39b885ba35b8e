"""The figures of one run of one scenario.

Values only. A figure has the same name in every round, so that rounds can be combined.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """How a figure is shown; the enum's value is used in JSON."""

    PER_SECOND = "1/s"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "µs"
    KIBIBYTES = "KiB"
    MEBIBYTES = "MiB"
    MEBIBYTES_PER_SECOND = "MiB/s"
    MESSAGES = "messages"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class FigureKey:
    """Which figure of which scenario."""

    scenario: str
    figure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    value: float
    unit: Unit
    #: The figure to compare it with, if any, from the same round.
    compared_with: FigureKey | None = None


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """Processor time over wall time of one process: 1.0 is one core."""

    name: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    scenario: str
    figures: tuple[Figure, ...]
    #: Everything on this machine, including other programs.
    machine: ProcessorShare
    broker: ProcessorShare
    generators: tuple[ProcessorShare, ...]
    #: The generator follows a schedule, so nobody should be at a limit.
    is_paced: bool = False
    #: Broken promises, as sentences, if the figures are still meaningful.
    broken: tuple[str, ...] = ()
