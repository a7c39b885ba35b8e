"""Where a broker listens, and how it wants to be spoken to.

Law: a frozen value that every assignment carries into its process; it opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.dialect import OURS, Dialect


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    dialect: Dialect = OURS

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
