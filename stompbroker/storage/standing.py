"""Where a database stands in the schema's history.

Law: reads the one number Alembic keeps in a database, and compares it with ours. Alembic itself is imported only when
something is to be migrated, or when the number is not ours and the history must say which is the later one: most starts
find everything as they left it, and to import it takes them 0.15 s.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, final

from sqlalchemy import column, func, inspect, select, table

from stompbroker.storage.schema import REVISION

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Standing", "bring_up_to_date", "current_revision", "head_revision", "standing_of"]

#: Two who migrate one server database at once wait for each other; any number that nobody else uses.
_MIGRATION_LOCK: Final = 0x53544F4D_4D494752

#: Alembic's own table, which is not among ours.
_alembic_version: Final = table("alembic_version", column("version_num"))


@final
class Standing(Enum):
    """A database beside this release."""

    EMPTY = "has no tables yet"
    BEHIND = "was last migrated by an older release"
    CURRENT = "is as this release wants it"
    AHEAD = "was migrated by a newer release"


def head_revision() -> str:
    """The revision this release wants."""
    return REVISION


def current_revision(connection: Connection) -> str | None:
    """The revision the database is at; None when it is empty."""
    # Asked first: on a server a statement that fails takes the caller's transaction with it.
    if not inspect(connection).has_table(_alembic_version.name):
        return None
    revision: str | None = connection.execute(select(_alembic_version.c.version_num)).scalar_one_or_none()
    return revision


def standing_of(connection: Connection) -> Standing:
    current = current_revision(connection)
    if current is None:
        return Standing.EMPTY
    if current == REVISION:
        return Standing.CURRENT
    from stompbroker.storage.migrating import known_revisions

    return Standing.BEHIND if current in known_revisions() else Standing.AHEAD


def bring_up_to_date(connection: Connection) -> list[str]:
    """Bring the database to this release's revision, within the caller's transaction.

    Returns the revisions applied, oldest first. The caller has made sure that the database is not ahead.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    current = current_revision(connection)
    if current == REVISION:
        return []
    from stompbroker.storage.migrating import upgrade

    return upgrade(connection, current)
