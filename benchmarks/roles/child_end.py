"""The messages between a role and the measurement that started it: frozen values over one pipe.

A role sends `Reached` for each stage, `Progressed` now and then if its work is long, and finally its report or
`Failed`. The measurement sends `Go`, `Expect` or `Stop`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


#: Seconds between two progress messages.
_PROGRESS_S: Final = 1.0


class Stage(Enum):
    READY = "connected, and waiting for its word"
    CROWD_CONNECTED = "all idle connections are there"


@dataclass(frozen=True, slots=True)
class Reached:
    stage: Stage


@dataclass(frozen=True, slots=True)
class Progressed:
    """The role is alive, and this is its progress."""

    messages: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The role raised. `is_broken` tells a broken broker from a bug in the role; then `text` is a traceback."""

    text: str
    is_broken: bool


@dataclass(frozen=True, slots=True)
class Go:
    """Begin the measured work."""


@dataclass(frozen=True, slots=True)
class Expect:
    """The publisher has sent this many messages; each subscriber must get all of them."""

    messages: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End work that would go on for ever."""


Word = Go | Expect | Stop


@final
class ChildEnd:
    """The role's end of the pipe."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._pipe = pipe
        self._next_progress_at = 0.0

    def fileno(self) -> int:
        """Readable when a message is waiting, so that a role can select on it."""
        return self._pipe.fileno()

    def reach(self, stage: Stage) -> None:
        self._pipe.send(Reached(stage))

    def progress(self, messages: int) -> None:
        """May be called at any rate; sends about once a second."""
        now = time.monotonic()
        if now >= self._next_progress_at:
            self._next_progress_at = now + _PROGRESS_S
            self._pipe.send(Progressed(messages))

    def wait_word(self) -> Word:
        word = self._pipe.recv()
        assert isinstance(word, Go | Expect | Stop)
        return word

    def has_word(self) -> bool:
        return self._pipe.poll(0)
