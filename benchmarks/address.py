"""Where a broker listens, and how it wants to be spoken to.

Law: a frozen value that every assignment carries into its process; it opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.dialect import OURS, Dialect

#: Seconds a broker may take to answer a request outside the measurements. Far more than ours needs: it exists so that a
#: hanging broker ends the run with a sentence.
ANSWER_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    dialect: Dialect = OURS
    #: Seconds it may take to answer a request; what was sent before the request is read before it, too.
    answer_timeout_s: float = ANSWER_TIMEOUT_S

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
