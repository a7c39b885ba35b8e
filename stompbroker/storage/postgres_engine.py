"""Connections to a database of a PostgreSQL server, as SQLAlchemy has them.

Every wait has an end on both sides, so that a lost server and a lost broker are noticed. Options in the operator's URL
override ours. No text shows a password.
"""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, NullPool, Pool, QueuePool, create_engine, event, func, make_url, select
from sqlalchemy.exc import ArgumentError

from stompbroker.errors import OperatorError
from stompbroker.storage.schema import EXPIRES, expiring

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

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
            sessions.add(session_of(first))
            first.commit()
        if len(sessions) == 1 and session_of(second) not in sessions:
            return
    raise OperatorError(
        f"The connections to the database {where} go through a pool that gives each transaction another session "
        "(PgBouncer with pool_mode = transaction, for one). The broker's lock and settings belong to its session. "
        "Name the server itself, or a pool with pool_mode = session."
    )


def session_of(connection: Connection) -> int:
    """Its number at the server."""
    pid: int = connection.execute(select(func.pg_backend_pid())).scalar_one()
    return pid
