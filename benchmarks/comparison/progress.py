"""How far a run is, and how long it will take.

Pure. The remaining time is estimated from earlier rounds; in the first round from the average so far, so the estimate
is poor until the second round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A broker and a scenario.
Step = tuple[str, str]


@final
class Progress:
    def __init__(self, steps: Iterable[Step]) -> None:
        """`steps` are the steps of all rounds."""
        self._left = list(steps)
        self._total = len(self._left)
        self._taken_s: dict[Step, list[float]] = {}
        self._latest_at: float | None = None

    @property
    def done(self) -> int:
        return self._total - len(self._left)

    def begin(self, now: float) -> None:
        self._latest_at = now

    def finish(self, step: Step, now: float) -> None:
        """The time since the last step belongs to this one, including a start of the broker."""
        assert self._latest_at is not None
        if step in self._left:  # a broker that did not end cleanly is noted after its last step
            self._left.remove(step)
            self._taken_s.setdefault(step, []).append(now - self._latest_at)
        self._latest_at = now

    def left_s(self) -> float | None:
        """None while nothing is known."""
        if not self._taken_s:
            return None
        known = {step: sum(taken_s) / len(taken_s) for step, taken_s in self._taken_s.items()}
        average_s = sum(known.values()) / len(known)
        return sum(known.get(step, average_s) for step in self._left)

    def described(self) -> str:
        left_s = self.left_s()
        guess = "" if left_s is None else f", about {left_s / 60:.0f} minutes left"
        return f"{self.done + 1} of {self._total}{guess}"
