"""What an operator writes is opened, or refused with a sentence that helps and gives nothing away."""

from __future__ import annotations

import sqlite3
import sys
import traceback
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from stompbroker.errors import OperatorError
from stompbroker.storage import migrate, open_store
from stompbroker.storage.schema import REVISION
from tests.storage.place import current_revision

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import PostgresServer


def refusal(database: str, directory: Path) -> str:
    with pytest.raises(OperatorError) as error:
        open_store(database, directory)
    return str(error.value)


# What is allowed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "database",
    [
        "sqlite:///file.db",
        "sqlite://",
        "postgresql://host/name",
        "postgres://host/name",
        "postgresql+asyncpg://host/name",
        "mysql://host/name",
        "/var/lib/file.db",
        "nonsense",
        "postgresql+psycopg://host:port/name",
    ],
)
def test_other_databases_are_refused_and_told_what_is_allowed(database: str, tmp_path: Path) -> None:
    text = refusal(database, tmp_path)

    assert "postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE" in text
    assert "stompbroker.db in the data directory" in text
    assert list(tmp_path.iterdir()) == []


def test_a_missing_driver_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    text = refusal("postgresql+psycopg://host/name", tmp_path)

    assert 'pip install "stompbroker[postgres]"' in text


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    databases = [
        "postgresql+psycopg://user:s3cret@127.0.0.1:1/name",
        "postgresql+psycopg://user@127.0.0.1:1/name?password=s3cret",
        "postgresql+psycopg://user:s3cret@127.0.0.1:1/name?sslmode=s3cret",
        "postgresql+psycopg://user:s3cret@127.0.0.1:1/name?no_such_option=1",
        "mysql://user:s3cret@127.0.0.1:1/name",
        "postgresql+psycopg://user:s3cret@host:port/name",
        "user:s3cret@host",
    ]
    for database in databases:
        for use in (open_store, migrate):
            with pytest.raises(OperatorError) as error:
                use(database, tmp_path)

            assert "s3cret" not in str(error.value)
            assert "s3cret" not in "".join(traceback.format_exception(error.value))


def test_a_server_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    text = refusal("postgresql+psycopg://user:s3cret@127.0.0.1:1/name", tmp_path)

    assert text.startswith("Cannot open the database postgresql+psycopg://user@127.0.0.1:1/name: connection failed")
    assert "Connection refused" in text


# The embedded file ---------------------------------------------------------------------------------------------------


def test_the_embedded_file_is_made_and_migrated_by_opening_it(tmp_path: Path) -> None:
    open_store("", tmp_path).close()

    assert current_revision("", tmp_path) == REVISION


def test_an_embedded_file_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    open_store("", tmp_path).close()
    file = sqlite3.connect(tmp_path / "stompbroker.db")
    with file:
        file.execute("UPDATE alembic_version SET version_num = '9999'")
    file.close()

    assert "was migrated by a newer release" in refusal("", tmp_path)
    with pytest.raises(OperatorError, match="newer release"):
        migrate("", tmp_path)


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "stompbroker.db"
    file.write_bytes(b"something else " * 1000)

    assert "file is not a database" in refusal("", tmp_path)

    assert file.read_bytes() == b"something else " * 1000


def test_a_file_with_other_tables_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "stompbroker.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE messages (subject)")
    before = file.read_bytes()

    with pytest.raises(OperatorError, match="table messages already exists"):
        open_store("", tmp_path)

    assert file.read_bytes()[100:] == before[100:], "but for its header, which says how it is written to"


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    text = refusal("", tmp_path / "nowhere")

    assert str(tmp_path / "nowhere" / "stompbroker.db") in text
    assert "unable to open database file" in text


@pytest.mark.parametrize("name", ["with space", "per%cent", "quest?ion", "ha#sh", "ü☃", "a'b\"c"])
def test_a_data_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()

    store = open_store("", directory)
    store.take_ownership("a broker")
    store.close()

    assert [path.name for path in directory.iterdir()] == ["stompbroker.db"]


# A server ------------------------------------------------------------------------------------------------------------


def test_an_empty_server_database_is_refused_with_the_command_that_mends_it(postgres_url: str, tmp_path: Path) -> None:
    text = refusal(postgres_url, tmp_path)

    assert f"{postgres_url} has no tables yet" in text
    assert f"stompbroker migrate --database {postgres_url}" in text
    assert current_revision(postgres_url, tmp_path) is None


def test_a_server_database_of_a_newer_release_is_refused(postgres_url: str, tmp_path: Path) -> None:
    migrate(postgres_url, tmp_path)
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    assert "was migrated by a newer release" in refusal(postgres_url, tmp_path)
    with pytest.raises(OperatorError, match="newer release"):
        migrate(postgres_url, tmp_path)


def test_migrating_says_what_was_done_and_does_it_once(postgres_url: str, tmp_path: Path) -> None:
    assert migrate(postgres_url, tmp_path)[-1] == REVISION
    assert migrate(postgres_url, tmp_path) == []

    store = open_store(postgres_url, tmp_path)
    store.take_ownership("a broker")
    store.close()


def test_a_server_database_in_another_encoding_is_refused(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.create_database()
    name = f"{url.rpartition('/')[2]}_latin1"
    address = url.replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING LATIN1".encode())
    latin1 = url.replace(url.rpartition("/")[2], name)
    try:
        with pytest.raises(OperatorError, match="encoding LATIN1, in which not every name"):
            migrate(latin1, tmp_path)
    finally:
        postgres_server.drop_database(latin1)
        postgres_server.drop_database(url)
