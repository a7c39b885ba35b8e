"""Looking into a broker's database and at its files, with a database that was made by hand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from benchmarks.stored import Stored, bytes_in, sizes_in

if TYPE_CHECKING:
    from pathlib import Path

TABLES = """
    CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE messages (topic_id INTEGER);
    CREATE TABLE cursors (settled BLOB);
    CREATE TABLE redeliveries (subscription_id INTEGER);
    INSERT INTO topics VALUES (7, 'orders'), (8, 'empty');
    INSERT INTO messages VALUES (7), (7);
    INSERT INTO cursors VALUES (x''), (x'010203');
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "stompbroker.db")) as connection:
        connection.executescript(TABLES)
    return tmp_path


def test_rows_and_what_is_left_of_a_topic_are_seen(data: Path) -> None:
    with Stored(data) as stored:
        assert stored.row_count("cursors") == 2
        assert stored.row_count("redeliveries") == 0
        assert stored.largest_cursor_bytes() == 3
        assert stored.has_messages(stored.topic_id("orders"))
        assert not stored.has_messages(stored.topic_id("empty"))
        assert stored.free_bytes() == 0


def test_what_another_connection_deletes_is_gone_at_the_next_look(data: Path) -> None:
    with Stored(data) as stored, closing(sqlite3.connect(data / "stompbroker.db", isolation_level=None)) as writer:
        assert stored.has_messages(7)
        writer.execute("DELETE FROM messages")
        assert not stored.has_messages(7)


def test_the_log_counts_beside_the_database_and_files_that_are_not_there_count_nothing(tmp_path: Path) -> None:
    assert sizes_in(tmp_path).total_bytes == 0

    (tmp_path / "stompbroker.db").write_bytes(bytes(1000))
    (tmp_path / "stompbroker.db-wal").write_bytes(bytes(200))
    (tmp_path / "broker.lock").write_bytes(bytes(3))

    sizes = sizes_in(tmp_path)
    assert (sizes.database_bytes, sizes.log_bytes, sizes.total_bytes) == (1000, 200, 1200)
    assert bytes_in(tmp_path) == 1203
