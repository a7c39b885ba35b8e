"""Everything that a run has found, and nothing that can be computed from it.

Frozen values that can be saved as JSON and loaded again. An outcome belongs to one broker, scenario and round; it has a
measurement, or a sentence that says why not.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit

#: The broker that others are compared with.
OURS: Final = "stompbroker"
#: The same broker on another database.
ON_POSTGRES: Final = "postgres"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A broker that takes part, or would if installed."""

    name: str
    title: str
    #: Empty if it is not installed; then `missing` says how to install it.
    version: str
    missing: str = ""
    #: Its configuration, and why that is fair.
    configuration: str = ""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Why there is no measurement. `is_broken` tells a fault from a missing ability."""

    reason: str
    is_broken: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    contestant: str
    scenario: str
    round_number: int
    found: Measurement | Unmeasured


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    processor: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    #: Type of the brokers' file system.
    disk: str
    #: Duration of an fsync of 4 KiB there.
    fsync_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    started_at: str
    took_s: float
    commit: str
    rounds: int
    #: Whether measurements were too short for meaningful numbers.
    is_quick: bool
    machine: Machine
    contestants: tuple[Contestant, ...]
    outcomes: tuple[Outcome, ...]


def to_json(results: Results) -> str:
    return as_json(asdict(results))


def as_json(document: object) -> str:
    """One value per line, so that `diff` can compare two runs."""
    return json.dumps(document, indent=1, ensure_ascii=False, default=_enum_value) + "\n"


def from_json(text: str) -> Results:
    return from_document(json.loads(text))


def from_document(document: dict[str, Any]) -> Results:
    """From the loaded JSON of `asdict`."""
    return Results(
        **{
            **document,
            "machine": Machine(**document["machine"]),
            "contestants": tuple(Contestant(**each) for each in document["contestants"]),
            "outcomes": tuple(_outcome(each) for each in document["outcomes"]),
        }
    )


def _enum_value(unit: object) -> str:
    assert isinstance(unit, Unit)
    return unit.value


def _outcome(document: dict[str, Any]) -> Outcome:
    found = document["found"]
    return Outcome(**{**document, "found": Unmeasured(**found) if "reason" in found else _measurement(found)})


def _measurement(document: dict[str, Any]) -> Measurement:
    return Measurement(
        **{
            **document,
            "figures": tuple(_figure(each) for each in document["figures"]),
            "machine": ProcessorShare(**document["machine"]),
            "broker": ProcessorShare(**document["broker"]),
            "generators": tuple(ProcessorShare(**each) for each in document["generators"]),
            "broken": tuple(document["broken"]),
        }
    )


def _figure(document: dict[str, Any]) -> Figure:
    compared_with = document["compared_with"]
    return Figure(
        **{
            **document,
            "unit": Unit(document["unit"]),
            "compared_with": None if compared_with is None else FigureKey(**compared_with),
        }
    )
