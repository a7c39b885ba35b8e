"""Log, offset ranges and cursors: plain synchronous data structures with written invariants.

Law: no event loop, no clock, no storage, no protocol.
"""

from stompbroker.commitlog.claims import Claimed, Settlement
from stompbroker.commitlog.cursor import Cursor
from stompbroker.commitlog.log import Log
from stompbroker.commitlog.offset_ranges import OffsetRanges, disjoint

__all__ = ["Claimed", "Cursor", "Log", "OffsetRanges", "Settlement", "disjoint"]
