"""Redrive or purge many dead letters: find them, ask, move them in chunks, and say what came of it.

Law: only letters that were counted before are moved. Letters that arrive meanwhile, perhaps from a redriven message
that failed again, are left alone. A signal stops the work between two chunks, never inside one.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, final

import trio
import typer

from stompbroker.cli.control_client import ControlRefused, NoBroker, ask, connect
from stompbroker.cli.outcome import CommandFailed, ExitCode, require_consent, run, stopped_by_signal
from stompbroker.cli.terminal import progress_bar, say, say_json
from stompbroker.cli.wording import counted
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

#: Letters in one answer: the most the broker gives.
PAGE = 1_000
#: Letters moved in one request: a fraction of a second's work for the broker, so that Ctrl-C and the bar are prompt.
MAX_CHUNK = 100
#: With a rate, chunks are small enough for this many a second, so that letters come as a stream and not in bursts.
CHUNKS_A_SECOND = 10
#: Reasons, and offsets of each, that are listed for skipped letters. `--json` has all.
MAX_REASONS = 10
MAX_OFFSETS = 10


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The letters of a topic that meet every condition that is not None."""

    topic: str
    subscription: str | None = None
    reason: str | None = None
    message_id: str | None = None
    offset: int | None = None

    @property
    def params(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def of(self, number: int) -> str:
        """That many of these letters, in words."""
        letters = counted(number, "dead letter") if number else "no dead letters"
        parts = [letters, f"of {visible(self.topic)}"]
        parts += [f"at offset {self.offset}"] if self.offset is not None else []
        parts += [f"for {readable(self.subscription)}"] if self.subscription is not None else []
        parts += [f"about message {readable(self.message_id)}"] if self.message_id is not None else []
        parts += [f'with a reason like "{readable(self.reason)}"'] if self.reason is not None else []
        return " ".join(parts)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What to do with letters, in the broker's words and in ours."""

    method: str
    done: str  # "redriven"
    doing: str  # the text before the progress bar: "redriving"
    consequence: str  # follows "3 dead letters of orders": "would be gone for good"
    params: dict[str, object] = field(default_factory=dict)
    rate: float | None = None  # letters a second

    @property
    def chunk(self) -> int:
        return MAX_CHUNK if self.rate is None else max(1, min(MAX_CHUNK, int(self.rate / CHUNKS_A_SECOND)))


@final
@dataclass(slots=True)
class Progress:
    """How many letters were counted, where the last of them was, and what has been done since."""

    counted: int = 0
    last_offset: int = -1
    moved: int = 0
    skipped: dict[str, list[int]] = field(default_factory=dict)  # reason → offsets
    is_interrupted: bool = False

    @property
    def skipped_letters(self) -> int:
        return sum(map(len, self.skipped.values()))

    @property
    def left(self) -> int:
        return self.counted - self.moved - self.skipped_letters


async def find_letters(
    directory: Path, selection: Selection, limit: int | None = None
) -> AsyncIterator[list[dict[str, Any]]]:
    """The selected letters as `Control` describes them, up to the limit, a page at a time, in order of offsets.

    Each page has a connection of its own, because the broker hangs up on a silent client.
    """
    after, is_complete = -1, False
    while not is_complete and limit != 0:
        async with connect(directory) as control:
            try:
                answer = await control.call("dead_letters", after=after, limit=PAGE, **selection.params)
            except ControlRefused:
                # The broker refuses a topic without letters unless it has had some of late; here it is empty.
                known = await control.call("dead_letter_topics")
                if any(one["topic"] == selection.topic for one in known["topics"]):
                    raise
                return
        letters = answer["letters"][:limit]
        yield letters
        after, is_complete = answer["after"], answer["is_complete"]
        limit = None if limit is None else limit - len(letters)


async def measure(directory: Path, selection: Selection, limit: int | None) -> Progress:
    progress = Progress()
    async for page in find_letters(directory, selection, limit):
        progress.counted += len(page)
        progress.last_offset = page[-1]["offset"] if page else progress.last_offset
    return progress


async def move_letters(directory: Path, selection: Selection, move: Move, progress: Progress) -> None:
    """Move all counted letters, until a signal comes. Raises CommandFailed, with how many were moved before."""
    is_told_to_stop = trio.Event()
    after, is_complete, due_at = -1, False, trio.current_time()
    with progress_bar(move.doing if sys.stderr.isatty() else None, progress.counted) as show:
        async with stopped_by_signal(is_told_to_stop.set):
            while progress.left and not is_complete and after < progress.last_offset:
                with trio.move_on_at(due_at):
                    await is_told_to_stop.wait()
                if is_told_to_stop.is_set():
                    progress.is_interrupted = True
                    return
                limit, up_to = min(progress.left, move.chunk), progress.last_offset
                params = {"after": after, "up_to": up_to, "limit": limit, **selection.params, **move.params}
                try:
                    answer = await ask(directory, move.method, **params)
                except (ControlRefused, NoBroker) as error:
                    # A broker that refuses has done nothing; one that does not answer may have.
                    perhaps = f", and perhaps up to {limit} more" if isinstance(error, NoBroker) else ""
                    so_far = f"  {counted(progress.moved, 'letter')} had been {move.done}{perhaps}."
                    raise CommandFailed(f"{error}\n{so_far}") from error
                moved = answer[move.done]
                progress.moved += moved
                for one in answer.get("skipped", []):
                    progress.skipped.setdefault(one["why"], []).append(one["offset"])
                show(progress.moved + progress.skipped_letters)
                after, is_complete = answer["after"], answer["is_complete"]
                if move.rate is not None:
                    # Time lost to a slow broker is not made up for: that would be a burst.
                    due_at = max(due_at, trio.current_time()) + moved / move.rate


def carry_out(
    move: Move, selection: Selection, directory: Path, *, limit: int | None, is_agreed: bool, as_json: bool
) -> None:
    """Ends the program with exit code 1 if a person says no or something was skipped, 130 if it was interrupted."""
    progress = run(measure, directory, selection, limit)
    if progress.counted:
        if not is_agreed:
            require_consent(
                f"{selection.of(progress.counted)} {move.consequence}",
                to="have that done",
                question="Do it?",
                otherwise=f"Nothing was {move.done}.",
            )
        run(move_letters, directory, selection, move, progress)
    if as_json:
        content = {
            "topic": selection.topic,
            move.done: progress.moved,
            "skipped": [{"why": why, "offsets": offsets} for why, offsets in progress.skipped.items()],
            "is_interrupted": progress.is_interrupted,
        }
        say_json(content)
    else:
        say(*_summary(move, selection, progress))
    if progress.is_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if progress.skipped:
        raise typer.Exit(ExitCode.FAILED)


def _summary(move: Move, selection: Selection, progress: Progress) -> Iterator[str]:
    done = move.done.capitalize()
    if not progress.counted:
        yield f"There are {selection.of(0)}; nothing was {move.done}."
    elif progress.is_interrupted:
        all_of_them = selection.of(progress.counted)
        yield f"Interrupted. {done} {progress.moved:,} of {all_of_them}; the others are still there."
    else:
        yield f"{done} {selection.of(progress.moved)}."
        if progress.left > 0:  # deleted by retention or by somebody else
            yield f"{counted(progress.left, 'other')} had gone in the meantime."
    if progress.skipped:
        yield f"Skipped {progress.skipped_letters:,}, which stay where they are:"
        yield from skipped_lines(progress.skipped)


def skipped_lines(skipped: Mapping[str, list[int]]) -> Iterator[str]:
    by_number = sorted(skipped.items(), key=lambda entry: -len(entry[1]))
    for why, offsets in by_number[:MAX_REASONS]:
        shown = ", ".join(map(str, offsets[:MAX_OFFSETS])) + (", …" if len(offsets) > MAX_OFFSETS else "")
        yield f"  {len(offsets):,}: {readable(why)} (at {'offset' if len(offsets) == 1 else 'offsets'} {shown})"
    if len(by_number) > MAX_REASONS:
        rest = sum(len(offsets) for _, offsets in by_number[MAX_REASONS:])
        yield f"  {rest:,} for {counted(len(by_number) - MAX_REASONS, 'other reason')}; --json has all"
