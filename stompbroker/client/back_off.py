"""How long to wait before the next attempt to connect.

Law: pure; the same seed gives the same waits. A wait doubles with each failure and is cut by chance, so that many
clients do not come back at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import final


@final
@dataclass(slots=True, kw_only=True)
class BackOff:
    #: Seconds before the second round of attempts, at most; a broker that restarts needs about a second.
    first_s: float = 0.2
    #: The longest wait, in seconds.
    longest_s: float = 30.0
    #: Part of a wait that chance may cut off.
    jitter: float = 0.5
    seed: int | None = None
    _failures: int = 0
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def next_wait_s(self) -> float:
        """After another failure."""
        # The exponent is bounded, or the power would become too large for a float.
        wait_s = min(self.longest_s, self.first_s * 2.0 ** min(self._failures, 64))
        self._failures += 1
        return wait_s * (1 - self.jitter * self._random.random())

    def reset(self) -> None:
        """A connection has held."""
        self._failures = 0
