"""The tables.

Law: names, types and constraints, and nothing that runs. `migrations/` creates them; a test compares the two. Only what
is asked for by an index has one. There are no foreign keys: they would cost a look-up per message, and the one writer
removes what belongs to a topic or a subscription in the transaction that removes it. Defaults are for rows that were
there before their column was; new rows say every value.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

__all__ = [
    "REVISION",
    "cursors",
    "gaps",
    "journal_state",
    "ledger_batches",
    "ledger_exports",
    "messages",
    "metadata",
    "redeliveries",
    "subscriptions",
    "topics",
]

#: The step of `migrations/` that leads to these tables: the last one, which a test makes sure of. Said here so that a
#: start need not ask Alembic (`migrating.py`).
REVISION: Final = "0005"

#: Without names of its own making, a migration could not name what it drops.
NAMING_CONVENTION: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "pk": "pk_%(table_name)s",
}

#: SQLite keeps a table in the order of its INTEGER PRIMARY KEY, in no second tree. All of its integers have 64 bits.
_Id: Final = BigInteger().with_variant(Integer(), "sqlite")

#: Most messages never expire, and cost an index of those that do nothing.
_EXPIRES: Final = text("expires_at_ns IS NOT NULL")

metadata = MetaData(naming_convention=NAMING_CONVENTION)


def _checksum() -> Column[int]:
    """Of what stands before it in the row (`row_format.py`); NULL in rows from before there was one."""
    return Column("checksum", BigInteger)


#: One row: whose store this is, and which batch was the last one written.
journal_state = Table(
    "journal_state",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    #: Eight hexadecimal digits, made at the first start; the beginning of every message id.
    Column("store_id", Text, nullable=False),
    #: A token that the owning process made up at its start; the fence compares it.
    Column("owner", Text, nullable=False),
    #: The same for people: process, host, since when.
    Column("owner_description", Text, nullable=False),
    #: 1 for the first start.
    Column("start_number", BigInteger, nullable=False),
    Column("batch", BigInteger, nullable=False),
    #: Whether the last owner has closed the store; otherwise the next one has it checked.
    Column("was_closed", Boolean, nullable=False, server_default=false()),
    #: Of store id, owner, description and start number: what changes with each batch is not worth guarding.
    _checksum(),
)

topics = Table(
    "topics",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    #: topic or queue. There may be one of each with the same name.
    Column("kind", Text, nullable=False, server_default="topic"),
    Column("name", Text, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    #: Every offset from it on and below the next one has a message or lies in a gap; so what has neither is lost. NULL
    #: in rows from before: nothing is known.
    Column("whole_from", BigInteger),
    _checksum(),
    UniqueConstraint("kind", "name"),
)

#: In SQLite an ordinary rowid table whose primary key is an index beside it: WITHOUT ROWID was 2.8 times slower.
messages = Table(
    "messages",
    metadata,
    Column("topic_id", BigInteger, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("published_at_ns", BigInteger, nullable=False),
    Column("publisher", Text, nullable=False),
    #: Message id, headers and body are slices of the tail; this says where the body begins.
    Column("body_bytes", BigInteger, nullable=False),
    Column("tail", LargeBinary, nullable=False),
    #: Behind the tail, as they were added. SQLite must follow a long tail to its end to read a number there, though not
    #: to find NULL; so queries over many rows read these only where they read the tails as well.
    #: NULL: never.
    Column("expires_at_ns", BigInteger),
    #: The one durable subscription it is for; NULL: for everybody.
    Column("only_for", BigInteger),
    _checksum(),
    #: For the search for expired messages: holds all that it asks for, in its order.
    Index(None, "expires_at_ns", "topic_id", "offset", sqlite_where=_EXPIRES, postgresql_where=_EXPIRES),
)

#: Offsets start <= o < stop of a topic that have no message for a reason: they were never stored, or were deleted
#: although something below them is kept.
gaps = Table(
    "gaps",
    metadata,
    Column("topic_id", BigInteger, primary_key=True, autoincrement=False),
    #: First, so that those behind a place are found by the index.
    Column("stop", BigInteger, primary_key=True, autoincrement=False),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    _checksum(),
)

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("pattern", Text, nullable=False),
    Column("ack_mode", Text, nullable=False),
    Column("is_no_local", Boolean, nullable=False),
    Column("created_at_ns", BigInteger, nullable=False),
    Column("last_seen_at_ns", BigInteger, nullable=False),
    Column("is_ordered", Boolean, nullable=False, server_default=false()),
    #: What the subscriber wishes otherwise than the broker's settings have it, as JSON; empty: nothing.
    Column("delivery", Text, nullable=False, server_default=""),
    _checksum(),
    UniqueConstraint("owner", "kind", "scope", "name"),
)

cursors = Table(
    "cursors",
    metadata,
    Column("subscription_id", BigInteger, primary_key=True, autoincrement=False),
    Column("topic_id", BigInteger, primary_key=True, autoincrement=False),
    Column("ack_floor", BigInteger, nullable=False),
    #: As `row_format.pack_ranges` writes it.
    Column("settled", LargeBinary, nullable=False),
    Column("sent_up_to", BigInteger, nullable=False),
    #: How often it was moved to another place.
    Column("generation", BigInteger, nullable=False, server_default=text("0")),
    _checksum(),
    #: For the removal of a topic.
    Index(None, "topic_id"),
)

redeliveries = Table(
    "redeliveries",
    metadata,
    Column("subscription_id", BigInteger, primary_key=True, autoincrement=False),
    Column("topic_id", BigInteger, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("attempts", BigInteger, nullable=False),
    Column("due_at_ns", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    #: 0: not known.
    Column("first_attempt_at_ns", BigInteger, nullable=False, server_default=text("0")),
    Column("last_attempt_at_ns", BigInteger, nullable=False, server_default=text("0")),
    #: Not tried again, whatever the policy says.
    Column("is_final", Boolean, nullable=False, server_default=false()),
    #: How many of the attempts were refused.
    Column("nacks", BigInteger, nullable=False, server_default=text("0")),
    _checksum(),
    Index(None, "topic_id"),
)

#: Records of the ledger, from the transaction that settles their deliveries until a file of the lake holds them.
ledger_batches = Table(
    "ledger_batches",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    #: Which table of the lake they belong to, and which day of it: days since the epoch.
    Column("kind", Text, nullable=False),
    Column("day", BigInteger, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("made_at_ns", BigInteger, nullable=False),
    #: As `stompbroker.ledger` packs them.
    Column("payload", LargeBinary, nullable=False),
    _checksum(),
    #: For the export of a day, in the order in which it was written.
    Index(None, "kind", "day", "id"),
)

#: Files of the lake that are being written, or whose batches are not yet all deleted.
ledger_exports = Table(
    "ledger_exports",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("day", BigInteger, nullable=False),
    #: Of the file, in the directory of its kind and day.
    Column("name", Text, nullable=False),
    #: It holds all batches of its kind and day behind the one and up to the other, and so many records.
    Column("after_batch", BigInteger, nullable=False),
    Column("last_batch", BigInteger, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("planned_at_ns", BigInteger, nullable=False),
    #: The file is there. From now on it must not be written again: batches it holds may be deleted.
    Column("is_written", Boolean, nullable=False),
    _checksum(),
)
