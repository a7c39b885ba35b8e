"""Where a broker listens, and which dialect it speaks: a frozen value that every assignment carries into its
process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.dialect import OURS, Dialect

#: Seconds a broker may take to answer a request outside the measurements. Far more than ours needs: it lets a hanging
#: broker end the run with a sentence.
ANSWER_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    dialect: Dialect = OURS
    #: Seconds it may take to answer a request, including everything sent before it.
    answer_timeout_s: float = ANSWER_TIMEOUT_S

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
