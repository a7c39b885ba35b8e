"""Where a database stands in the schema's history, and the steps from one schema to the next.

The only module that runs Alembic. A migration happens as a whole or not at all, on either engine. Alembic is imported
only if the database has another revision than this release: importing it takes 0.15 s, and most starts need none of it.
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

__all__ = ["Standing", "bring_up_to_date", "current_revision", "standing_of"]

#: Two processes that migrate one server database wait for each other. Any number that nobody else uses.
_MIGRATION_LOCK: Final = 0x53544F4D_4D494752

#: Alembic's own table.
_alembic_version: Final = table("alembic_version", column("version_num"))


@final
class Standing(Enum):
    """A database compared with this release."""

    EMPTY = "has no tables yet"
    BEHIND = "was last migrated by an older release"
    CURRENT = "is as this release wants it"
    AHEAD = "was migrated by a newer release"


def current_revision(connection: Connection) -> str | None:
    """The revision the database is at; None when it is empty."""
    # Asked first: on a server a failing statement would abort the caller's transaction.
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
    """Bring a database that is not ahead to this release's revision, within the caller's transaction.

    Returns the revisions applied, oldest first.
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
    package = Path(stompbroker.__file__).parent
    packaged = package / "_migrations"  # where the wheel puts them
    scripts = packaged if packaged.is_dir() else package.parent / "migrations"
    # Alembic reads the path as a template, so a per cent sign must be doubled.
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    return config


def _scripts(config: Config) -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(config)
