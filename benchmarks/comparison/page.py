"""The results as a Markdown page: circumstances, goals, and one table per group of scenarios.

`standings` and `goals` compute everything. A cell without a figure has a reason below its table.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from benchmarks.comparison.goals import GOALS, Judgement, Verdict, judge
from benchmarks.comparison.sittings import Group, compared_in
from benchmarks.comparison.standings import Standing, figures_of, standing_of, why_unmeasured
from benchmarks.measurement import FigureKey, Unit
from benchmarks.report import amount
from benchmarks.summary import LimitedBy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.comparison.goals import Goal
    from benchmarks.comparison.results import Contestant, Results
    from benchmarks.comparison.sittings import Compared

_THOUSAND: Final = 1_000
_MILLION: Final = 1_000_000
_NOTHING: Final = "—"
#: Figures about the generator or the store, which do not compare brokers.
_UNSHOWN: Final = frozenset({"generator late, p99"})

_HEAD: Final = """\
# Our broker beside its peers

Written by `make bench-peers`; [README.md](README.md) says what each scenario does and how to read a figure,
[docs/performance.md](../docs/performance.md) why the figures are what they are.
"""

QUICK: Final = "**A quick run: it shows that everything works, and is no measure of anything.**\n"

_LEGEND: Final = """\
Each cell: **median** (lowest – highest) over the rounds, and below it *ours ÷ this broker*, taken within each round and
then the median. **limit** is what kept the figures above it from being better. `GENERATOR`: the load generator could
not have gone faster, so the figure is a lower bound. `cores`: the machine had no processor left. `waiting`: nobody was
busy all the time. `schedule`: the rate was fixed.
"""


def rendered(results: Results, plots: Sequence[str] = ()) -> str:
    """`plots` are paths relative to the page."""
    parts = [_HEAD]
    if results.is_quick:
        parts.append(QUICK)
    parts += [circumstances(results), _goals(results)]
    parts += map(shown, plots)
    parts += ["## Figures\n", _LEGEND]
    parts += [section for group in Group if (section := _section(group, results))]
    parts.append(_configurations(results))
    return "\n".join(parts).rstrip() + "\n"


# Circumstances --------------------------------------------------------------------------------------------------------


def shown(picture: str) -> str:
    """A plot in the page, by its relative path."""
    return f"![{picture.rpartition('/')[2].removesuffix('.svg')}]({picture})\n"


def circumstances(results: Results) -> str:
    """When and where which commit was measured."""
    machine = results.machine
    rounds = f"{results.rounds} interleaved rounds" if results.rounds > 1 else "one round"
    lines = [
        "| | |",
        "|---|---|",
        f"| when | {results.started_at}, {rounds}, {results.took_s / 60:.0f} minutes |",
        f"| commit | {results.commit} |",
        f"| machine | {machine.cores} cores ({machine.processor}), {machine.memory_gib:.0f} GiB, {machine.kernel} |",
        f"| disk | {machine.disk}; an fsync of 4 KiB takes {machine.fsync_ms:.2f} ms |",
        f"| generator | Python {machine.python}, on the same machine, over the loopback interface |",
    ]
    lines += [f"| {each.title} | {each.version or f'**missing**: {each.missing}'} |" for each in results.contestants]
    return "\n".join(lines) + "\n"


def _configurations(results: Results) -> str:
    parts = ["## What each was given\n"]
    for each in results.contestants:
        if each.configuration and each.version:
            parts.append(f"### {each.title} {each.version}\n\n```\n{each.configuration.strip()}\n```\n")
    return "\n".join(parts)


# Goals ----------------------------------------------------------------------------------------------------------------


def _goals(results: Results) -> str:
    titles = {each.name: each.title for each in results.contestants}
    judgements = [judge(goal, results) for goal in GOALS]
    reached = [judgement for judgement in judgements if judgement.verdict is Verdict.REACHED]
    steadily = sum(judgement.is_steady for judgement in reached)
    lines = [
        f"## Goals: {len(reached)} of {len(judgements)} reached by the median, {steadily} in every round\n",
        "| figure | against | goal | median (lowest – highest) of the rounds | |",
        "|---|---|---|---|---|",
        *(_goal_row(judgement, titles) for judgement in judgements),
        "",
        "A goal with × is a ratio: ours ÷ theirs, taken within each round.",
    ]
    return "\n".join(lines) + "\n"


def _goal_row(judgement: Judgement, titles: dict[str, str]) -> str:
    goal = judgement.goal
    values, measured = judgement.values, _NOTHING
    if values:
        median, lowest, highest = (_as_goal(goal, of(values)) for of in (statistics.median, min, max))
        measured = f"{median} ({lowest} – {highest})"
    verdict = judgement.verdict.value
    if judgement.verdict is Verdict.NOT_REACHED:
        verdict = f"**{verdict}**"
    if not judgement.is_steady:
        verdict += f"; {judgement.rounds_reached} of {len(values)} rounds do"
    against = _NOTHING if goal.against is None else titles.get(goal.against, goal.against)
    bound = f"{goal.bound.value} {goal.value:g} {'×' if goal.unit is None else goal.unit.value}"
    return f"| {goal.title} | {against} | {bound} | {measured} | {verdict} |"


def _as_goal(goal: Goal, value: float) -> str:
    return times(value) if goal.unit is None else quantity(value, goal.unit)


def times(ratio: float) -> str:
    return f"{ratio:,.0f} ×" if ratio >= 100 else f"{ratio:.1f} ×" if ratio >= 10 else f"{ratio:.2f} ×"


# Figures --------------------------------------------------------------------------------------------------------------


def _section(group: Group, results: Results) -> str:
    scenarios = {compared.name for compared in compared_in(group)}
    took_part = {outcome.contestant for outcome in results.outcomes if outcome.scenario in scenarios}
    shown = [each for each in results.contestants if each.name in took_part]
    rows: list[str] = []
    for compared in compared_in(group):
        rows += _rows(compared, shown, results)
    if not rows:
        return ""
    head = _row("", [each.title for each in shown])
    lines = [f"### {group.value}\n", head, "|---" * (len(shown) + 1) + "|", *rows, ""]
    return "\n".join([*lines, *_reasons(group, shown, results)])


def _rows(compared: Compared, shown: Sequence[Contestant], results: Results) -> list[str]:
    """One row for each figure, and one for the limit."""
    rows: list[str] = []
    standings: list[Standing | None] = []
    for name in figures_of(compared.name, results):
        if name not in _UNSHOWN:
            standings = [standing_of(each.name, FigureKey(compared.name, name), results) for each in shown]
            rows.append(
                _row(f"{compared.title}: **{name}**", [_cell(each) if each else _NOTHING for each in standings])
            )
    if standings:
        rows.append(_row("limit", [_limit(each) if each else "" for each in standings]))
    return rows


def _row(title: str, cells: Sequence[str]) -> str:
    return f"| {title} | {' | '.join(cells)} |"


def _cell(standing: Standing) -> str:
    spread, unit = standing.spread, standing.unit
    lines = [f"**{quantity(spread.median, unit)}**"]
    if spread.lowest != spread.highest:
        lines[0] += f" ({quantity(spread.lowest, unit)} – {quantity(spread.highest, unit)})"
    if standing.ours_over_it is not None:
        lines.append(f"*{times(standing.ours_over_it)}*")
    return "<br>".join(lines)


def _limit(standing: Standing) -> str:
    limit = standing.limited_by
    return f"**{limit.value}**" if limit is LimitedBy.GENERATOR else limit.value


def quantity(value: float, unit: Unit) -> str:
    """With its unit; rates are rounded, since their last digits vary."""
    if unit is not Unit.PER_SECOND:
        return f"{amount(value, unit)} {unit.value}"
    if value >= _MILLION:
        return f"{value / _MILLION:.2f} M/s"
    if value >= 10 * _THOUSAND:
        return f"{value / _THOUSAND:,.0f} k/s"
    return f"{value / _THOUSAND:.1f} k/s" if value >= _THOUSAND else f"{value:.0f} /s"


def _reasons(group: Group, shown: Sequence[Contestant], results: Results) -> list[str]:
    """Why figures are missing; each reason once for all scenarios of a broker that share it."""
    lines: list[str] = []
    for contestant in shown:
        titles_by_reason: dict[str, list[str]] = {}
        for compared in compared_in(group):
            if (unmeasured := why_unmeasured(contestant.name, compared.name, results)) is not None:
                reason = f"**BROKEN**: {_in_one_line(unmeasured.reason)}" if unmeasured.is_broken else unmeasured.reason
                titles_by_reason.setdefault(reason, []).append(compared.title)
        lines += [
            f"- {contestant.title}, {'; '.join(scenarios)}: {reason}" for reason, scenarios in titles_by_reason.items()
        ]
    return [*lines, ""] if lines else []


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
