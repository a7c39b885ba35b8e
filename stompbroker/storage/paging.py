"""Pages: stored messages for those who lag behind memory.

Law: turns the rows that a page reader found into a log that says up to which offset it is complete; what is missing in
between is a gap. How rows are read quickly differs per engine (`sqlite_paging.py`, `postgres_paging.py`).

Hot path: a returning subscriber reads all it missed this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from stompbroker.commitlog import Log
from stompbroker.ids import Offset
from stompbroker.message import Message, Origin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

__all__ = ["MAX_PAGE_BYTES", "MAX_PAGE_ROWS", "PageLimits", "PageReader", "Rows", "page_of"]

#: A page is the unit that is read, shared and charged to the memory budget.
MAX_PAGE_ROWS: Final = 1000
MAX_PAGE_BYTES: Final = 1024 * 1024


class PageLimits(NamedTuple):
    """A page ends with the row that reaches either; so it has one row at least, if there is one."""

    rows: int
    bytes: int


class Rows(NamedTuple):
    #: Offset, published_at_ns, publisher, body_bytes, tail, expires_at_ns, only_for; by rising offset.
    rows: Iterable[tuple[int, int, str, int, bytes, int | None, int | None]]
    #: Whether a limit was reached, so that there may be more.
    is_cut: bool


class PageReader(Protocol):
    def __call__(self, connection: Connection, topic_id: int, start: int, stop: int, limits: PageLimits) -> Rows:
        """The messages of a topic at offsets start <= o < stop."""


def page_of(found: Rows, start: int, stop: int) -> Log:
    log = Log(Offset(start))
    origins: dict[tuple[str, bool, int | None, int | None], Origin] = {}
    run: list[Message] = []
    expected = start
    for offset, published_at_ns, publisher, body_bytes, tail, expires_at_ns, only_for in found.rows:
        if offset != expected:
            if run:
                log.append(run)
                run = []
            log.skip(offset - expected)
        expected = offset + 1
        # The two characters \r: a carriage return in a header, which STOMP 1.1 cannot escape.
        is_plain = tail.find(b"\\r", 0, -1 - body_bytes) < 0
        lifetime_ns = None if expires_at_ns is None else expires_at_ns - published_at_ns
        key = publisher, is_plain, lifetime_ns, only_for
        origin = origins.get(key)
        if origin is None:
            origin = origins[key] = Origin(publisher, is_plain=is_plain, lifetime_ns=lifetime_ns, only_for=only_for)
        run.append(Message(body_bytes, tail, origin, published_at_ns))
    if run:
        log.append(run)
    if not found.is_cut:
        log.skip(stop - log.end_offset)
    return log
