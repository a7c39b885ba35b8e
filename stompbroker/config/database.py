"""How a person names the database, and how it is shown without its password.

Law: text only; nothing is opened and no driver is imported. What `read_database` lets through means the same to
SQLAlchemy as it does here: a password ends at the only "@" there may be, and a parameter has a plainly spelt name.
So `without_password` knows where every secret is, and of what it cannot read it shows next to nothing.
"""

from __future__ import annotations

import re

__all__ = ["EMBEDDED", "EMBEDDED_FILE", "MEMORY", "read_database", "without_password"]

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

#: What has no place for a password, and so can be shown when it is refused: a word, a file.
_PLAIN = re.compile(r"[\w.~/ -]{0,200}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://")


def read_database(value: str) -> str:
    """The value itself if it names a database. Raises ValueError, without the value."""
    if value in (EMBEDDED, MEMORY) or _URL.fullmatch(value):
        return value
    raise ValueError("not a database")


def without_password(database: object) -> str:
    """A value of the setting `database`, right or wrong, as it may be shown and logged."""
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
