"""Where a store is.

Law: reads what the operator wrote, and knows how to say it again without its password. Opens nothing.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FILE_NAME", "database_file", "passwords_in", "server_url", "shown"]

#: The embedded database, in the data directory.
FILE_NAME: Final = "stompbroker.db"

_ALLOWED: Final = (
    "Give --database postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE for a PostgreSQL server, "
    f"or none for the SQLite file {FILE_NAME} in the data directory."
)


def database_file(directory: Path) -> Path:
    # Absolute: SQLite opens its other files by name later on, wherever the process then stands.
    return directory.absolute() / FILE_NAME


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
