"""From the database the operator named to an open, migrated one.

Opening an embedded file migrates it, or makes its tables if it is new. A server database, which others may be using, is
migrated only by the command for that. A database that a newer release has changed is never opened. A migration happens
as a whole or not at all. Alembic is imported only if the revision is an older one, and what PostgreSQL needs only for a
server: that takes 0.15 and 0.04 s, and most starts need none of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, String, Table, func, inspect, select

import stompbroker
from stompbroker.errors import OperatorError
from stompbroker.file_replacing import replace_file
from stompbroker.storage import paging
from stompbroker.storage.failures import RESTORE, Failures
from stompbroker.storage.schema import REVISION, ledger_batches, metadata
from stompbroker.storage.sqlite.engine import reading_engine, writing_engine
from stompbroker.storage.sqlite.file import database_file
from stompbroker.storage.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from sqlalchemy import Connection, Engine

    from stompbroker.storage.batch import ExportRow
    from stompbroker.storage.store import Store

#: Names the store of a data directory, so that a lost one is not mistaken for a first start.
MARKER_NAME: Final = "store.id"
#: Has the token of the broker that last owned a server's store with this data directory.
OWNER_NAME: Final = "owner"
#: Two processes that migrate one server database wait for each other. Any number that nobody else uses.
_MIGRATION_LOCK: Final = 0x53544F4D_4D494752

#: Alembic's own table.
_alembic_version: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def open_store(database: str, directory: Path, *, may_migrate: bool = True) -> Store:
    """Open the PostgreSQL database at the URL `database` or, if that is empty, the SQLite file in `directory`.

    The caller holds the directory. Unless it `may_migrate`, an SQLite file must exist and be up to date, as a server
    database always must. Raises OperatorError.
    """
    if not database and may_migrate:
        migrate(database, directory, makes_at_once=True)
    else:
        _refuse_outdated(database, directory)
    if database:
        from stompbroker.storage.postgres import PostgresStore
        from stompbroker.storage.postgres_engine import server_url

        return PostgresStore(server_url(database))
    _, failures = _engine(database, directory, migrates=True)
    with failures.translated_for_operator("Cannot open"):
        return SqliteStore(database_file(directory))


def _refuse_outdated(database: str, directory: Path) -> None:
    """Raises OperatorError."""
    if not database and not database_file(directory).exists():
        _refuse_lost(directory, "is gone")
    engine, failures = _engine(database, directory, migrates=bool(database))
    try:
        with failures.translated_for_operator("Cannot open the database"), engine.connect() as connection:
            current = _usable_revision(connection, failures.where)
            if database:
                from stompbroker.storage.postgres_engine import refuse_pool

                refuse_pool(engine, failures.where)
    finally:
        engine.dispose()
    if not database and current is None:
        _refuse_lost(directory, "is empty")
    if current != REVISION:
        found = "has no tables yet" if current is None else "was last migrated by an older release"
        where = f"--database {failures.where}" if database else f"--data {directory}"
        raise OperatorError(
            f"The database {failures.where} {found}. Bring it up to date first: stompbroker migrate {where}"
        )


def migrate(database: str, directory: Path, *, makes_at_once: bool = False) -> list[str]:
    """Bring a database up to date; returns the revisions applied, oldest first. With `makes_at_once`, an empty SQLite
    file gets all tables in one step, which has no name. Raises OperatorError."""
    if not database and not database_file(directory).exists():
        _refuse_lost(directory, "is gone")
    engine, failures = _engine(database, directory, migrates=True)
    with failures.translated_for_operator("Cannot migrate the database"), engine.begin() as connection:
        current = _usable_revision(connection, failures.where)
        if not database and current is None:
            _refuse_lost(directory, "is empty")
        if makes_at_once and not database and current is None:
            _make_tables(connection)
            return []
        if current == REVISION:
            return []
        return _bring_up_to_date(connection)


def recall_owner(directory: Path) -> str:
    """The token of the last broker that owned a server's store with this directory; empty if there is none.

    The caller holds the directory, so that broker is dead, whatever the database still thinks.
    """
    try:
        return (directory / OWNER_NAME).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def note_owner(directory: Path, token: str) -> None:
    """Raises OperatorError."""
    try:
        replace_file(directory / OWNER_NAME, f"{token}\n".encode())
    except OSError as error:
        raise OperatorError(f"Cannot write {directory / OWNER_NAME}: {error.strerror}.") from error


def recognise(directory: Path, store_id: str) -> None:
    """Remember which store the directory has, or check that it is still that one. Raises OperatorError."""
    marker = directory / MARKER_NAME
    try:
        if not marker.exists():
            marker.write_text(f"{store_id}\n")
        known = marker.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"The file {marker}, which says whose store it is, cannot be used: {error}.") from error
    if known != store_id:
        raise OperatorError(
            f"The store in {directory} is {store_id}, but the directory had the store {known}. If the database file "
            f"was replaced on purpose, remove {marker} first."
        )


def read_ledger(database: str, directory: Path, export: ExportRow) -> Iterator[tuple[int, bytes]]:
    """Id and payload of each ledger batch of an export, in order. For a process that knows only where the database is.

    Many short transactions: a long one would keep the write-ahead log from being shortened. Batches never change, and
    stay until their file is written. Raises OperatorError, or StoreDamaged for a batch that is not as it was written.
    """
    engine, failures = _engine(database, directory, migrates=False)
    columns = ledger_batches.c
    in_export = columns.kind == export.kind, columns.day == export.day, columns.id <= export.last_batch
    after = export.after_batch
    try:
        while True:
            with failures.translated_for_operator("Cannot read the ledger in"), engine.begin() as connection:
                found = paging.ledger_page(connection, after, *in_export)
            for row in found:
                paging.check_batch(row)
                yield row.id, bytes(row.payload)
            if len(found) < paging.LEDGER_PAGE_ROWS:
                return
            after = found[-1].id
    finally:
        engine.dispose()


def _engine(database: str, directory: Path, *, migrates: bool) -> tuple[Engine, Failures]:
    """For migrating, or else only for reading."""
    if not database:
        file = database_file(directory)
        engine = writing_engine(file, may_create=True) if migrates else reading_engine(file)
        return engine, Failures.of_engine(engine, str(file))
    from stompbroker.storage import postgres_engine as postgres

    url = postgres.server_url(database)
    engine = postgres.migrating_engine(url) if migrates else postgres.reading_engine(url)
    return engine, Failures.of_engine(engine, postgres.shown(url), postgres.passwords_in(url))


def _refuse_lost(directory: Path, what: str) -> None:
    """Raises OperatorError if the directory had a store. SQLite also finds a file empty that was cut within its first
    page."""
    file, marker = database_file(directory), directory / MARKER_NAME
    if marker.exists():
        raise OperatorError(
            f"The database file {file} {what}, although the directory had a store. {RESTORE} "
            f"To begin with an empty one instead, remove {marker}."
        )


def _usable_revision(connection: Connection, where: str) -> str | None:
    """The revision the database is at; None when it is empty. Raises OperatorError if no migration can make it
    usable."""
    if connection.dialect.name == "postgresql":
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            raise OperatorError(
                f"The database {where} has the encoding {encoding}, in which not every name can be written. "
                "Create one with ENCODING UTF8."
            )
    current = _current_revision(connection)
    if current not in (None, REVISION) and current not in {script.revision for script in _scripts().walk_revisions()}:
        raise OperatorError(f"The database {where} was migrated by a newer release. Run that release, or a later one.")
    return current


# Migrations ----------------------------------------------------------------------------------------------------------


def _current_revision(connection: Connection) -> str | None:
    # Asked first: on a server a failing statement would abort the caller's transaction.
    if not inspect(connection).has_table(_alembic_version.name):
        return None
    revision: str | None = connection.execute(select(_alembic_version.c.version_num)).scalar_one_or_none()
    return revision


def _make_tables(connection: Connection) -> None:
    """What the migrations make, as a test compares, word for word; they take 0.15 s. As they do, it fails if there is a
    table of that name."""
    metadata.create_all(connection, checkfirst=False)
    _alembic_version.create(connection, checkfirst=False)
    connection.execute(_alembic_version.insert().values(version_num=REVISION))


def _bring_up_to_date(connection: Connection) -> list[str]:
    """Migrate within the caller's transaction; returns the revisions applied, oldest first."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    current = _current_revision(connection)
    if current == REVISION:
        return []
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return [script.revision for script in _scripts().iterate_revisions("head", current or "base")][::-1]


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    package = Path(stompbroker.__file__).parent
    packaged = package / "_migrations"  # where the wheel puts them
    scripts = packaged if packaged.is_dir() else package.parent / "migrations"
    # Alembic reads the path as a template, so a per cent sign must be doubled.
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config())
