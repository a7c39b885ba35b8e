"""A store in a database of a PostgreSQL server.

Every wait has an end on both sides, so that a lost server and a lost broker are noticed. Options in the operator's URL
override ours. No text shows a password.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy import (
    URL,
    NullPool,
    Pool,
    QueuePool,
    bindparam,
    create_engine,
    event,
    func,
    literal,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from stompbroker.errors import OperatorError
from stompbroker.storage import lease as leasing
from stompbroker.storage.batch_statements import batch_statements
from stompbroker.storage.batch_writing import BatchWriter, message_rows
from stompbroker.storage.failures import StoreHeld, StoreTaken
from stompbroker.storage.one_statement import OneStatement, fits
from stompbroker.storage.ownership import holder_of
from stompbroker.storage.paging import Rows
from stompbroker.storage.schema import EXPIRES, expiring, messages, metadata
from stompbroker.storage.statements import IN_RANGE, text_of
from stompbroker.storage.store import Store, discard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Dialect, Engine

    from stompbroker.storage.batch import Batch, MessageRun
    from stompbroker.storage.lease import Lease, Standing
    from stompbroker.storage.paging import PageLimits

expiring.dialect_kwargs["postgresql_where"] = EXPIRES

_ALLOWED: Final = (
    "Give --database postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE for a PostgreSQL server, "
    "or none for the SQLite file stompbroker.db in the data directory."
)

#: Options of libpq. It gives up connecting after 5 s, and notices a dead server after 15 + 3 × 5 s of silence or when
#: sent data is not confirmed within 15 s.
_CONNECTION: Final = {
    "application_name": "stompbroker",
    "connect_timeout": "5",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}

#: Settings of a session. The server notices a dead broker as fast as we notice a dead server, so that its locks go
#: before the next broker gives up.
_SESSION: Final = {
    "tcp_keepalives_idle": "15s",
    "tcp_keepalives_interval": "5s",
    "tcp_keepalives_count": "3",
    "client_encoding": "UTF8",
    # Compiling a statement takes longer than running any of ours.
    "jit": "off",
}
#: A statement writes at most 512 rows or reads a page, so 30 s mean that something is wrong. Somebody else's lock on
#: our rows may last a little. Our transactions are never idle, so an idle one belongs to a lost broker.
_TIMEOUTS: Final = {
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
}
#: A page is the next rows of an index. On a table that was never analysed the planner expects few rows in a topic, and
#: would sort a million of them for every page.
_PLANS: Final = {"enable_bitmapscan": "off", "enable_seqscan": "off", "enable_sort": "off"}


def server_url(database: str) -> URL:
    """The URL of a PostgreSQL server. Raises OperatorError for anything else, saying what is allowed."""
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        # The text is not repeated: it may hold a password anywhere.
        raise OperatorError(f"The database is not written as a URL. {_ALLOWED}") from None
    if url.drivername != "postgresql+psycopg":
        raise OperatorError(f"A database {url.drivername!r} is not one we know. {_ALLOWED}")
    return url


def shown(url: URL) -> str:
    """The URL for people: without password, and without options, which may hold one."""
    return URL.create(
        url.drivername, username=url.username, host=url.host, port=url.port, database=url.database
    ).render_as_string()


def passwords_in(url: URL) -> list[str]:
    """The secrets in the URL: its password, and the values of options named after one."""
    options = [value for name, value in url.normalized_query.items() if "password" in name]
    return [text for text in (url.password, *chain.from_iterable(options)) if text]


def writing_engine(url: URL) -> Engine:
    """Connections are never reused, and a COMMIT returns when the transaction is on disk."""
    engine = _engine(url, _SESSION | _TIMEOUTS, NullPool)

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: object) -> None:
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()
        # The driver sends an integer as the smallest type that holds it, and a statement is prepared for each
        # combination of types: with a checksum in every row, hardly any is used again.
        connection.adapters.register_dumper(int, import_module("psycopg.types.numeric").Int8BinaryDumper)

    return engine


def reading_engine(url: URL) -> Engine:
    """Connections are pooled, and tested before they are reused."""
    return _engine(url, _SESSION | _TIMEOUTS | _PLANS, QueuePool)


def migrating_engine(url: URL) -> Engine:
    """Without timeouts: a migration may take long."""
    return _engine(url, _SESSION, NullPool)


def _engine(url: URL, session: dict[str, str], pool: type[Pool]) -> Engine:
    options = " ".join(f"-c {name}={value}" for name, value in session.items())
    given = url.query.get("options", "")
    arguments = {name: value for name, value in _CONNECTION.items() if name not in url.query}
    try:
        return create_engine(
            url,
            connect_args={**arguments, "options": f"{options} {given if isinstance(given, str) else ' '.join(given)}"},
            poolclass=pool,
            pool_pre_ping=pool is not NullPool,
            # Parameters by position, as `statements.text_of` expects them.
            paramstyle="format",
        )
    except ModuleNotFoundError as error:
        raise OperatorError(
            f"A PostgreSQL server needs the driver psycopg, and {error.name} is not installed: "
            'pip install "stompbroker[postgres]"'
        ) from None
    except ImportError as error:  # psycopg without its C library says so in this way
        raise OperatorError(
            f'The driver psycopg cannot be used ({str(error).splitlines()[0]}): pip install "stompbroker[postgres]"'
        ) from None


def refuse_pool(engine: Engine, where: str) -> None:
    """Raise OperatorError if a pool before the server gives each transaction another session.

    A pool that takes turns gives a second transaction of one connection another session, if it has several at rest. Any
    other pool, or one with a single session, gives another connection's transaction the one that has just been left.
    """
    with engine.connect() as first, engine.connect() as second:
        sessions = set()
        for _ in range(2):
            sessions.add(_session_of(first))
            first.commit()
        if len(sessions) == 1 and _session_of(second) not in sessions:
            return
    raise OperatorError(
        f"The connections to the database {where} go through a pool that gives each transaction another session "
        "(PgBouncer with pool_mode = transaction, for one). The broker's lock and settings belong to its session. "
        "Name the server itself, or a pool with pool_mode = session."
    )


def _session_of(connection: Connection) -> int:
    pid: int = connection.execute(select(func.pg_backend_pid())).scalar_one()
    return pid


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
            leasing.end_sessions(session, lock_key=_LOCK_KEY, successor=_session_of(successor))
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
