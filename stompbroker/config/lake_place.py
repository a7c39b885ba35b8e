"""How a person names the place of the lake.

Law: text only; nothing is opened. There is no place for a password in it: what an object store asks for comes from the
environment, as its own tools have it.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["IN_DATA_DIRECTORY", "lake_place", "read_lake"]

#: The directory `lake` in the data directory.
IN_DATA_DIRECTORY = ""

_URL = re.compile(r"file:///[^\s?#@]*|s3://[A-Za-z0-9][\w.-]*(?:/[^\s?#@]*)?(?:\?[\w=&:%./-]*)?", re.ASCII)


def read_lake(value: str) -> str:
    """The value itself if it names a place. Raises ValueError."""
    if "://" in value and not _URL.fullmatch(value):
        raise ValueError("not a place for a lake")
    if "\0" in value or value != value.strip():
        raise ValueError("not a path")
    return value


def lake_place(lake: str, data: Path) -> str:
    """Where it is: an absolute path or a URL."""
    if "://" in lake:
        return lake
    return str(Path(lake).expanduser().absolute() if lake else data.absolute() / "lake")
