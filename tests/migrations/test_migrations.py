"""The steps lead to the tables the code expects, and back; on both engines."""

from __future__ import annotations

import ast
import re
import sqlite3
import subprocess
import sys
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, NullPool, create_engine, inspect, text

from stompbroker.errors import OperatorError
from stompbroker.ids import Offset
from stompbroker.storage import (
    Batch,
    Gap,
    MessageRun,
    migrate,
    open_store,
    opening,
)
from stompbroker.storage.batch_statements import batch_statements
from stompbroker.storage.batch_writing import BatchWriter
from stompbroker.storage.schema import REVISION, metadata
from tests.storage.place import bodies, current_revision, cursor, redelivery, subscription, topic
from tests.support.messages import make_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Engine

ROOT = Path(__file__).parents[2]
VERSIONS = sorted((ROOT / "migrations" / "versions").glob("*.py"))


#: A row of each kind that later steps change, as revision 0001 has them. In SQL: the tables in the code have moved on.
WRITTEN_BY_0001 = (
    "INSERT INTO topics (id, name, next_offset) VALUES (1, 'a', 4)",
    'INSERT INTO messages (topic_id, "offset", published_at_ns, publisher, body_bytes, tail) '
    "VALUES (1, 3, 5, 'p', 1, :tail)",
    "INSERT INTO subscriptions (id, owner, kind, scope, name, destination, pattern, ack_mode, is_no_local, "
    "created_at_ns, last_seen_at_ns) VALUES (7, '', 'named', 'c', 'n', '/topic/a', 'a', 'client', false, 1, 2)",
    'INSERT INTO redeliveries (subscription_id, topic_id, "offset", attempts, due_at_ns, reason) '
    "VALUES (7, 1, 3, 2, 99, 'refused')",
    "INSERT INTO cursors (subscription_id, topic_id, ack_floor, settled, sent_up_to) VALUES (7, 1, 1, :settled, 3)",
)


#: In SQL they have no spelling that both engines know.
BYTES = {"tail": b"message-id:1\n\nx\0", "settled": b""}


def write_as_0001(engine: Engine) -> None:
    with engine.begin() as connection:
        for statement in WRITTEN_BY_0001:
            connection.execute(text(statement), {name: BYTES[name] for name in BYTES if f":{name}" in statement})


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """As `migrate` takes it; empty means the file in `tmp_path`."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def engine(database: str, tmp_path: Path) -> Iterator[Engine]:
    """The one that migrations run on."""
    engine, _ = opening._engine(database, tmp_path, migrates=True)
    yield engine
    engine.dispose()


def run(engine: Engine, step: Any, *arguments: Any) -> None:
    config = opening._config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        step(config, *arguments)


def index_shape(index: Mapping[str, Any]) -> dict[str, Any]:
    """The condition of a partial index is an object that equals only itself; its text is what we mean."""
    return {**index, "dialect_options": {key: str(value) for key, value in index.get("dialect_options", {}).items()}}


def shape(engine: Engine) -> dict[str, Any]:
    """All that a database tells of its tables, without what Alembic keeps for itself."""
    inspector = inspect(engine)
    return {
        table: {
            "columns": [{**column, "type": str(column["type"])} for column in inspector.get_columns(table)],
            "primary key": inspector.get_pk_constraint(table),
            "unique": sorted(inspector.get_unique_constraints(table), key=str),
            "checks": sorted(inspector.get_check_constraints(table), key=str),
            "indexes": sorted(map(index_shape, inspector.get_indexes(table)), key=str),
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


def test_a_file_that_is_made_at_once_is_the_same_word_for_word(tmp_path: Path) -> None:
    migrated, made = tmp_path / "migrated", tmp_path / "made"
    for directory in (migrated, made):
        directory.mkdir()
    migrate("", migrated)

    open_store("", made).close()

    assert contents(made) == contents(migrated)


def contents(directory: Path) -> dict[str, object]:
    """All that a file without messages holds, but for the white space between words."""
    with closing(sqlite3.connect(directory / "stompbroker.db")) as connection:
        schema = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
        tables = [name for kind, name, *_ in schema if kind == "table"]
        return {
            "schema": [(*row[:3], " ".join((row[3] or "").split())) for row in schema],
            "settings": [connection.execute(f"PRAGMA {name}").fetchone() for name in ("auto_vacuum", "journal_mode")],
            **{name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables},
        }


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


def test_the_condition_of_the_partial_index_is_part_of_the_comparison(
    engine: Engine, database: str, tmp_path: Path
) -> None:
    migrate(database, tmp_path)

    (index,) = shape(engine)["messages"]["indexes"]

    assert index["column_names"] == ["expires_at_ns", "topic_id", "offset"]
    assert "expires_at_ns IS NOT NULL" in str(index["dialect_options"])


def test_what_the_first_release_wrote_is_kept_and_reads_as_it_was_meant(
    engine: Engine, database: str, tmp_path: Path
) -> None:
    run(engine, command.upgrade, "0001")
    write_as_0001(engine)

    assert migrate(database, tmp_path) == ["0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009"]

    store = open_store(database, tmp_path)
    try:
        kept = store.load()
        ((offset, message),) = store.read_page(1, 0, 10)
    finally:
        store.close()
    (subscription,) = kept.subscriptions
    assert (subscription.last_seen_at_ns, subscription.is_ordered, subscription.delivery) == (2, False, "")
    (redelivery,) = kept.redeliveries
    assert redelivery == (7, 1, 3, 2, 99, "refused", 0, 0, False, 0)
    (cursor,) = kept.cursors
    assert cursor == (7, 1, 1, (), 3, 0)
    assert (offset, message.body, message.published_at_ns, message.expires_at_ns) == (3, b"x", 5, None)
    assert message.origin.is_for_all_and_ever


#: Rows of `topics` as revision 0004 has them, without their checksums.
TOPICS_OF_0004 = ((1, "orders", 5, 0), (2, "DLQ.orders", 2**40, None), (3, "ö.☃ 'x'", 0, 0))
#: The other tables are today's.
BESIDE_TOPICS_OF_0004 = Batch(
    number=1,
    subscriptions=[subscription(7), subscription(8)],
    messages=[MessageRun(1, Offset(0), make_messages(2)), MessageRun(1, Offset(3), make_messages(2))],
    gaps=[Gap(1, 3, 2)],
    cursors=[cursor(7, 1, ack_floor=1, settled=((3, 4),), sent_up_to=5), cursor(8, 1, ack_floor=0, sent_up_to=0)],
    redeliveries=[redelivery(7, 1, 4)],
)


def write_as_0004(engine: Engine) -> None:
    with engine.begin() as connection:
        for row in TOPICS_OF_0004:
            names = ("id", "name", "next_offset", "whole_from", "checksum")
            values = dict(zip(names, (*row, crc32(repr(row).encode())), strict=True))
            connection.execute(text(f"INSERT INTO topics ({', '.join(names)}) VALUES (:{', :'.join(names)})"), values)
        writer = BatchWriter(batch_statements(engine.dialect))
        writer.write(connection.connection.cursor(), BESIDE_TOPICS_OF_0004)


def test_a_store_from_before_kinds_keeps_everything_and_its_checksums(
    engine: Engine, database: str, tmp_path: Path
) -> None:
    run(engine, command.upgrade, "0004")
    write_as_0004(engine)

    assert migrate(database, tmp_path) == ["0005", "0006", "0007", "0008", "0009"]

    store = open_store(database, tmp_path)
    try:
        kept, page = store.load(), store.read_page(1, 0, 5)
    finally:
        store.close()
    expected = [
        topic(id, name=name, next_offset=next_offset, whole_from=whole_from)
        for id, name, next_offset, whole_from in TOPICS_OF_0004
    ]
    assert kept.topics == list(zip(expected, (0, None, None), strict=True))
    assert kept.subscriptions == BESIDE_TOPICS_OF_0004.subscriptions
    assert kept.cursors == BESIDE_TOPICS_OF_0004.cursors
    assert kept.redeliveries == BESIDE_TOPICS_OF_0004.redeliveries
    assert [offset for offset, _ in bodies(page)] == [0, 1, 3, 4]
    with engine.begin() as connection:
        checksums = connection.exec_driver_sql("SELECT checksum FROM topics ORDER BY id").scalars().all()
    assert checksums == [crc32(repr(tuple(row)).encode()) for row in expected]

    run(engine, command.downgrade, "0004")

    with engine.begin() as connection:
        found = [tuple(row) for row in connection.exec_driver_sql("SELECT * FROM topics ORDER BY id")]
    assert found == [(*row, crc32(repr(row).encode())) for row in TOPICS_OF_0004]


def test_a_damaged_row_is_not_made_right_by_being_migrated(engine: Engine, database: str, tmp_path: Path) -> None:
    run(engine, command.upgrade, "0004")
    write_as_0004(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE topics SET next_offset = 4 WHERE id = 1")
    migrate(database, tmp_path)

    store = open_store(database, tmp_path)
    try:
        with pytest.raises(OperatorError, match="a row of the table topics is not as it was written"):
            store.load()
    finally:
        store.close()


def test_there_is_no_way_back_while_there_are_queues(engine: Engine, database: str, tmp_path: Path) -> None:
    migrate(database, tmp_path)
    with engine.begin() as connection:
        for id, kind in enumerate(("topic", "queue")):
            connection.exec_driver_sql(
                f"INSERT INTO topics (id, kind, name, next_offset) VALUES ({id}, '{kind}', 'a', 0)"
            )

    with pytest.raises(RuntimeError, match="There are 1 queues"):
        run(engine, command.downgrade, "0004")

    assert current_revision(database, tmp_path) == REVISION


def test_going_back_keeps_what_the_first_release_knows(engine: Engine, database: str, tmp_path: Path) -> None:
    migrate(database, tmp_path)
    write_as_0001(engine)

    run(engine, command.downgrade, "0001")

    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT * FROM redeliveries").all() == [(7, 1, 3, 2, 99, "refused")]
        assert connection.exec_driver_sql("SELECT publisher, body_bytes FROM messages").all() == [("p", 1)]
        assert connection.exec_driver_sql("SELECT topic_id, ack_floor, sent_up_to FROM cursors").all() == [(1, 1, 3)]


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


def test_there_is_one_line_of_steps_and_it_ends_where_the_code_says() -> None:
    scripts = ScriptDirectory.from_config(opening._config())

    assert scripts.get_heads() == [REVISION]
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


def test_our_reading_of_the_revision_is_alembics(engine: Engine, database: str, tmp_path: Path) -> None:
    for revision in [None, *(path.name.partition("_")[0] for path in VERSIONS)]:
        if revision is not None:
            run(engine, command.upgrade, revision)

        with engine.connect() as connection:
            assert MigrationContext.configure(connection).get_current_revision() == revision
        assert current_revision(database, tmp_path) == revision


def test_a_database_of_the_release_before_is_migrated_or_named(engine: Engine, database: str, tmp_path: Path) -> None:
    run(engine, command.upgrade, "0001")

    if database:
        with pytest.raises(OperatorError, match="was last migrated by an older release"):
            open_store(database, tmp_path)
    else:
        open_store(database, tmp_path).close()
        assert current_revision(database, tmp_path) == REVISION


def test_who_finds_nothing_to_migrate_does_without_alembic(database: str, tmp_path: Path) -> None:
    migrate(database, tmp_path)
    program = """
import sys
from pathlib import Path
from stompbroker.storage import migrate, open_store
database, directory = sys.argv[1], Path(sys.argv[2])
if not database:
    (directory / "new").mkdir()
    open_store("", directory / "new").close()
open_store(database, directory).close()
assert migrate(database, directory) == []
assert not {"alembic", "mako"} & set(sys.modules)
"""

    subprocess.run([sys.executable, "-c", program, database, tmp_path], check=True, cwd=ROOT)


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

    assert opening._config().get_main_option("script_location") == str(package / "_migrations")
    (package / "_migrations").rmdir()
    assert opening._config().get_main_option("script_location") == str(tmp_path / "migrations")
