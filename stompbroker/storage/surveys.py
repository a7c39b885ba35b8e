"""What is asked of stored messages beside pages: where they are, which have expired, how much there is of them.

Law: the database does the looking, and what comes back is numbers, never a whole tail. Each question is one statement,
so its answer is of one moment. None is on a hot path; each says what it costs.
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
    from collections.abc import Sequence

    from sqlalchemy import BindParameter, ColumnElement, Connection, Row

    from stompbroker.storage.backend import Backend

__all__ = ["MAX_FOUND", "Expired", "Extent", "Stretch", "Surveys"]

#: Places of a message that are told. One that was published once is in one place, and has a dead letter for every
#: subscription it failed for.
MAX_FOUND: Final = 100

_NUMBER: Final = b"message-id:"
_LETTER_NUMBER: Final = b"\ndead-letter-message-id:"
#: Lower than any row.
_BEFORE_ALL: Final = (-(2**63), 0, 0)

#: What one statement asks of a tail, on either engine, without reading it.
_TAIL_BYTES: Final = func.coalesce(func.sum(func.length(messages.c.tail)), 0)


class Stretch(NamedTuple):
    """What is stored of a topic between two multiples of a number of offsets. There is one message at least."""

    #: Its lowest offset, and one more than its highest.
    start: Offset
    stop: Offset
    messages: int
    tail_bytes: int
    last_published_at_ns: int


class Expired(NamedTuple):
    """A message whose time is over."""

    expires_at_ns: int
    topic_id: int
    offset: Offset
    #: Without its body; None if it is not as it was written.
    message: Message | None

    @property
    def place(self) -> tuple[int, int, int]:
        return self.expires_at_ns, self.topic_id, self.offset


class Extent(NamedTuple):
    """What is stored of a topic in a range of offsets."""

    messages: int
    tail_bytes: int
    #: Of the lowest offset; None if there is no message.
    first_offset: Offset | None
    first_published_at_ns: int | None


@final
class Surveys:
    """Of one store. Its methods raise StoreFailing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def find_messages(self, message_id: str, letter_topics: Sequence[int]) -> list[tuple[int, Offset]]:
        """Topic and offset of each message with this id, as it stands in a frame, and, in the topics `letter_topics`,
        of each dead letter of it; sorted, and no more than MAX_FOUND.

        Looks at every message, for which a server gives it 30 s: for people, who ask seldom.
        """
        written = message_id.encode()
        if b"\n" in written:
            return []  # it would be more than the line that an id is
        beginning = _NUMBER + written + b"\n"
        has_id = func.substr(messages.c.tail, 1, len(beginning)) == literal(beginning, LargeBinary)
        with self._backend.reading() as connection:
            if connection.dialect.name == "postgresql":
                # Readers are told to go by an index, which leads through the whole table in its own order here.
                connection.execute(select(func.set_config("enable_seqscan", "on", True)))
            line = _position(connection, _LETTER_NUMBER + written + b"\n")
            # A line holds no empty one, so what begins before the end of the headers also ends before it.
            has_letter_id = (line > 0) & (line < _position(connection, b"\n\n"))
            is_in_letters = messages.c.topic_id.in_(_inline(letter_topics))
            found = connection.execute(
                select(messages.c.topic_id, messages.c.offset)
                .where(or_(has_id, is_in_letters & has_letter_id))
                .limit(MAX_FOUND)
            )
            return sorted((topic_id, Offset(offset)) for topic_id, offset in found)

    def expired(self, now_ns: int, after: tuple[int, int, int] | None, limit: int) -> list[Expired]:
        """The first `limit` messages that have expired by `now_ns`, by time, topic and offset; with `after`, the place
        of an earlier answer's last one, from behind it on.

        The next rows of an index of what can expire, and what belongs to them.
        """
        columns = messages.c
        place = columns.expires_at_ns, columns.topic_id, columns.offset
        wanted = (
            select(messages)
            .where(columns.expires_at_ns <= now_ns, tuple_(*place) > tuple_(*(after or _BEFORE_ALL)))
            .order_by(*place)
            .limit(limit)
        )
        with self._backend.reading() as connection:
            return list(map(_expired, connection.execute(wanted)))

    def stretches(self, topic_id: int, size: int, stop: int) -> list[Stretch]:
        """What is stored of a topic below `stop` between multiples of `size` offsets, where there is something; sorted.

        Looks at every row of the topic, but not at long tails.
        """
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
        with self._backend.reading() as connection:
            return sorted(Stretch(*row) for row in connection.execute(wanted))

    def extent(self, topic_id: int, start: int, stop: int) -> Extent:
        """What is stored of a topic at offsets start <= o < stop. Looks at every row there, but not at long tails."""
        first_published_at_ns = (
            select(messages.c.published_at_ns).where(*IN_RANGE).order_by(messages.c.offset).limit(1).scalar_subquery()
        )
        wanted = select(func.count(), _TAIL_BYTES, func.min(messages.c.offset), first_published_at_ns).where(*IN_RANGE)
        with self._backend.reading() as connection:
            return Extent(*connection.execute(wanted, {"topic_id": topic_id, "start": start, "stop": stop}).one())


def _expired(row: Row[Any]) -> Expired:
    """Reads the whole tail although only its first line is needed: an altered time must not make a message expire."""
    message = None
    with suppress(TypeError, ValueError, struct.error):  # an altered value may have any type and any length
        expected = message_checksum(
            origin_checksum(row.publisher, row.only_for),
            row.topic_id,
            row.offset,
            row.published_at_ns,
            row.body_bytes,
            row.expires_at_ns,
            row.tail,
        )
        if row.checksum is None or row.checksum == expected:
            origin = Origin(row.publisher, is_plain=True, expires_at_ns=row.expires_at_ns, only_for=row.only_for)
            first_line = bytes(row.tail[: row.tail.index(b"\n") + 1])
            message = Message(row.body_bytes, first_line, origin, row.published_at_ns)
    return Expired(row.expires_at_ns, row.topic_id, Offset(row.offset), message)


def _position(connection: Connection, part: bytes) -> ColumnElement[int]:
    """Where `part` first stands in the tail, from 1 on; 0 if nowhere."""
    looked_for = literal(part, LargeBinary)
    if connection.dialect.name == "postgresql":
        return func.pg_catalog.position(messages.c.tail, looked_for, type_=Integer)
    return func.instr(messages.c.tail, looked_for, type_=Integer)


def _inline(numbers: Sequence[int]) -> BindParameter[Any]:
    """Numbers as part of the text: there may be more of them than a statement takes parameters."""
    return bindparam("numbers", numbers, BigInteger(), expanding=True, literal_execute=True)
