"""Many dead letters, found and moved, from the question to what came of it.

Law: as many are moved as were counted before, and the work ends where the last of them lay: letters that arrive
meanwhile, perhaps because a redriven message died at once, neither keep it going nor are touched. A chunk is one
question to the broker and is never cut short; a signal ends the work between two of them. Each has a connection of its
own, because the broker hangs up on who is silent for long.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import trio
import typer

from stompbroker.cli.control_client import ControlRefused, NoBroker, connect
from stompbroker.cli.outcome import CommandFailed, ExitCode, require_consent, run
from stompbroker.cli.terminal import progress_bar, say, say_json
from stompbroker.cli.wording import counted
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

__all__ = [
    "Move",
    "Selection",
    "carry_out",
    "find_letters",
    "skipped_lines",
]

#: Letters in one answer: the most the broker gives.
PAGE = 1_000

#: Letters moved in one step: a fraction of a second's work for the broker, so that Ctrl-C and the bar are prompt.
MAX_CHUNK = 100

#: With a rate, chunks a second as long as one letter each is not too many: a stream rather than bursts.
CHUNKS_A_SECOND = 10

Letter = dict[str, Any]  # as `Control` describes it

#: Reasons, and offsets of each, that are listed for what was skipped. `--json` has all.
MAX_REASONS = 10
MAX_OFFSETS = 10


# Finding and moving ---------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which letters are meant: those of a topic that meet everything that is not None."""

    topic: str
    subscription: str | None = None
    reason: str | None = None
    message_id: str | None = None
    offset: int | None = None

    @property
    def filters(self) -> dict[str, object]:
        given = {
            "subscription": self.subscription,
            "reason": self.reason,
            "message_id": self.message_id,
            "offset": self.offset,
        }
        return {name: value for name, value in given.items() if value is not None}

    def of(self, number: int) -> str:
        """So many of them, in words."""
        letters = counted(number, "dead letter") if number else "no dead letters"
        parts = [letters, f"of {visible(self.topic)}"]
        parts += [f"at offset {self.offset}"] if self.offset is not None else []
        parts += [f"for {readable(self.subscription)}"] if self.subscription is not None else []
        parts += [f"about message {readable(self.message_id)}"] if self.message_id is not None else []
        parts += [f'with a reason like "{readable(self.reason)}"'] if self.reason is not None else []
        return " ".join(parts)


@final
@dataclass(frozen=True, slots=True)
class Extent:
    """How many there were when they were counted, and where the last one lay."""

    letters: int
    last_offset: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What to do with letters, in the broker's words and in ours."""

    method: str
    done: str  # "redriven"
    doing: str  # what stands before the progress bar: "redriving"
    consequence: str  # what follows "3 dead letters of orders": "would be gone for good"
    params: dict[str, object] = field(default_factory=dict)
    rate: float | None = None  # letters a second

    @property
    def chunk(self) -> int:
        return MAX_CHUNK if self.rate is None else max(1, min(MAX_CHUNK, int(self.rate / CHUNKS_A_SECOND)))


@final
@dataclass(slots=True)
class Outcome:
    """What has been done so far."""

    moved: int = 0
    skipped: dict[str, list[int]] = field(default_factory=dict)  # why, and the offsets
    is_interrupted: bool = False

    @property
    def skipped_letters(self) -> int:
        return sum(map(len, self.skipped.values()))

    def add(self, moved: int, skipped: list[dict[str, Any]]) -> None:
        self.moved += moved
        for one in skipped:
            self.skipped.setdefault(one["why"], []).append(one["offset"])


async def find_letters(directory: Path, selection: Selection) -> AsyncIterator[list[Letter]]:
    """All that are meant, a page at a time, in the order of their offsets."""
    after, is_complete = -1, False
    while not is_complete:
        async with connect(directory) as control:
            try:
                answer = await control.call(
                    "dead_letters", topic=selection.topic, after=after, limit=PAGE, **selection.filters
                )
            except ControlRefused:
                # To the broker a topic without letters is a mistake, unless it has had some of late; here it is not.
                known = await control.call("dead_letter_topics")
                if any(one["topic"] == selection.topic for one in known["topics"]):
                    raise
                return
        yield answer["letters"]
        after, is_complete = answer["after"], answer["is_complete"]


async def measure(directory: Path, selection: Selection, limit: int | None) -> Extent:
    """Count them, up to the limit."""
    letters, last_offset = 0, -1
    async for page in find_letters(directory, selection):
        page = page if limit is None else page[: limit - letters]
        letters += len(page)
        last_offset = page[-1]["offset"] if page else last_offset
        if letters == limit:
            break
    return Extent(letters, last_offset)


async def move_letters(directory: Path, selection: Selection, extent: Extent, move: Move, bar: str | None) -> Outcome:
    """Until all are moved, or a signal comes. Raises CommandFailed, saying how many were moved before.

    `bar` is the text before the progress bar, None for no bar.
    """
    mover = _Mover(directory, selection, extent, move)
    with progress_bar(bar, extent.letters) as show:
        async with trio.open_nursery() as nursery:
            await nursery.start(mover.stop_on_signal)
            await mover.run(show)
            nursery.cancel_scope.cancel()
    return mover.outcome


@final
class _Mover:
    def __init__(self, directory: Path, selection: Selection, extent: Extent, move: Move) -> None:
        self._directory = directory
        self._selection = selection
        self._extent = extent
        self._move = move
        self._is_told_to_stop = trio.Event()
        self.outcome = Outcome()

    async def stop_on_signal(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The first signal waits for the chunk under way; a second one waits for nothing."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            await anext(signals)
            self._is_told_to_stop.set()
            await anext(signals)
            raise KeyboardInterrupt

    async def run(self, show: Callable[[int], None]) -> None:
        outcome, after, is_complete = self.outcome, -1, False
        due_at = trio.current_time()
        while not is_complete and after < self._extent.last_offset:
            left = self._extent.letters - outcome.moved - outcome.skipped_letters
            if not left:
                return
            await self._wait_until(due_at)
            if self._is_told_to_stop.is_set():
                outcome.is_interrupted = True
                return
            answer = await self._ask(after, min(left, self._move.chunk))
            moved = answer[self._move.done]
            outcome.add(moved, answer.get("skipped", []))
            show(outcome.moved + outcome.skipped_letters)
            after, is_complete = answer["after"], answer["is_complete"]
            if self._move.rate is not None:
                # Time lost to a slow broker is not made up for: that would be the burst nobody wanted.
                due_at = max(due_at, trio.current_time()) + moved / self._move.rate

    async def _ask(self, after: int, limit: int) -> Any:
        params = {"topic": self._selection.topic, **self._selection.filters, **self._move.params}
        try:
            async with connect(self._directory) as control:
                up_to = self._extent.last_offset
                return await control.call(self._move.method, after=after, up_to=up_to, limit=limit, **params)
        except (ControlRefused, NoBroker) as error:
            extent = f"  {counted(self.outcome.moved, 'letter')} had been {self._move.done}"
            # A broker that refuses has done nothing; one that does not answer may have.
            perhaps = f", and perhaps up to {limit} more" if isinstance(error, NoBroker) else ""
            raise CommandFailed(f"{error}\n{extent}{perhaps}.") from error

    async def _wait_until(self, due_at: float) -> None:
        with trio.move_on_at(due_at):
            await self._is_told_to_stop.wait()


# From the question to what came of it ---------------------------------------------------------------------------------


def carry_out(
    move: Move, selection: Selection, directory: Path, *, limit: int | None, is_agreed: bool, as_json: bool
) -> None:
    """Ends the program with exit code 1 if a person says no or something was skipped, 130 if it was interrupted."""
    extent = run(measure, directory, selection, limit)
    outcome = Outcome()
    if extent.letters:
        if not is_agreed:
            require_consent(
                f"{selection.of(extent.letters)} {move.consequence}",
                to="have that done",
                question="Do it?",
                otherwise=f"Nothing was {move.done}.",
            )
        bar = move.doing if sys.stderr.isatty() else None
        outcome = run(move_letters, directory, selection, extent, move, bar)
    if as_json:
        say_json(_as_json(move, selection, outcome))
    else:
        say(*_summary(move, selection, extent, outcome))
    if outcome.is_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if outcome.skipped:
        raise typer.Exit(ExitCode.FAILED)


def _as_json(move: Move, selection: Selection, outcome: Outcome) -> dict[str, object]:
    return {
        "topic": selection.topic,
        move.done: outcome.moved,
        "skipped": [{"why": why, "offsets": offsets} for why, offsets in outcome.skipped.items()],
        "is_interrupted": outcome.is_interrupted,
    }


def _summary(move: Move, selection: Selection, extent: Extent, outcome: Outcome) -> list[str]:
    if not extent.letters:
        return [f"There are {selection.of(0)}; nothing was {move.done}."]
    done = move.done.capitalize()
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


def skipped_lines(skipped: Mapping[str, list[int]]) -> Iterator[str]:
    """A line for each reason, the most frequent first."""
    by_number = sorted(skipped.items(), key=lambda entry: -len(entry[1]))
    for why, offsets in by_number[:MAX_REASONS]:
        shown = ", ".join(map(str, offsets[:MAX_OFFSETS])) + (", …" if len(offsets) > MAX_OFFSETS else "")
        yield f"  {len(offsets):,}: {readable(why)} (at {'offset' if len(offsets) == 1 else 'offsets'} {shown})"
    if len(by_number) > MAX_REASONS:
        rest = sum(len(offsets) for _, offsets in by_number[MAX_REASONS:])
        yield f"  {rest:,} for {counted(len(by_number) - MAX_REASONS, 'other reason')}; --json has all"
