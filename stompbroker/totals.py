"""What has happened since the start, kept from things that are gone.

Law: a topic, subscription or connection counts for itself while it lives; when it goes, its counts are added here, so
that nothing is counted on the hot path twice and nothing is forgotten.
"""

from __future__ import annotations

from collections import Counter
from operator import add
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Totals"]


@final
class Totals:
    __slots__ = ("bytes_in", "bytes_out", "connections_opened", "counters", "published", "published_bytes")

    def __init__(self) -> None:
        #: Counted when a connection opens.
        self.connections_opened = 0
        self.published = 0
        self.published_bytes = 0
        #: Of subscriptions, by the names of their counters.
        self.counters: Counter[str] = Counter()
        self.bytes_in = 0
        self.bytes_out = 0

    def add_counters(self, names: Sequence[str], counts: Iterable[int]) -> None:
        """A subscription is gone. There may be a thousand at once, so no step of it is Python's."""
        self.counters = Counter(dict(zip(names, map(add, map(self.counters.__getitem__, names), counts), strict=True)))
