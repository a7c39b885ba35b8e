"""What an operator wants done with dead letters, from the question to what came of it.

Law: counts, asks, has it done and says what was done; how it is done is `dead_letter_chunks`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import typer

from stompbroker.cli.dead_letter_chunks import Extent, Move, Outcome, Selection, measure, move_letters
from stompbroker.cli.dead_letter_format import skipped_lines
from stompbroker.cli.outcome import CommandFailed, ExitCode, run
from stompbroker.cli.readable_text import counted
from stompbroker.cli.terminal import ask, say, say_json

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Order", "carry_out"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    move: Move
    consequence: str  # what follows "3 dead letters of orders": "would be gone for good"
    doing: str  # what stands before the progress bar: "purging"


def carry_out(
    order: Order, selection: Selection, directory: Path, *, limit: int | None, is_agreed: bool, as_json: bool
) -> None:
    """Ends the program with exit code 1 if a person says no or something was skipped, 130 if it was interrupted."""
    extent = run(measure, directory, selection, limit)
    outcome = Outcome()
    if extent.letters:
        if not is_agreed:
            _ask_for_consent(order, selection.of(extent.letters))
        bar = order.doing if sys.stderr.isatty() else None
        outcome = run(move_letters, directory, selection, extent, order.move, bar)
    if as_json:
        say_json(_as_json(order, selection, outcome))
    else:
        say(*_summary(order, selection, extent, outcome))
    if outcome.is_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if outcome.skipped:
        raise typer.Exit(ExitCode.FAILED)


def _ask_for_consent(order: Order, letters: str) -> None:
    """End the program unless a person says yes. Asked on stderr: stdout is for what came of it."""
    if not sys.stdin.isatty():
        raise CommandFailed(f"{letters} {order.consequence}; to have that done, say so with --yes.")
    ask(f"{letters} {order.consequence}. Do it?")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say(f"Nothing was {order.move.done}.", err=True)
        raise typer.Exit(ExitCode.FAILED)


def _as_json(order: Order, selection: Selection, outcome: Outcome) -> dict[str, object]:
    return {
        "topic": selection.topic,
        order.move.done: outcome.moved,
        "skipped": [{"why": why, "offsets": offsets} for why, offsets in outcome.skipped.items()],
        "is_interrupted": outcome.is_interrupted,
    }


def _summary(order: Order, selection: Selection, extent: Extent, outcome: Outcome) -> list[str]:
    if not extent.letters:
        return [f"There are {selection.of(0)}; nothing was {order.move.done}."]
    done = order.move.done.capitalize()
    if outcome.is_interrupted:
        all_of_them = selection.of(extent.letters)
        lines = [f"Interrupted. {done} {outcome.moved:,} of {all_of_them}; the others are still there."]
    else:
        lines = [f"{done} {selection.of(outcome.moved)}."]
        # Retention, or somebody else, was quicker.
        gone = extent.letters - outcome.moved - outcome.skipped_letters
        lines += [f"{counted(gone, 'other')} had gone in the meantime."] if gone > 0 else []
    if outcome.skipped:
        lines.append(f"Skipped {outcome.skipped_letters:,}, which stay where they are:")
        lines += skipped_lines(outcome.skipped)
    return lines
