"""The steps from one schema to the next.

Law: the only one who runs Alembic; slow to import, so only `standing.py` does, when there is something to do. A
migration happens as a whole or not at all, on either engine. The scripts lie in the package (`_migrations`, where the
wheel puts them) or, in a checkout, beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

import stompbroker

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["known_revisions", "upgrade"]


def known_revisions() -> set[str]:
    """Those this release can migrate from, and its own."""
    return {script.revision for script in _scripts().walk_revisions()}


def upgrade(connection: Connection, current: str | None) -> list[str]:
    """Take all steps from `current` on, within the caller's transaction. Returns those applied, oldest first."""
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
