"""Where a value can come from.

Law: names only; reading the sources is `loading.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import final

__all__ = ["DEFAULT_FILE", "Source", "SourceKind"]

#: Read from the working directory when no file is given.
DEFAULT_FILE = Path("stompbroker.toml")


class SourceKind(Enum):
    """In rising priority."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@final
@dataclass(frozen=True, slots=True)
class Source:
    """The kind of source, and which file, variable or flag it is."""

    kind: SourceKind = SourceKind.DEFAULT
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}".rstrip()
