"""What the embedded file does when its disk does not do as it is told; the kernel answers, not a mock."""

from __future__ import annotations

import errno
import resource
import sqlite3
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from stompbroker.errors import OperatorError
from stompbroker.storage import Batch, StoreFailing
from stompbroker.storage.sqlite import engine, file
from tests.storage.place import publication
from tests.storage.syscall_watch import SYNCS, WRITES, watched
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stompbroker.storage import Store
    from tests.storage.place import Place


@pytest.fixture
def store(sqlite_place: Place) -> Store:
    """With a first batch: the very first one also syncs the head of the log."""
    store = sqlite_place.owned_store()
    store.commit(publication(1, make_messages(3)))
    return store


def settings_of_writer(store: Store, names: list[str]) -> dict[str, Any]:
    """What the connection that commits answers."""
    assert store._writer is not None
    cursor = store._writer.connection.cursor()
    return {name: cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


# Durability ----------------------------------------------------------------------------------------------------------


def test_the_connection_that_commits_is_set_to_be_durable(store: Store) -> None:
    names = ["journal_mode", "synchronous", "wal_autocheckpoint", "busy_timeout", "auto_vacuum", "journal_size_limit"]
    store.commit(Batch(number=2))
    heard = [settings_of_writer(store, names)]
    store.recover()
    store.commit(Batch(number=3))
    heard.append(settings_of_writer(store, names))

    expected = {
        "journal_mode": "wal",
        "synchronous": 2,
        "wal_autocheckpoint": 0,
        "busy_timeout": 2000,
        "auto_vacuum": 2,
        "journal_size_limit": 96 * 1024 * 1024,
    }
    assert heard == [expected] * 2


def test_each_commit_is_synced_once(store: Store) -> None:
    def commit_three() -> None:
        for number in (2, 3, 4):
            store.commit(publication(number, make_messages(300), topic_id=number))

    assert watched(commit_three, SYNCS) == ["fdatasync"] * 3


def test_without_the_pragma_nothing_would_be_synced(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    weaker = tuple((name, "NORMAL" if name == "synchronous" else value) for name, value in file.PRAGMAS)
    monkeypatch.setattr(file, "PRAGMAS", weaker)
    monkeypatch.setattr(file, "READ_BACK", {})
    store.recover()

    assert watched(lambda: store.commit(publication(2, make_messages(300), topic_id=2)), SYNCS) == []


def test_a_connection_that_is_not_durable_is_not_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    weaker = tuple((name, "NORMAL" if name == "synchronous" else value) for name, value in file.PRAGMAS)
    monkeypatch.setattr(file, "PRAGMAS", weaker)

    with pytest.raises(OperatorError, match="synchronous = 1 where durability needs 2"):
        store.recover()


# A disk that fails ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "failure", "text"),
    [
        (WRITES, errno.ENOSPC, "database or disk is full"),
        (WRITES, errno.EIO, "disk I/O error"),
        (WRITES, errno.EFBIG, "disk I/O error"),
        (SYNCS, errno.EIO, "disk I/O error"),
        (SYNCS, errno.ENOSPC, "disk I/O error"),
    ],
)
def test_what_cannot_be_written_is_not_committed_and_can_be_repeated(
    store: Store, sqlite_place: Place, calls: tuple[str, ...], failure: int, text: str
) -> None:
    batch = publication(2, make_messages(5), first_offset=3)

    with pytest.raises(StoreFailing, match=f"stompbroker.db fails: {text}"):
        watched(lambda: store.commit(batch), calls, lambda _: failure)

    assert store.recover() == 1
    assert sqlite_place.count("messages") == 3
    store.commit(batch)
    assert sqlite_place.count("messages") == 8


def test_a_write_that_fails_halfway_leaves_nothing_behind(store: Store, sqlite_place: Place) -> None:
    written = 0

    def fill_up(_: str) -> int:
        nonlocal written
        written += 1
        return errno.ENOSPC if written > 20 else 0

    batch = publication(2, [make_message(b"x" * 5000) for _ in range(100)], topic_id=2)
    with pytest.raises(StoreFailing, match="full"):
        watched(lambda: store.commit(batch), WRITES, fill_up)

    assert written > 20
    assert store.recover() == 1
    assert sqlite_place.query("PRAGMA integrity_check") == [("ok",)]
    store.commit(batch)
    assert store.read_page(2, 0, 100, max_bytes=10**6).message_count == 100


def test_a_failed_sync_is_not_taken_for_a_commit_by_the_next_connection(store: Store) -> None:
    """The frames are in the log by then, checksums and all: whoever built its index anew would find them."""
    for _ in range(3):
        with pytest.raises(StoreFailing):
            watched(lambda: store.commit(Batch(number=2)), SYNCS, lambda _: errno.EIO)

        assert store.recover() == 1


def test_pages_can_be_read_while_nothing_can_be_written(store: Store) -> None:
    with pytest.raises(StoreFailing):
        watched(lambda: store.commit(publication(2, make_messages(5), first_offset=3)), WRITES, lambda _: errno.ENOSPC)

    assert store.read_page(1, 0, 10).message_count == 3


def test_a_connection_can_be_had_while_nothing_can_be_written(store: Store) -> None:
    assert watched(lambda: _recover(store), WRITES, lambda _: errno.ENOSPC) == []


def _recover(store: Store) -> None:
    assert store.recover() == 1


def test_whether_rows_would_be_accepted_cannot_be_said_without_a_disk(store: Store) -> None:
    # Large enough not to fit the cache, so that SQLite must write before it is asked to commit.
    batch = publication(2, [make_message(b"x" * 100_000) for _ in range(100)], topic_id=2)

    with pytest.raises(StoreFailing):
        watched(lambda: _ask(store, batch), WRITES, lambda _: errno.EIO)

    assert store.recover() == 1
    assert store.would_accept(batch)


def _ask(store: Store, batch: Batch) -> None:
    store.would_accept(batch)


def test_a_limit_to_the_size_of_files_is_a_failing_store_until_it_is_lifted(store: Store, sqlite_place: Place) -> None:
    batch = publication(2, [make_message(b"x" * 10_000) for _ in range(100)], topic_id=2)

    with limited_file_size(200_000):
        with pytest.raises(StoreFailing, match="disk I/O error"):
            store.commit(batch)
        assert store.recover() == 1
        store.commit(publication(2, make_messages(1), first_offset=3))  # a small one still has room

    batch.number = 3
    store.commit(batch)
    assert sqlite_place.count("messages") == 104


@contextmanager
def limited_file_size(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_held_by_another_process_is_a_failing_store(
    store: Store, sqlite_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "BUSY_TIMEOUT_MS", 0)
    store.recover()
    intruder = engine.writing_engine(sqlite_place.directory / "stompbroker.db")

    with intruder.begin():
        with pytest.raises(StoreFailing, match="locked"):
            store.commit(Batch(number=2))

    assert store.recover() == 1
    store.commit(Batch(number=2))


def test_a_file_that_has_vanished_is_not_made_anew(store: Store, sqlite_place: Place) -> None:
    file = sqlite_place.directory / "stompbroker.db"
    file.rename(file.with_name("moved"))

    with pytest.raises(StoreFailing, match="unable to open"):
        store.recover()

    assert not file.exists()
    file.with_name("moved").rename(file)
    assert store.recover() == 1


# A log that is taken away --------------------------------------------------------------------------------------------


def log_of(place: Place) -> Path:
    return place.directory / "stompbroker.db-wal"


def delete(log: Path) -> None:
    log.unlink()


def replace(log: Path) -> None:
    copy = log.with_name("copy")
    copy.write_bytes(log.read_bytes())
    copy.rename(log)


@pytest.mark.parametrize("take_away", [delete, replace])
def test_a_deleted_or_replaced_log_is_a_failing_store_until_a_restart(
    store: Store, sqlite_place: Place, take_away: Callable[[Path], None]
) -> None:
    take_away(log_of(sqlite_place))

    for ask in (partial(store.commit, Batch(number=2)), store.free_bytes, store.recover):
        with pytest.raises(StoreFailing, match=r"write-ahead log .* was deleted or replaced.*Restart the broker"):
            ask()


def test_what_was_in_a_deleted_log_is_saved_to_the_database_file(store: Store, sqlite_place: Place) -> None:
    log_of(sqlite_place).unlink()
    with pytest.raises(StoreFailing):
        store.free_bytes()

    saved = sqlite_place.directory / "saved.db"
    saved.write_bytes((sqlite_place.directory / "stompbroker.db").read_bytes())
    connection = sqlite3.connect(saved)
    assert connection.execute("SELECT count(*) FROM messages").fetchone() == (3,)
    connection.close()


def test_a_log_that_a_checkpoint_has_emptied_is_still_the_same_log(store: Store, sqlite_place: Place) -> None:
    store.checkpoint(truncate=True)
    assert log_of(sqlite_place).stat().st_size == 0
    assert store.free_bytes()

    store.commit(Batch(number=2))

    assert store.free_bytes()
