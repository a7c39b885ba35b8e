"""The steps lead to the tables the code expects, and back; on both engines."""

from __future__ import annotations

import ast
import re
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, NullPool, create_engine, inspect

from stompbroker.storage import current_revision, head_revision, migrate, migrating, opening
from stompbroker.storage.schema import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

ROOT = Path(__file__).parents[2]
VERSIONS = sorted((ROOT / "migrations" / "versions").glob("*.py"))


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """As `migrate` takes it; empty means the file in `tmp_path`."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def engine(database: str, tmp_path: Path) -> Iterator[Engine]:
    """The one that migrations run on."""
    engine, _ = opening._migrating_engine(database, tmp_path)
    yield engine
    engine.dispose()


def run(engine: Engine, step: Any, *arguments: Any) -> None:
    config = migrating._config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        step(config, *arguments)


def shape(engine: Engine) -> dict[str, Any]:
    """All that a database tells of its tables, without what Alembic keeps for itself."""
    inspector = inspect(engine)
    return {
        table: {
            "columns": [{**column, "type": str(column["type"])} for column in inspector.get_columns(table)],
            "primary key": inspector.get_pk_constraint(table),
            "unique": sorted(inspector.get_unique_constraints(table), key=str),
            "checks": sorted(inspector.get_check_constraints(table), key=str),
            "indexes": sorted(inspector.get_indexes(table), key=str),
            "foreign keys": inspector.get_foreign_keys(table),
        }
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def test_migrated_tables_are_those_the_code_expects(engine: Engine, database: str, tmp_path: Path) -> None:
    migrate(database, tmp_path)
    migrated = shape(engine)

    run(engine, command.downgrade, "base")
    metadata.create_all(engine)

    assert set(migrated) == set(metadata.tables)
    assert shape(engine) == migrated


def test_alembic_finds_nothing_to_add(engine: Engine, database: str, tmp_path: Path) -> None:
    migrate(database, tmp_path)

    run(engine, command.check)


def test_every_step_can_be_undone_and_done_again(engine: Engine, database: str, tmp_path: Path) -> None:
    migrate(database, tmp_path)
    migrated = shape(engine)

    for _ in VERSIONS:
        run(engine, command.downgrade, "-1")
    assert shape(engine) == {}
    assert current_revision(database, tmp_path) is None

    assert migrate(database, tmp_path) == [path.name.partition("_")[0] for path in VERSIONS]
    assert shape(engine) == migrated


def test_a_step_that_fails_leaves_nothing_behind(engine: Engine, database: str, tmp_path: Path) -> None:
    with engine.begin() as connection:
        metadata.tables["redeliveries"].create(connection)  # in the way of the last table

    with pytest.raises(Exception, match="already exists"):
        migrate(database, tmp_path)

    assert set(shape(engine)) == {"redeliveries"}


def test_names_follow_the_convention(engine: Engine, database: str, tmp_path: Path) -> None:
    migrate(database, tmp_path)
    found = MetaData()
    found.reflect(engine)

    for table in found.tables.values():
        if table.name == "alembic_version":
            continue
        assert table.primary_key.name == f"pk_{table.name}"
        names = [str(constraint.name) for constraint in table.constraints] + [
            str(index.name) for index in table.indexes
        ]
        assert all(re.match(f"(pk|uq|ck|ix)_{table.name}", name) for name in names), names


def test_a_new_sqlite_file_can_give_pages_back(tmp_path: Path) -> None:
    migrate("", tmp_path)

    engine = create_engine(f"sqlite:///{tmp_path / 'stompbroker.db'}", poolclass=NullPool)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA auto_vacuum").scalar() == 2  # INCREMENTAL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_there_is_one_line_of_steps() -> None:
    scripts = ScriptDirectory.from_config(migrating._config())

    assert scripts.get_heads() == [head_revision()]
    assert [script.revision for script in scripts.walk_revisions()][::-1] == [
        path.name.partition("_")[0] for path in VERSIONS
    ]


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_a_step_explains_itself_and_imports_no_application_code(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert not {name for name in imported if name.startswith("stompbroker")}
    explanation = ast.get_docstring(tree) or ""
    assert all(question in explanation for question in ("Why:", "Kind:", "Previous release:"))


def test_developers_can_run_alembic_in_a_checkout(tmp_path: Path) -> None:
    config = Config(ROOT / "migrations" / "alembic.ini")
    config.cmd_opts = Namespace(x=[f"database=sqlite:///{tmp_path / 'developer.db'}"])

    command.upgrade(config, "head")
    command.check(config)
    command.downgrade(config, "base")


def test_scripts_in_the_package_go_before_those_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "stompbroker"
    (package / "_migrations").mkdir(parents=True)
    monkeypatch.setattr("stompbroker.__file__", str(package / "__init__.py"))

    assert migrating._script_folder() == package / "_migrations"
    (package / "_migrations").rmdir()
    assert migrating._script_folder() == tmp_path / "migrations"
