"""Which outages come, how long each lasts, and the log of them, from which they can be replayed.

Law: numbers and text only. The same seed gives the same outages on every machine and Python: of `random`, only
`random()` promises that.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.errors import OperatorError, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Of a wrong line in a log that is shown, in characters.
_MAX_SHOWN: Final = 80


@final
class Mode(StrEnum):
    #: SIGKILL, and a new start on the same data.
    KILL = "kill"
    #: SIGSTOP and SIGCONT: connections stay open and silent.
    STOP = "stop"
    #: Connections are reset and new ones refused, while the broker lives.
    REFUSE = "refuse"


MODES: Final = tuple(Mode)


@final
@dataclass(frozen=True, slots=True)
class Span:
    """From `least_s` to `most_s` seconds."""

    least_s: float
    most_s: float

    def at(self, part: float) -> float:
        """To the millisecond, 0 <= part < 1."""
        return round(self.least_s + part * (self.most_s - self.least_s), 3)


@final
@dataclass(frozen=True, slots=True)
class Outage:
    #: From 1.
    number: int
    mode: Mode
    #: How long the broker is up before it.
    up_s: float
    #: How long it lasts; a broker that was killed needs a moment more to start.
    down_s: float


def outages_of(seed: int, up: Span, down: Span, modes: Sequence[Mode]) -> Iterator[Outage]:
    """Without end."""
    chance = random.Random(seed)
    for number in count(1):
        mode, up_part, down_part = chance.random(), chance.random(), chance.random()
        yield Outage(number, modes[int(mode * len(modes))], up.at(up_part), down.at(down_part))


def down_entry(outage: Outage) -> dict[str, Any]:
    """What the log says of an outage when it begins."""
    return {
        "event": "down",
        "number": outage.number,
        "mode": outage.mode.value,
        "up_s": outage.up_s,
        "down_s": outage.down_s,
    }


def read_log(path: Path) -> list[Outage]:
    """The outages in a log, for a replay. Raises OperatorError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"The log {path} cannot be read: {error}.") from error
    found: list[Outage] = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if entry["event"] == "down":
                found.append(
                    Outage(len(found) + 1, Mode(entry["mode"]), _seconds(entry["up_s"]), _seconds(entry["down_s"]))
                )
        except (ValueError, KeyError, TypeError) as error:
            raise OperatorError(
                f"Line {number} of {path} is not of a log that spotty has written: {shorten(line, _MAX_SHOWN)!r}."
            ) from error
    if not found:
        raise OperatorError(f"The log {path} has no outages to replay.")
    return found


def _seconds(value: Any) -> float:
    """Raises ValueError or TypeError."""
    seconds = float(value)
    if not 0 <= seconds < float("inf"):
        raise ValueError(value)
    return seconds
