"""Questions about stored messages: where they are, which have expired, how much there is.

Each is one statement, so its answer is of one moment. The database does the work and sends numbers, no bodies. None is
on a hot path; each docstring says what it costs.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from sqlalchemy import BigInteger, Integer, LargeBinary, bindparam, func, literal, or_, select, tuple_

from stompbroker.ids import Offset
from stompbroker.message import Message, Origin
from stompbroker.storage.row_format import message_checksum, origin_checksum
from stompbroker.storage.schema import messages
from stompbroker.storage.statements import IN_RANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import ColumnElement, Connection, Row

#: Most places of a message that are returned: its own, and a dead letter for each subscription it failed for.
MAX_FOUND: Final = 100

_NUMBER: Final = b"message-id:"
_LETTER_NUMBER: Final = b"\ndead-letter-message-id:"
#: Lower than any row.
_BEFORE_ALL: Final = (-(2**63), 0, 0)

#: Neither engine reads long tails for it.
_TAIL_BYTES: Final = func.coalesce(func.sum(func.length(messages.c.tail)), 0)


class Stretch(NamedTuple):
    """The stored messages of a topic, at least one, between two multiples of a number of offsets."""

    #: The lowest offset, and one more than the highest.
    start: Offset
    stop: Offset
    messages: int
    tail_bytes: int
    last_published_at_ns: int


class Expired(NamedTuple):
    """An expired message."""

    expires_at_ns: int
    topic_id: int
    offset: Offset
    #: Without its body, and only with its id unless its publisher asks; None if it is not as it was written.
    message: Message | None

    @property
    def place(self) -> tuple[int, int, int]:
        return self.expires_at_ns, self.topic_id, self.offset


class Extent(NamedTuple):
    """The stored messages of a topic in a range of offsets."""

    messages: int
    tail_bytes: int
    #: Of the lowest offset; None if there is no message.
    first_offset: Offset | None
    first_published_at_ns: int | None


@final
class Surveys:
    """Questions to one store, each on a connection from `reading`. They raise StoreFailing."""

    def __init__(self, reading: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._reading = reading

    def find_messages(self, message_id: str, letter_topics: Sequence[int]) -> list[tuple[int, Offset]]:
        """Topic and offset of each message with this id, as in a frame, and of its dead letters in `letter_topics`;
        sorted, at most MAX_FOUND.

        Reads every message, for which a server allows 30 s: for people, who ask seldom.
        """
        written = message_id.encode()
        if b"\n" in written:
            return []  # an id is one line
        beginning = _NUMBER + written + b"\n"
        has_id = func.substr(messages.c.tail, 1, len(beginning)) == literal(beginning, LargeBinary)
        with self._reading() as connection:
            if connection.dialect.name == "postgresql":
                # Readers otherwise use an index, which here would lead through the whole table in random order.
                connection.execute(select(func.set_config("enable_seqscan", "on", True)))
            line = _position(connection, _LETTER_NUMBER + written + b"\n")
            # A line that begins before the empty line behind the headers also ends before it.
            has_letter_id = (line > 0) & (line < _position(connection, b"\n\n"))
            # The numbers are part of the text: there may be more of them than a statement takes parameters.
            letters = bindparam("letters", letter_topics, BigInteger(), expanding=True, literal_execute=True)
            is_in_letters = messages.c.topic_id.in_(letters)
            found = connection.execute(
                select(messages.c.topic_id, messages.c.offset)
                .where(or_(has_id, is_in_letters & has_letter_id))
                .limit(MAX_FOUND)
            )
            return sorted((topic_id, Offset(offset)) for topic_id, offset in found)

    def expired(self, now_ns: int, after: tuple[int, int, int] | None, limit: int) -> list[Expired]:
        """The first `limit` messages that have expired by `now_ns`, by time, topic and offset; or the next ones behind
        `after`, the last place of an earlier answer. Reads these by an index of messages that can expire.
        """
        columns = messages.c
        place = columns.expires_at_ns, columns.topic_id, columns.offset
        wanted = (
            select(messages)
            .where(columns.expires_at_ns <= now_ns, tuple_(*place) > tuple_(*(after or _BEFORE_ALL)))
            .order_by(*place)
            .limit(limit)
        )
        with self._reading() as connection:
            return list(map(_expired, connection.execute(wanted)))

    def stretches(self, topic_id: int, size: int, stop: int) -> list[Stretch]:
        """The messages of a topic below `stop`, by multiples of `size` offsets; sorted. Reads every row, but
        no long tails."""
        wanted = (
            select(
                func.min(messages.c.offset),
                func.max(messages.c.offset) + 1,
                func.count(),
                _TAIL_BYTES,
                func.max(messages.c.published_at_ns),
            )
            .where(messages.c.topic_id == topic_id, messages.c.offset < stop)
            .group_by(messages.c.offset // size)
        )
        with self._reading() as connection:
            return sorted(Stretch(*row) for row in connection.execute(wanted))

    def extent(self, topic_id: int, start: int, stop: int) -> Extent:
        """The messages of a topic at offsets start <= o < stop. Reads every row there, but no long tails."""
        first_published_at_ns = (
            select(messages.c.published_at_ns).where(*IN_RANGE).order_by(messages.c.offset).limit(1).scalar_subquery()
        )
        wanted = select(func.count(), _TAIL_BYTES, func.min(messages.c.offset), first_published_at_ns).where(*IN_RANGE)
        with self._reading() as connection:
            return Extent(*connection.execute(wanted, {"topic_id": topic_id, "start": start, "stop": stop}).one())


def _expired(row: Row[Any]) -> Expired:
    """Reads the whole tail although only its first line is needed: an altered time must not make a message expire."""
    message = None
    with suppress(TypeError, ValueError, struct.error):  # an altered value may have any type and any length
        expected = message_checksum(
            origin_checksum(row.publisher, row.only_for, row.group_key, row.outcome_to),
            row.topic_id,
            row.offset,
            row.published_at_ns,
            row.body_bytes,
            row.expires_at_ns,
            row.tail,
        )
        if row.checksum is None or row.checksum == expected:
            origin = Origin(
                row.publisher,
                is_plain=True,
                expires_at_ns=row.expires_at_ns,
                only_for=row.only_for,
                group_key=row.group_key,
                outcome_to=row.outcome_to,
            )
            end = row.tail.index(b"\n" if row.outcome_to is None else b"\n\n") + 1
            message = Message(row.body_bytes, bytes(row.tail[:end]), origin, row.published_at_ns)
    return Expired(row.expires_at_ns, row.topic_id, Offset(row.offset), message)


def _position(connection: Connection, part: bytes) -> ColumnElement[int]:
    """The first position of `part` in the tail, from 1 on; 0 if it has none."""
    looked_for = literal(part, LargeBinary)
    if connection.dialect.name == "postgresql":
        return func.pg_catalog.position(messages.c.tail, looked_for, type_=Integer)
    return func.instr(messages.c.tail, looked_for, type_=Integer)
