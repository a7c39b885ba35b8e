"""All that a run has found, and nothing that can be computed from it.

Law: frozen values that become JSON and come back the same. An outcome is of one broker in one scenario of one round;
either it has a measurement, or a sentence that says why not.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit

#: The broker that all others are compared with.
OURS: Final = "stompbroker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A broker that takes part, or would if it were installed."""

    name: str
    title: str
    #: Empty if it is not installed; then `missing` says how it can be.
    version: str
    missing: str = ""
    #: What it was given, and why that is fair.
    configuration: str = ""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Why there is no measurement. `is_broken` tells what went wrong from what cannot be asked of a broker."""

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
    #: Of the file system that the brokers keep their data on.
    disk: str
    #: How long 4 KiB take to be safe there.
    fsync_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    started_at: str
    took_s: float
    commit: str
    rounds: int
    #: Whether measurements were so short that the numbers are only a sign of life.
    is_quick: bool
    machine: Machine
    contestants: tuple[Contestant, ...]
    outcomes: tuple[Outcome, ...]


def to_json(results: Results) -> str:
    return as_json(asdict(results))


def as_json(document: object) -> str:
    """With one value to a line, so that two runs can be compared by `diff`."""
    return json.dumps(document, indent=1, ensure_ascii=False, default=_enum_value) + "\n"


def from_json(text: str) -> Results:
    return from_document(json.loads(text))


def from_document(document: dict[str, Any]) -> Results:
    """From what `asdict` makes of it, once it has been JSON."""
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
