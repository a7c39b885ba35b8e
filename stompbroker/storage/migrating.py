"""Where a database stands in the schema's history, and the steps from one schema to the next.

Law: the only one who runs Alembic. A migration happens as a whole or not at all, on either engine. The scripts lie in
the package (`_migrations`, where the wheel puts them) or, in a checkout, beside it.

Alembic is imported only when something is to be migrated, or when the revision found is not ours and the history must
say which is the later one: importing it takes 0.15 s, and most starts find everything as they left it.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from sqlalchemy import column, func, inspect, select, table

import stompbroker
from stompbroker.storage.schema import REVISION

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory
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
    known = {script.revision for script in _scripts(_config()).walk_revisions()}
    return Standing.BEHIND if current in known else Standing.AHEAD


def bring_up_to_date(connection: Connection) -> list[str]:
    """Bring the database to this release's revision, within the caller's transaction.

    Returns the revisions applied, oldest first. The caller has made sure that the database is not ahead.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    current = current_revision(connection)
    if current == REVISION:
        return []
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return [script.revision for script in _scripts(config).iterate_revisions("head", current or "base")][::-1]


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    # Alembic reads it as a template; a path with a per cent sign must survive that.
    config.set_main_option("script_location", str(_script_folder()).replace("%", "%%"))
    return config


def _scripts(config: Config) -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(config)


def _script_folder() -> Path:
    package = Path(stompbroker.__file__).parent
    packaged = package / "_migrations"
    return packaged if packaged.is_dir() else package.parent / "migrations"
