"""Where a subscription begins in what a topic has retained.

Law: a value, found when the SUBSCRIBE is read. An offset may be lower than what is still there: then the first message
that is sent says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from stompbroker.ids import Offset


class Replay(NamedTuple):
    #: The first offset that is read.
    start: Offset
    #: Messages published before that are stepped over; 0 for all.
    since_ns: int = 0
    #: The first offset that was asked for, if that was an offset.
    asked_for: Offset | None = None
    #: Whether something older than what was asked for is there, so that nothing of it can be missing.
    is_whole: bool = False
