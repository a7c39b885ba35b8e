"""Connections to a PostgreSQL server, and its URL as the operator writes it.

Law: every wait has an end, on both sides: a server that is gone is noticed, and so is a broker that is gone. What the
operator says in the URL's options goes before what is said here. Nobody is shown a password.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, NullPool, Pool, QueuePool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import Engine

__all__ = ["migrating_engine", "passwords_in", "reading_engine", "server_url", "shown", "writing_engine"]

_ALLOWED: Final = (
    "Give --database postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE for a PostgreSQL server, "
    "or none for the SQLite file stompbroker.db in the data directory."
)

#: What libpq is told: give up connecting after 5 s, notice a dead server after 15 + 3 × 5 s of silence, or when what
#: was sent is not confirmed within 15 s.
_CONNECTION: Final = {
    "application_name": "stompbroker",
    "connect_timeout": "5",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}

#: What the server is told for the session. A lost broker's locks must go before the next one gives up, so it looks for
#: a dead client as we look for a dead server.
_SESSION: Final = {
    "tcp_keepalives_idle": "15s",
    "tcp_keepalives_interval": "5s",
    "tcp_keepalives_count": "3",
    "client_encoding": "UTF8",
    # To compile a statement takes longer than any of ours.
    "jit": "off",
}
#: One statement writes 512 rows at most, or reads a page; 30 s for it means that something is wrong. Somebody else who
#: locks our rows is waited for a little. A transaction of ours is never idle, so one that is belongs to a lost broker.
_TIMEOUTS: Final = {
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
}


#: A page is the next rows of an index. On a table that was never analysed the planner takes a topic for a few rows, and
#: would sort a million of them for every page.
_PLANS: Final = {"enable_bitmapscan": "off", "enable_seqscan": "off", "enable_sort": "off"}


def server_url(database: str) -> URL:
    """The URL of a PostgreSQL server. Raises OperatorError for anything else, saying what is allowed."""
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        # What was given is not repeated: what cannot be read may hold a password anywhere.
        raise OperatorError(f"The database is not written as a URL. {_ALLOWED}") from None
    if url.drivername != "postgresql+psycopg":
        raise OperatorError(f"A database {url.drivername!r} is not one we know. {_ALLOWED}")
    return url


def shown(url: URL) -> str:
    """The URL for people: without password, and without options, which may hold one as well."""
    return URL.create(
        url.drivername, username=url.username, host=url.host, port=url.port, database=url.database
    ).render_as_string()


def passwords_in(url: URL) -> list[str]:
    """Whatever of the URL nobody may read: its password, and options named after one."""
    options = [value for name, value in url.normalized_query.items() if "password" in name]
    return [text for text in (url.password, *chain.from_iterable(options)) if text]


def writing_engine(url: URL) -> Engine:
    """Each connection is a new one, and a COMMIT on it returns when the transaction is on disk."""
    engine = _engine(url, _SESSION | _TIMEOUTS, NullPool)

    @event.listens_for(engine, "connect")
    def demand_durability(connection: Any, _record: object) -> None:
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()

    return engine


def reading_engine(url: URL) -> Engine:
    """Connections are kept for the next reader, who looks first whether they still live."""
    return _engine(url, _SESSION | _TIMEOUTS | _PLANS, QueuePool)


def migrating_engine(url: URL) -> Engine:
    """Without limits of time: a migration takes as long as it takes."""
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
            # Parameters by position: our statements are given to the driver as they are.
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
