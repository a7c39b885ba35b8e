"""What one run of one scenario has found.

Law: values only. A figure is named the same in every round, so that rounds can be put together by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """How a figure is shown; the value is what the JSON says."""

    PER_SECOND = "1/s"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "µs"
    KIBIBYTES = "KiB"
    MEBIBYTES = "MiB"
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
    #: The figure it is to be read against, if any; both are taken from one round.
    compared_with: FigureKey | None = None


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """Processor time over wall time of one process while it was needed: 1.0 is one core."""

    name: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    scenario: str
    figures: tuple[Figure, ...]
    #: Everything that ran on this machine, the programs of others included.
    machine: ProcessorShare
    broker: ProcessorShare
    generators: tuple[ProcessorShare, ...]
    #: The generator follows a schedule, so that nobody is supposed to be at a limit.
    is_paced: bool = False
    #: Sentences about promises that were not kept, though the figures are still worth reading.
    broken: tuple[str, ...] = ()
