"""Pages: stored messages for subscribers who are behind the window; and those of the ledger.

Turns rows, which each backend reads in its own way, into a log that says up to which offset it is complete. Each row
must fit its checksum, and `whole_from` or a recorded gap must explain each missing offset.

Hot path: a returning subscriber reads all it missed this way.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import select

from stompbroker.commitlog import Log, OffsetRanges
from stompbroker.ids import Offset
from stompbroker.message import Message, Origin
from stompbroker.storage.failures import StoreDamaged
from stompbroker.storage.row_format import checked, checksum, message_checksum, origin_checksum
from stompbroker.storage.schema import gaps, ledger_batches, topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, Row

#: A page is the unit of reading, sharing and the memory budget.
MAX_PAGE_ROWS: Final = 1000
MAX_PAGE_BYTES: Final = 1024 * 1024
#: Batches of the ledger that are read at once. Each has the records of one transaction, at most some 100 KiB.
LEDGER_PAGE_ROWS: Final = 32


class PageLimits(NamedTuple):
    """A page ends with the row that reaches either limit, so it has at least one row, if there is one."""

    rows: int
    bytes: int


class Rows(NamedTuple):
    #: Offset, published_at_ns, publisher, body_bytes, tail, expires_at_ns, only_for, checksum, group_key, outcome_to;
    #: by rising offset.
    rows: Iterable[tuple[Any, ...]]
    #: Whether a limit was reached, so that there may be more.
    is_cut: bool


def read_page(connection: Connection, found: Rows, topic_id: int, start: int, stop: int) -> Log:
    """The page of these rows. Raises StoreDamaged if a message is altered or lost."""
    page, absent = _page_of(found, topic_id, start, stop)
    lost = _lost_of(connection, topic_id, absent) if absent else None
    if lost is not None:
        raise StoreDamaged(f"the message at offset {lost} was stored and is not there any more")
    return page


def _page_of(found: Rows, topic_id: int, start: int, stop: int) -> tuple[Log, list[tuple[int, int]]]:
    """The page, and its ranges without messages."""
    log = Log(Offset(start))
    absent: list[tuple[int, int]] = []
    #: Checksums of messages from one source begin alike, and neighbours mostly have one source.
    source: tuple[Any, ...] | None = None
    begins_with = 0
    origins: dict[tuple[Any, ...], Origin] = {}
    run: list[Message] = []
    expected = start
    for offset, published_at_ns, publisher, body_bytes, tail, expires_at_ns, only_for, written, *asked in found.rows:
        if offset != expected:
            if run:
                log.append(run)
                run = []
            absent.append((expected, offset))
            log.skip(offset - expected)
        expected = offset + 1
        if written is not None:
            if source != (publisher, only_for, *asked):
                source = publisher, only_for, *asked
                begins_with = origin_checksum(*source)
            if written != message_checksum(
                begins_with, topic_id, offset, published_at_ns, body_bytes, expires_at_ns, tail
            ):
                raise StoreDamaged(f"the message at offset {offset} is not as it was written")
        # The two characters \r stand for a carriage return in a header, which STOMP 1.1 cannot escape.
        is_plain = tail.find(b"\\r", 0, -1 - body_bytes) < 0
        lifetime_ns = None if expires_at_ns is None else expires_at_ns - published_at_ns
        key = publisher, is_plain, lifetime_ns, only_for, *asked
        origin = origins.get(key)
        if origin is None:
            group_key, outcome_to = asked
            origin = origins[key] = Origin(
                publisher,
                is_plain=is_plain,
                lifetime_ns=lifetime_ns,
                only_for=only_for,
                group_key=group_key,
                outcome_to=outcome_to,
            )
        run.append(Message(body_bytes, tail, origin, published_at_ns))
    if run:
        log.append(run)
    if not found.is_cut:
        if expected < stop:
            absent.append((expected, stop))
        log.skip(stop - log.end_offset)
    return log, absent


def _lost_of(connection: Connection, topic_id: int, absent: list[tuple[int, int]]) -> int | None:
    """The lowest of these offsets that should have a message; None if all are explained.

    Asked after the page was read, so that messages deleted meanwhile are explained.
    """
    first, last = absent[0][0], absent[-1][1]
    bounds = select(topics.c.whole_from, topics.c.next_offset).where(topics.c.id == topic_id)
    whole_from, next_offset = connection.execute(bounds).one_or_none() or (None, 0)
    if whole_from is None:
        return None  # an older release wrote the topic, or it is gone
    explained = OffsetRanges()
    if whole_from > 0:
        explained.add(0, whole_from)
    if next_offset < last:
        explained.add(next_offset, last)
    rows = connection.execute(select(gaps).where(gaps.c.topic_id == topic_id, gaps.c.stop > first, gaps.c.start < last))
    for _, stop, start in checked(gaps.name, rows):
        explained.add(start, stop)
    return next((lost for start, stop in absent for lost, _ in explained.gaps(start, stop)), None)


@contextmanager
def misread_is_damage() -> Iterator[None]:
    """Raises StoreDamaged for stored values of the wrong type or format."""
    try:
        yield
    except (TypeError, ValueError, struct.error) as error:
        raise StoreDamaged(f"what was stored cannot be read ({error})") from error


def ledger_page(connection: Connection, after: int, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """The next few batches of the ledger with an id above `after`."""
    batches = select(ledger_batches).where(ledger_batches.c.id > after, *conditions).order_by(ledger_batches.c.id)
    return connection.execute(batches.limit(LEDGER_PAGE_ROWS)).all()


def check_batch(row: Row[Any]) -> None:
    """Raises StoreDamaged if a row of `ledger_batches` is not as it was written."""
    *values, payload, found = tuple(row)
    if found is not None and found != checksum(tuple(values), payload):
        raise StoreDamaged(f"batch {row.id} of the ledger cannot be read: it is not as it was written")
