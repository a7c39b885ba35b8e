"""How fast messages may be refused while somebody else waits for the store.

Law: arithmetic; the caller supplies `now` and does the waiting. A refused message comes again: what a client that
refuses everything makes the broker do costs each time as much as a message does, and is worth nothing to anybody.
Beside others it is therefore read no faster than is written here, all such clients together.
"""

from __future__ import annotations

from typing import Final, final

from stompbroker.clock import NANOSECONDS

__all__ = ["RefusalPace"]

#: Refusals a second, over all connections. With all that follows one takes about 31 µs: this is an eighth of the time.
REFUSALS_PER_S: Final = 4_000
#: The longest rest, however many refuse: nobody is to be taken for dead meanwhile.
MAX_REST_NS: Final = NANOSECONDS // 2


@final
class RefusalPace:
    __slots__ = ("_free_at_ns",)

    def __init__(self) -> None:
        #: When those that were refused so far have had their time.
        self._free_at_ns = 0

    def rest_ns(self, refusals: int, now_ns: int) -> int:
        """How long the one who has just refused so many is not to be read."""
        self._free_at_ns = max(self._free_at_ns, now_ns) + refusals * NANOSECONDS // REFUSALS_PER_S
        return min(self._free_at_ns - now_ns, MAX_REST_NS)
