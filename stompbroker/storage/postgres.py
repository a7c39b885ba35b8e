"""A store in a database of a PostgreSQL server (`postgres_engine.py` connects to it)."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy import bindparam, func, literal, select, text
from sqlalchemy.exc import SQLAlchemyError

from stompbroker.storage import lease as leasing
from stompbroker.storage.batch_statements import batch_statements
from stompbroker.storage.batch_writing import BatchWriter, message_rows
from stompbroker.storage.failures import StoreHeld, StoreTaken
from stompbroker.storage.one_statement import OneStatement, fits
from stompbroker.storage.ownership import holder_of
from stompbroker.storage.paging import Rows
from stompbroker.storage.postgres_engine import passwords_in, reading_engine, session_of, shown, writing_engine
from stompbroker.storage.schema import messages, metadata
from stompbroker.storage.statements import IN_RANGE, text_of
from stompbroker.storage.store import Store, discard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import URL, Connection, Dialect

    from stompbroker.storage.batch import Batch, MessageRun
    from stompbroker.storage.lease import Lease, Standing
    from stompbroker.storage.paging import PageLimits

# The lock ------------------------------------------------------------------------------------------------------------

#: "STMP". The second number of the lock is the hash of the schema, since each schema can be a store.
_LOCK_KEY: Final = 0x53544D50
_LOCK_SCHEMA: Final = func.hashtext(func.current_schema())
#: How long the sessions of a lost owner may take to end once they are told to, and how often we look, in seconds.
_END_S: Final = 2.0
_LOOK_S: Final = 0.02
#: The server shows other users' start times only to those with the right to see them.
_LOCK_HOLDER: Final = text(
    """
    SELECT activity.pid, activity.client_addr,
      to_char(activity.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
    FROM pg_locks AS held JOIN pg_stat_activity AS activity USING (pid)
    WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 2
      AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND held.classid::bigint = :key AND held.objid = hashtext(current_schema())::oid
    """
)


def _lock_holder(connection: Connection) -> str | None:
    row = connection.execute(_LOCK_HOLDER, {"key": _LOCK_KEY}).one_or_none()
    if row is None:
        return None
    pid, address, started_at = row
    since = f" since {started_at} UTC" if started_at else ""
    return f"database session {pid}, from {address or 'this machine'}{since}"


# The store -----------------------------------------------------------------------------------------------------------

#: Of the columns of `messages`, in their order; binary COPY converts nothing.
_COPIED_TYPES: Final = ("int8", "int8", "int8", "text", "int8", "bytea", "int8", "int8", "int8", "text", "text")


@final
class PostgresStore(Store):
    """Connects on first use.

    An advisory lock, held by a session of its own, tells a second broker in time that the store is taken. It goes with
    the session; what makes a second writer harmless is the fence in `journal_state`. If there is a lease, that decides:
    while it lasts, nobody else takes the store even without the lock, and when it is over, the lock keeps nobody out.

    Invariants:
        who takes the store holds the row of the lease, and judges and changes both rows in one transaction
    """

    def __init__(self, url: URL) -> None:
        super().__init__(shown(url), writing_engine(url), reading_engine(url), passwords_in(url))
        dialect = self._writers.dialect
        self._batch_writer = BatchWriter(batch_statements(dialect), self._copy_messages)
        self._one_statement = OneStatement(dialect)
        self._page_statement = _page_statement(dialect)
        columns = ", ".join(dialect.identifier_preparer.format_column(column) for column in messages.columns)
        self._copy = f"COPY {messages.name} ({columns}) FROM STDIN (FORMAT BINARY)"
        #: Holds the lock.
        self._session: Connection | None = None
        #: Renews the lease; a thread that does it takes it away, since a lost one may never come back.
        self._renewing: Connection | None = None

    def stored_bytes(self) -> int:
        sizes = (func.pg_total_relation_size(literal(table.name)) for table in metadata.sorted_tables)
        with self.reading() as connection:
            return sum(connection.execute(select(*sizes)).one())

    # The owner -------------------------------------------------------------------------------------------------------

    def look_at_owner(self) -> Standing:
        with self._failures.translated_for_operator("Cannot look at the store"), self._readers.begin() as connection:
            standing = leasing.look(connection)
            if not standing.is_leased and _lock_holder(connection) is None:
                return replace(standing, owner="")
            return standing

    def _admit(self, connection: Connection, predecessor: str) -> None:
        leasing.hold_row(connection)
        standing = leasing.look(connection)
        is_over = standing.is_over or (standing.is_leased and standing.owner == predecessor)
        holder = self._lock_again()
        if is_over:
            self._end_sessions_of_lost(connection)
        elif holder is not None:
            broker = holder_of(connection) or "one that is just starting"
            raise StoreHeld(
                f"The store {self.where} is held by another broker: {broker} ({holder}). "
                "Stop that one first, or give this one a store of its own."
            )
        if standing.is_leased and not is_over:
            lasts_s = standing.lasts_s or 0.0
            self._unlock()
            raise StoreHeld(
                f"The store {self.where} is held by another broker: {standing.description} (its lease lasts "
                f"{lasts_s:.1f} s more). Stop that one first, or give this one a store of its own.",
                lasts_s=lasts_s,
            )

    def _end_sessions_of_lost(self, successor: Connection) -> None:
        """They are not missed for long: a dead machine says no goodbye. If we may not end them, the fence keeps their
        batches out, and the lease other brokers."""
        session = self._session or self._own_session()
        with suppress(SQLAlchemyError):
            leasing.end_sessions(session, lock_key=_LOCK_KEY, successor=session_of(successor))
        if session is not self._session:
            discard(session)
        gives_up_at_s = time.monotonic() + _END_S
        while self._lock_again() is not None and time.monotonic() < gives_up_at_s:
            time.sleep(_LOOK_S)

    def _begin_lease(self, connection: Connection, lease: Lease) -> None:
        asked_at_s = leasing.boottime_s()
        leasing.begin(connection, self._fence.owner, lease.lease_s)
        lease.note_renewed(asked_at_s)

    def renew_lease(self) -> None:
        if self.lease is None:
            return
        connection, self._renewing = self._renewing, None
        with self._failures.translated():
            if connection is None:
                connection = self._own_session()
            try:
                asked_at_s = leasing.boottime_s()
                is_ours = leasing.renew(connection, self._fence.owner, self.lease.lease_s)
                self._fence.check(lambda look: connection.exec_driver_sql(look).one_or_none())
            except BaseException:
                discard(connection)
                raise
        if not is_ours:
            discard(connection)
            raise StoreTaken(f"The lease of the store {self.where} is not ours any more: somebody has changed its row.")
        self._renewing = connection
        self.lease.note_renewed(asked_at_s)

    def _give_back(self, connection: Connection) -> None:
        leasing.give_back(connection, self._fence.owner)

    def _own_session(self) -> Connection:
        """Each statement is a transaction."""
        return self._connect().execution_options(isolation_level="AUTOCOMMIT")

    def _lock_again(self) -> str | None:
        if self._session is not None:
            with suppress(SQLAlchemyError):
                self._session.exec_driver_sql("SELECT 1")
                return None
            self._unlock()
        session = self._own_session()
        try:
            if session.execute(select(func.pg_try_advisory_lock(_LOCK_KEY, _LOCK_SCHEMA))).scalar_one():
                self._session = session
                return None
            return _lock_holder(session) or "it has just let go"
        finally:
            if self._session is not session:
                discard(session)

    def _unlock(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            discard(session)

    def close(self, *, is_sound: bool = True) -> None:
        super().close(is_sound=is_sound)
        self._unlock()
        if self._renewing is not None:
            discard(self._renewing)
            self._renewing = None

    def _commit(self, connection: Any, batch: Batch) -> None:
        if fits(batch):
            self._one_statement.commit(connection.driver_connection, batch, self._fence)
        else:
            super()._commit(connection, batch)

    def _copy_messages(self, cursor: Any, runs: Sequence[MessageRun]) -> None:
        """By COPY in binary form: 1.6 µs of our time a row, against 23 by INSERT of many rows."""
        with cursor.copy(self._copy) as copy:
            copy.set_types(_COPIED_TYPES)
            write_row = copy.write_row
            for row in message_rows(runs):
                write_row(row)

    def _read_rows(self, connection: Connection, topic_id: int, start: int, stop: int, limits: PageLimits) -> Rows:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor(binary=True) as cursor:
            cursor.execute(self._page_statement, (topic_id, start, stop, limits.rows, limits.bytes))
            rows = cursor.fetchall()
        sent_bytes = sum(len(row[4]) for row in rows)
        return Rows(rows, is_cut=len(rows) == limits.rows or sent_bytes >= limits.bytes)


def _page_statement(dialect: Dialect) -> str:
    """The server adds up lengths, which it knows without reading long tails, and sends no row beyond the limits."""
    tail_bytes = func.octet_length(messages.c.tail)
    bytes_before = func.sum(tail_bytes).over(order_by=messages.c.offset, rows=(None, 0)) - tail_bytes
    rows = (
        select(messages, bytes_before.label("bytes_before"))
        .where(*IN_RANGE)
        .order_by(messages.c.offset)
        .limit(bindparam("rows"))
        .subquery()
    )
    _topic_id, *columns, before = rows.columns
    page = select(*columns).where(before < bindparam("bytes")).order_by(rows.c.offset)
    statement, names = text_of(page, dialect)
    assert names == ("topic_id", "start", "stop", "rows", "bytes")
    return statement
