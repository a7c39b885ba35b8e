"""The tables of the lake.

Law: words alone; whoever only has to name one need not load what reads and writes them.
"""

from __future__ import annotations

from enum import Enum
from typing import final

__all__ = ["Kind"]


@final
class Kind(Enum):
    """Which table of the lake a record belongs to."""

    DELIVERIES = "deliveries"
    BACKLOG = "backlog"
