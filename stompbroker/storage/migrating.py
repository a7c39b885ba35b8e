"""The schema's history, and where a database stands in it.

Law: the only one who runs Alembic. A migration happens as a whole or not at all, on either engine. The scripts lie in
the package (`_migrations`, where the wheel puts them) or, in a checkout, beside it.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import func, select

import stompbroker

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Standing", "current_revision", "head_revision", "standing_of", "upgrade"]

#: Two who migrate one server database at once wait for each other; any number that nobody else uses.
_MIGRATION_LOCK: Final = 0x53544F4D_4D494752


@final
class Standing(Enum):
    """A database beside this release."""

    EMPTY = "has no tables yet"
    BEHIND = "was last migrated by an older release"
    CURRENT = "is as this release wants it"
    AHEAD = "was migrated by a newer release"


def head_revision() -> str:
    """The revision this release wants."""
    head = _scripts().get_current_head()
    assert head is not None
    return head


def current_revision(connection: Connection) -> str | None:
    """The revision the database is at; None when it is empty."""
    return MigrationContext.configure(connection).get_current_revision()


def standing_of(connection: Connection) -> Standing:
    current = current_revision(connection)
    if current is None:
        return Standing.EMPTY
    if current == head_revision():
        return Standing.CURRENT
    known = {script.revision for script in _scripts().walk_revisions()}
    return Standing.BEHIND if current in known else Standing.AHEAD


def upgrade(connection: Connection) -> list[str]:
    """Bring the database to this release's revision, within the caller's transaction.

    Returns the revisions applied, oldest first. The caller has made sure that the database is not ahead.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    current = current_revision(connection)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    applied = [script.revision for script in _scripts().iterate_revisions("head", current or "base")]
    return applied[::-1]


def _config() -> Config:
    config = Config()
    # Alembic reads it as a template; a path with a per cent sign must survive that.
    config.set_main_option("script_location", str(_script_folder()).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _script_folder() -> Path:
    package = Path(stompbroker.__file__).parent
    packaged = package / "_migrations"
    return packaged if packaged.is_dir() else package.parent / "migrations"
