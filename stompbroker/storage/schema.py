"""The tables. Those of the rows in `batch.py` have a column for each field, which is described there.

`migrations/` creates them; a test compares the two. There are no foreign keys: they would cost a look-up per message,
and the one writer removes all rows of a topic or a subscription together. Defaults are for rows from before their
column; new rows name every value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
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

from stompbroker.ids import Offset
from stompbroker.storage.batch import (
    CursorRow,
    ExportRow,
    Gap,
    LastValueRow,
    LedgerRow,
    ProducerRow,
    RedeliveryRow,
    SubscriptionRow,
    TopicRow,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Constraint

#: The last step of `migrations/`, as a test checks. Written here so that a start need not import Alembic.
REVISION: Final = "0009"

#: A migration can only drop constraints whose names it knows.
NAMING_CONVENTION: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "pk": "pk_%(table_name)s",
}

#: SQLite needs no second tree for an INTEGER PRIMARY KEY. All of its integers have 64 bits.
_Id: Final = BigInteger().with_variant(Integer(), "sqlite")

#: The columns of the fields of these types. Others are packed: ranges by `row_format.pack_ranges`, records by
#: `stompbroker.ledger`.
_TYPES: Final[Mapping[Any, type[Any]]] = {int: BigInteger, Offset: BigInteger, str: Text, bool: Boolean}
_ZERO: Final = text("0")

#: For an index in which messages that never expire, most of them, cost nothing.
EXPIRES: Final = text("expires_at_ns IS NOT NULL")

metadata = MetaData(naming_convention=NAMING_CONVENTION)


def _checksum() -> Column[int]:
    """Covers the columns before it (`row_format.py`); NULL in rows of old releases."""
    return Column("checksum", BigInteger)


def _table(
    name: str, row: type[tuple[Any, ...]], *rest: Constraint | Index, keys: int = 1, defaults: Mapping[str, Any] = {}
) -> Table:
    """The first `keys` fields of `row` are the primary key."""
    columns: list[Column[Any]] = []
    for field, hint in get_type_hints(row).items():
        kind, is_optional = (get_args(hint)[0], True) if type(None) in get_args(hint) else (hint, False)
        columns.append(
            Column(
                field,
                _Id if field == "id" else _TYPES.get(kind, LargeBinary),
                primary_key=len(columns) < keys,
                autoincrement=False,
                nullable=is_optional,
                server_default=defaults.get(field),
            )
        )
    return Table(name, metadata, *columns, _checksum(), *rest)


#: One row: who owns the store, and which batch was the last one written (`ownership.py`).
journal_state = Table(
    "journal_state",
    metadata,
    CheckConstraint("id = 1", name="one_row"),
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
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

#: The only row: until when the owner may go on, on a server (`lease.py`).
leases = Table(
    "leases",
    metadata,
    CheckConstraint("id = 1", name="one_row"),
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    #: The token of the owner whose lease it is. If another one owns the store, that has no lease.
    Column("owner", Text, nullable=False),
    #: By the database's clock; NULL once it was given back.
    Column("until", DateTime(timezone=True)),
)

#: `whole_from` is NULL in rows of old releases.
topics = _table("topics", TopicRow, UniqueConstraint("kind", "name"), defaults={"kind": "topic"})

#: For the search for expired messages. `postgres_engine.py` makes it partial there, too: an option named here would
#: import SQLAlchemy's part for PostgreSQL.
expiring: Final = Index(None, "expires_at_ns", "topic_id", "offset", sqlite_where=EXPIRES)

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
    #: Its order in a queue or group, and where its publisher is told of its end; NULL: none. The checksum covers them.
    Column("group_key", Text),
    Column("outcome_to", Text),
    expiring,
)

#: `stop` comes before `start`, so that the index finds the gaps behind an offset.
gaps = _table("gaps", Gap, keys=3)

_IDENTITY: Final = UniqueConstraint("owner", "kind", "scope", "name")
subscriptions = _table("subscriptions", SubscriptionRow, _IDENTITY, defaults={"is_ordered": false(), "delivery": ""})

#: The index is for the removal of a topic, here and in `redeliveries`.
cursors = _table("cursors", CursorRow, Index(None, "topic_id"), keys=2, defaults={"generation": _ZERO})

redeliveries = _table(
    "redeliveries",
    RedeliveryRow,
    Index(None, "topic_id"),
    keys=3,
    defaults={"first_attempt_at_ns": _ZERO, "last_attempt_at_ns": _ZERO, "is_final": false(), "nacks": _ZERO},
)

producers = _table("producers", ProducerRow, keys=2)

last_values = _table("last_values", LastValueRow)

#: Records of the ledger, from the transaction that settles their deliveries until they are in a file of the lake. The
#: index is for the export of a day, in order.
ledger_batches = _table("ledger_batches", LedgerRow, Index(None, "kind", "day", "id"))

ledger_exports = _table("ledger_exports", ExportRow)
