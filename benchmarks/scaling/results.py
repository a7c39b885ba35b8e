"""Everything that a scaling run has found.

Frozen values that can be saved as JSON and loaded again. Points of a series are outcomes as in the comparison, with
ours as the only broker; the long run has slices, or a sentence that says why not.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.comparison.results import Results, Unmeasured, as_json, from_document
from benchmarks.scaling.long_run import LongRun, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRunFound:
    run: LongRun
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    series: Results
    #: None if it was not requested.
    long_run: LongRunFound | Unmeasured | None


def to_json(growth: Growth) -> str:
    return as_json(asdict(growth))


def from_json(text: str) -> Growth:
    document = json.loads(text)
    long_run = document["long_run"]
    return Growth(series=from_document(document["series"]), long_run=None if long_run is None else _long_run(long_run))


def _long_run(document: dict[str, Any]) -> LongRunFound | Unmeasured:
    if "reason" in document:
        return Unmeasured(**document)
    return LongRunFound(
        run=LongRun(**document["run"]), slices=tuple(Slice(**one_slice) for one_slice in document["slices"])
    )
