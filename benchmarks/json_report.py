"""The results for programs: every value of every round, with the machine they come from.

Names and units are those of `scenarios` and `measurement`; a key never changes its meaning.
"""

from __future__ import annotations

import json
import os
import platform
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.rounds import Breakage
    from benchmarks.summary import FigureSummary, ScenarioSummary


def rendered(summaries: Sequence[ScenarioSummary], breakages: Sequence[Breakage], *, started_at: str) -> str:
    document = {
        "started_at": started_at,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "scenarios": [_scenario(summary) for summary in summaries],
        "broken": [
            {"scenario": breakage.scenario, "round": breakage.round_number, "text": breakage.text}
            for breakage in breakages
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _scenario(summary: ScenarioSummary) -> dict[str, Any]:
    return {
        "name": summary.scenario.name,
        "title": summary.scenario.title,
        "figures": [_figure(figure) for figure in summary.figures],
        "processor_shares": {share.name: round(share.share, 3) for share in summary.shares},
        "limited_by": summary.limited_by.value.lower(),
    }


def _figure(figure: FigureSummary) -> dict[str, Any]:
    return {
        "name": figure.name,
        "unit": figure.unit.value,
        "median": figure.spread.median,
        "values": list(figure.values),
        "ratio": None if figure.ratio is None else {"to": figure.ratio.reference, "value": figure.ratio.value},
    }
