"""How a person names the database and the lake, and how they are shown without a password.

Law: text only; nothing is opened. `read_database` lets through only URLs that SQLAlchemy reads in the same way: one "@"
at most, and plain parameter names. So `without_password` finds every secret, and shows next to nothing of other texts.
A lake has no password: an object store's keys come from the environment.
"""

from __future__ import annotations

import re
from pathlib import Path

#: The SQLite file in the data directory.
EMBEDDED = ""
#: Its name there.
EMBEDDED_FILE = "stompbroker.db"
#: Nothing outlives the broker, and durable subscriptions are refused.
MEMORY = "memory"

_URL = re.compile(
    r"""
    postgresql\+psycopg://
    (?: (?P<user>[^\s:/?#@]*) (?P<password>:[^\s/?#@]*)? @ )?
    (?: \[[0-9A-Fa-f:.%]+\] | [^\s:/?\#@\[\]]* )
    (?: :[0-9]{1,5} )?
    (?: /[^\s/?\#@]* )?
    (?: \?[a-z_]+=[^\s&\#@]* (?: &[a-z_]+=[^\s&\#@]* )* )?
    """,
    re.VERBOSE,
)
_PASSWORD_PARAMETER = re.compile(r"([?&][a-z_]*password=)[^&]*")
#: A word or a file: it has no place for a password, so it can be shown when it is refused.
_PLAIN = re.compile(r"[\w.~/ -]{0,200}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://")
#: The directory `lake` in the data directory.
IN_DATA_DIRECTORY = ""
_LAKE_URL = re.compile(r"file:///[^\s?#@]*|s3://[A-Za-z0-9][\w.-]*(?:/[^\s?#@]*)?(?:\?[\w=&:%./-]*)?", re.ASCII)


def read_database(value: str) -> str:
    """The value itself if it names a database. Raises ValueError, without the value."""
    if value in (EMBEDDED, MEMORY) or _URL.fullmatch(value):
        return value
    raise ValueError("not a database")


def without_password(database: object) -> str:
    """A value of the setting `database`, valid or not, as it may be shown and logged."""
    if not isinstance(database, str):
        return "…"
    url = _URL.fullmatch(database)
    if url is not None:
        start, end = url.span("password")
        hidden = database if start == end else f"{database[:start]}:***{database[end:]}"
        return _PASSWORD_PARAMETER.sub(r"\1***", hidden)
    if _PLAIN.fullmatch(database):
        return database
    scheme = _SCHEME.match(database)
    return (scheme[0] if scheme else "") + "…"


def read_lake(value: str) -> str:
    """The value itself if it names a place. Raises ValueError."""
    if "://" in value and not _LAKE_URL.fullmatch(value):
        raise ValueError("not a place for a lake")
    if "\0" in value or value != value.strip():
        raise ValueError("not a path")
    return value


def lake_place(lake: str, data: Path) -> str:
    if "://" in lake:
        return lake
    return str(Path(lake).expanduser().absolute() if lake else data.absolute() / "lake")
