"""The tables. `batch.py` describes the columns that its rows have too.

`migrations/` creates them; a test compares the two. There are no foreign keys: they would cost a look-up per message,
and the one writer removes all rows of a topic or a subscription together. Defaults are for rows from before their
column; new rows name every value.
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

#: The last step of `migrations/`, as a test checks. Written here so that a start need not import Alembic.
REVISION: Final = "0005"

#: A migration can only drop constraints whose names it knows.
NAMING_CONVENTION: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "pk": "pk_%(table_name)s",
}

#: SQLite needs no second tree for an INTEGER PRIMARY KEY. All of its integers have 64 bits.
_Id: Final = BigInteger().with_variant(Integer(), "sqlite")

#: For an index in which messages that never expire, most of them, cost nothing.
_EXPIRES: Final = text("expires_at_ns IS NOT NULL")

metadata = MetaData(naming_convention=NAMING_CONVENTION)


def _checksum() -> Column[int]:
    """Covers the columns before it (`row_format.py`); NULL in rows of old releases."""
    return Column("checksum", BigInteger)


#: One row: who owns the store, and which batch was the last one written (`ownership.py`).
journal_state = Table(
    "journal_state",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    #: The beginning of every message id.
    Column("store_id", Text, nullable=False),
    #: A token that the owner made at its start; the fence compares it.
    Column("owner", Text, nullable=False),
    #: For people: process, host, since when.
    Column("owner_description", Text, nullable=False),
    Column("start_number", BigInteger, nullable=False),
    Column("batch", BigInteger, nullable=False),
    #: Whether the last owner closed the store; otherwise the next one checks it.
    Column("was_closed", Boolean, nullable=False, server_default=false()),
    #: Covers store id, owner, description and start number, but not what changes with each batch.
    _checksum(),
)

topics = Table(
    "topics",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False, server_default="topic"),
    Column("name", Text, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    #: NULL in rows of old releases.
    Column("whole_from", BigInteger),
    _checksum(),
    UniqueConstraint("kind", "name"),
)

#: In SQLite a rowid table with an index for its primary key: WITHOUT ROWID was 2.8 times slower.
messages = Table(
    "messages",
    metadata,
    Column("topic_id", BigInteger, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("published_at_ns", BigInteger, nullable=False),
    Column("publisher", Text, nullable=False),
    Column("body_bytes", BigInteger, nullable=False),
    #: Message id, headers and body.
    Column("tail", LargeBinary, nullable=False),
    #: The columns behind the tail were added later. To read them SQLite must follow a long tail to its end, unless they
    #: are NULL, so queries over many rows read them only together with the tails. NULL: never.
    Column("expires_at_ns", BigInteger),
    #: A durable subscription; NULL: for everybody.
    Column("only_for", BigInteger),
    _checksum(),
    #: For the search for expired messages.
    Index(None, "expires_at_ns", "topic_id", "offset", sqlite_where=_EXPIRES, postgresql_where=_EXPIRES),
)

gaps = Table(
    "gaps",
    metadata,
    Column("topic_id", BigInteger, primary_key=True, autoincrement=False),
    #: Before `start`, so that the index finds the gaps behind an offset.
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
    Column("first_attempt_at_ns", BigInteger, nullable=False, server_default=text("0")),
    Column("last_attempt_at_ns", BigInteger, nullable=False, server_default=text("0")),
    Column("is_final", Boolean, nullable=False, server_default=false()),
    Column("nacks", BigInteger, nullable=False, server_default=text("0")),
    _checksum(),
    Index(None, "topic_id"),
)

#: Records of the ledger, from the transaction that settles their deliveries until they are in a file of the lake.
ledger_batches = Table(
    "ledger_batches",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("day", BigInteger, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("made_at_ns", BigInteger, nullable=False),
    #: Packed by `stompbroker.ledger`.
    Column("payload", LargeBinary, nullable=False),
    _checksum(),
    #: For the export of a day, in order.
    Index(None, "kind", "day", "id"),
)

ledger_exports = Table(
    "ledger_exports",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("day", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("after_batch", BigInteger, nullable=False),
    Column("last_batch", BigInteger, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("planned_at_ns", BigInteger, nullable=False),
    Column("is_written", Boolean, nullable=False),
    _checksum(),
)
