"""Files stay as small as they can be, and what they take and leave is known."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import pytest

from stompbroker.errors import OperatorError
from stompbroker.storage import Batch, Deletion, open_store
from stompbroker.storage.sqlite import checkpoints, disk_room
from tests.storage.place import cursor, ledger, publication
from tests.storage.syscall_watch import LOOKS, watched
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stompbroker.storage import Store
    from tests.storage.place import Place

#: Of the write-ahead log: a page, and what is in front of each.
PAGE_BYTES = 4096
FRAME_HEAD_BYTES = 24


@pytest.fixture
def sqlite_store(sqlite_place: Place) -> Store:
    return sqlite_place.owned_store()


@pytest.fixture
def log_file(sqlite_place: Place) -> Path:
    return sqlite_place.directory / "stompbroker.db-wal"


def fill(store: Store, *, first_batch: int, batches: int, size_bytes: int = 10_000) -> None:
    messages = [make_message(b"x" * size_bytes) for _ in range(100)]
    for number in range(first_batch, first_batch + batches):
        store.commit(publication(number, messages, first_offset=100 * (number - 1)))


# The write-ahead log -------------------------------------------------------------------------------------------------


@pytest.fixture
def no_room_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """For who wants to know the length of what is written."""
    monkeypatch.setattr(disk_room, "LAST_BYTES", 0)


@pytest.fixture
def early_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """For who would have to write much until one is due."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", 16 * 1024 * 1024)
    monkeypatch.setattr(disk_room, "LAST_BYTES", 20 * 1024 * 1024)


@pytest.mark.usefixtures("early_checkpoints")
def test_a_checkpoint_is_due_when_enough_was_written(sqlite_store: Store, log_file: Path) -> None:
    assert not sqlite_store.needs_checkpoint

    fill(sqlite_store, first_batch=1, batches=17)

    assert sqlite_store.needs_checkpoint
    assert log_file.stat().st_size == pytest.approx(checkpoints.CHECKPOINT_BYTES, rel=0.4)
    sqlite_store.checkpoint()
    assert not sqlite_store.needs_checkpoint


def test_a_checkpoint_is_due_earlier_where_there_is_little_room(
    sqlite_store: Store, sqlite_place: Place, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the log may need as much again in the file, behind which publishers are still to be held back."""
    found = os.statvfs(sqlite_place.directory)
    blocks = 16_000_000 // found.f_frsize
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*found[:3], blocks, blocks, *found[5:])))

    fill(sqlite_store, first_batch=1, batches=3)
    assert not sqlite_store.needs_checkpoint
    fill(sqlite_store, first_batch=4, batches=2)
    assert sqlite_store.needs_checkpoint

    # Nobody sees to it, so in the end the writer does.
    fill(sqlite_store, first_batch=6, batches=20)
    assert log_file.stat().st_size < 20_000_000


@pytest.mark.usefixtures("early_checkpoints")
def test_many_small_commits_make_a_checkpoint_due_as_well(sqlite_store: Store, log_file: Path) -> None:
    for number in range(1, 701):
        sqlite_store.commit(publication(number, make_messages(1), first_offset=number - 1))

    assert sqlite_store.needs_checkpoint
    assert log_file.stat().st_size == pytest.approx(checkpoints.CHECKPOINT_BYTES, rel=0.5)


@pytest.mark.usefixtures("early_checkpoints")
def test_deletions_make_a_checkpoint_due_as_well(sqlite_store: Store, log_file: Path) -> None:
    fill(sqlite_store, first_batch=1, batches=30)
    sqlite_store.checkpoint(truncate=True)

    number = 31
    while not sqlite_store.needs_checkpoint:
        start = 100 * (number - 31)
        sqlite_store.commit(Batch(number=number, deletions=[Deletion(1, start, start + 100)]))
        number += 1

    # Of long messages it is less than is reckoned with: what they hold beside their page is not written once more.
    assert log_file.stat().st_size < 1.2 * checkpoints.CHECKPOINT_BYTES


def test_what_a_killed_process_left_in_the_log_is_copied_back_by_the_next_start(
    sqlite_store: Store, sqlite_place: Place, log_file: Path
) -> None:
    fill(sqlite_store, first_batch=1, batches=17)
    copy = sqlite_place.directory / "copy"
    copy.mkdir()
    for file in (sqlite_place.directory / "stompbroker.db", log_file):
        shutil.copy(file, copy)

    revived = open_store("", copy)

    assert (copy / log_file.name).stat().st_size == 0
    assert revived.read_page(1, 0, 1700, max_bytes=10**9).message_count == 1000
    revived.close()


@pytest.mark.usefixtures("no_room_made")
def test_after_a_checkpoint_the_log_begins_anew(sqlite_store: Store, log_file: Path) -> None:
    fill(sqlite_store, first_batch=1, batches=5)
    size = log_file.stat().st_size

    sqlite_store.checkpoint()
    fill(sqlite_store, first_batch=6, batches=4)

    assert log_file.stat().st_size == size


def test_truncating_leaves_an_empty_log(sqlite_store: Store, log_file: Path) -> None:
    fill(sqlite_store, first_batch=1, batches=5)

    sqlite_store.checkpoint(truncate=True)

    assert log_file.stat().st_size == 0


@pytest.mark.usefixtures("no_room_made")
def test_what_a_checkpoint_beside_the_writer_had_to_leave_is_copied_in_the_end(
    sqlite_store: Store, sqlite_place: Place, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the log would not begin anew, and never would if there is always something left."""
    fill(sqlite_store, first_batch=1, batches=3)
    copy_back = checkpoints.Checkpoints._checkpoint
    modes: list[str] = []

    def read_meanwhile(upkeep: checkpoints.Checkpoints, mode: str) -> None:
        modes.append(mode)
        reader = sqlite3.connect(sqlite_place.directory / "stompbroker.db", isolation_level=None)
        if len(modes) == 1:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM messages").fetchall()
            fill(sqlite_store, first_batch=4, batches=1)
        copy_back(upkeep, mode)
        reader.close()

    monkeypatch.setattr(checkpoints.Checkpoints, "_checkpoint", read_meanwhile)
    sqlite_store.checkpoint()
    size = log_file.stat().st_size

    fill(sqlite_store, first_batch=5, batches=3)

    assert modes == ["PASSIVE", "PASSIVE", "PASSIVE"]
    assert log_file.stat().st_size == size


def test_a_checkpoint_and_a_writer_that_never_rests_get_their_turns(sqlite_store: Store) -> None:
    stopped = threading.Event()

    def write() -> None:
        number = 1
        while not stopped.is_set():
            fill(sqlite_store, first_batch=number, batches=1, size_bytes=10)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            sqlite_store.checkpoint()
    finally:
        stopped.set()
        writer.join()


def test_a_writer_to_whom_nobody_attends_sees_to_the_log_itself(
    sqlite_store: Store, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", 750_000)

    fill(sqlite_store, first_batch=1, batches=20)

    assert log_file.stat().st_size < 8_000_000


def test_a_page_that_is_being_read_does_not_stop_a_checkpoint(sqlite_store: Store, sqlite_place: Place) -> None:
    fill(sqlite_store, first_batch=1, batches=2)
    reader = sqlite3.connect(sqlite_place.directory / "stompbroker.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    fill(sqlite_store, first_batch=3, batches=2)

    sqlite_store.checkpoint()
    sqlite_store.checkpoint(truncate=True)

    assert reader.execute("SELECT count(*) FROM messages").fetchall() == [(200,)]
    reader.close()
    fill(sqlite_store, first_batch=5, batches=1)


def test_closing_leaves_the_database_file_alone(sqlite_store: Store, sqlite_place: Place) -> None:
    fill(sqlite_store, first_batch=1, batches=2)

    sqlite_store.close()

    assert sorted(os.listdir(sqlite_place.directory)) == ["reserve", "stompbroker.db"]


# Space ---------------------------------------------------------------------------------------------------------------


def test_free_space_is_that_of_the_file_system_and_of_the_file(
    sqlite_store: Store, sqlite_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sqlite_store, first_batch=1, batches=3)
    system = os.statvfs(sqlite_place.directory)
    monkeypatch.setattr(os, "statvfs", lambda _: system)  # others write to it as well
    before = sqlite_store.free_bytes()
    assert before is not None
    assert before == pytest.approx(system.f_bavail * system.f_frsize, abs=100_000)

    sqlite_store.commit(Batch(number=4, deletions=[Deletion(1, 0, 200)]))

    after = sqlite_store.free_bytes()
    assert after is not None
    assert after - before > 2_000_000


def test_free_pages_are_used_before_the_file_grows(sqlite_store: Store, sqlite_place: Place) -> None:
    fill(sqlite_store, first_batch=1, batches=3)
    sqlite_store.commit(Batch(number=4, deletions=[Deletion(1, 0, 300)]))
    sqlite_store.checkpoint()
    size = (sqlite_place.directory / "stompbroker.db").stat().st_size

    fill(sqlite_store, first_batch=5, batches=2)
    sqlite_store.checkpoint()

    assert (sqlite_place.directory / "stompbroker.db").stat().st_size == size


def pages_in(file: Path) -> int:
    """The file itself becomes shorter only with a checkpoint."""
    with closing(sqlite3.connect(file)) as connection:
        count: int = connection.execute("PRAGMA page_count").fetchone()[0]
    return count


@pytest.mark.usefixtures("no_room_made")
def test_many_free_pages_are_given_back_in_slices(
    sqlite_store: Store, sqlite_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "FREE_PAGES_BYTES", 1_000_000)
    monkeypatch.setattr(checkpoints, "VACUUM_PAGES", 100)
    monkeypatch.setattr(checkpoints, "perf_counter", itertools.count().__next__)  # the time is up after one look
    file = sqlite_place.directory / "stompbroker.db"
    fill(sqlite_store, first_batch=1, batches=5)
    sqlite_store.checkpoint()
    sqlite_store.commit(Batch(number=6, deletions=[Deletion(1, 0, 490)]))

    pages = [pages_in(file)]
    sqlite_store.checkpoint()
    while sqlite_store.needs_checkpoint:
        sqlite_store.checkpoint()
        pages.append(pages_in(file))

    assert len(pages) > 5
    # A page of the map that says where pages are goes now and then with those it describes.
    assert {before - after for before, after in pairwise(pages[:-1])} <= {100, 101}
    assert file.stat().st_size < 1_500_000
    assert sqlite_store.read_page(1, 0, 500).message_count == 10


def test_the_size_of_the_store_is_that_of_what_is_in_it(store: Store) -> None:
    before = store.stored_bytes()

    store.commit(publication(1, [make_message(os.urandom(10_000)) for _ in range(100)]))

    assert store.stored_bytes() - before > 1_000_000


def test_a_server_keeps_its_own_house(postgres_place: Place) -> None:
    store = postgres_place.owned_store()

    assert store.free_bytes() is None
    assert not store.needs_checkpoint
    store.checkpoint()
    store.checkpoint(truncate=True)


# Room in the log -----------------------------------------------------------------------------------------------------


def make_room(store: Store, last_batch: int) -> int:
    """As the broker does: each go takes a tenth of a second at most, and the next commit says whether it was enough."""
    while store.needs_checkpoint:
        store.checkpoint()
        last_batch += 1
        store.commit(Batch(number=last_batch))
    return last_batch


def test_log_that_is_used_is_given_room_ahead_of_the_writer(
    sqlite_store: Store, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_room, "AHEAD_BYTES", 4 * 1024 * 1024)
    fill(sqlite_store, first_batch=1, batches=2)
    used = log_file.stat().st_size

    last_batch = make_room(sqlite_store, 2)

    length = log_file.stat().st_size
    assert length == pytest.approx(used + disk_room.AHEAD_BYTES, rel=0.1)
    # Room is nothing that a checkpoint could copy, and more of it follows what is used.
    fill(sqlite_store, first_batch=last_batch + 1, batches=3)
    assert log_file.stat().st_size == length
    make_room(sqlite_store, last_batch + 3)
    assert log_file.stat().st_size == pytest.approx(length + 3_000_000, rel=0.1)


@pytest.mark.usefixtures("early_checkpoints")
def test_log_never_gets_more_room_than_a_checkpoint_lets_be_used(
    sqlite_store: Store, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_room, "AHEAD_BYTES", 10**9)
    fill(sqlite_store, first_batch=1, batches=2)

    make_room(sqlite_store, 2)

    assert log_file.stat().st_size == disk_room.LAST_BYTES


def test_room_is_made_for_a_short_while_at_a_time(
    sqlite_store: Store, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "MAKING_ROOM_S", 10)
    monkeypatch.setattr(checkpoints, "perf_counter", itertools.count(step=2).__next__)
    fill(sqlite_store, first_batch=1, batches=2)
    length = log_file.stat().st_size

    sqlite_store.checkpoint()

    assert log_file.stat().st_size == length + 4 * disk_room.STEP_BYTES


def messages_after_a_kill(place: Place, log_file: Path) -> int:
    copy = place.directory / "copy"
    copy.mkdir()
    for file in (place.directory / "stompbroker.db", log_file):
        shutil.copy(file, copy)
    with closing(open_store("", copy)) as revived:
        return revived.read_page(1, 0, 10**9, max_rows=10**9, max_bytes=10**9).message_count


def test_room_never_covers_what_is_written_meanwhile(sqlite_store: Store, sqlite_place: Place, log_file: Path) -> None:
    """Zeros over what another has just committed would be the end of it."""
    messages = [make_message(b"x" * 10_000)] * 10
    published = 200
    fill(sqlite_store, first_batch=1, batches=2)
    making = threading.Thread(target=sqlite_store.checkpoint)
    making.start()
    for number in itertools.count(3):
        sqlite_store.commit(publication(number, messages, first_offset=published))
        published += len(messages)
        if not making.is_alive():
            break

    assert messages_after_a_kill(sqlite_place, log_file) == published


def between_look_and_write(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Something happens, once, when the length of the log was looked at and zeros are about to be written there."""
    pwrite, waiting = os.pwrite, [happens]

    def happens_first(descriptor: int, data: bytes, offset: int) -> int:
        if waiting:
            waiting.pop()()
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", happens_first)


def test_the_process_of_a_dead_broker_does_not_make_room_over_what_the_next_one_writes(
    sqlite_place: Place, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence keeps its batches out, and SQLite's lock its zeros."""
    fill(sqlite_store, first_batch=1, batches=2)
    refusals: list[BaseException] = []

    def another_begins() -> None:
        with pytest.raises(OperatorError) as caught:
            sqlite_place.open().take_ownership("another")
        refusals.append(caught.value)

    monkeypatch.setattr("stompbroker.storage.sqlite.file.BUSY_TIMEOUT_MS", 10)
    between_look_and_write(monkeypatch, another_begins)

    sqlite_store.checkpoint()

    assert len(refusals) == 1
    assert sqlite_store.read_page(1, 0, 200, max_bytes=10**9).message_count == 200


def test_no_room_is_made_while_somebody_else_writes_to_the_file(
    sqlite_store: Store, sqlite_place: Place, log_file: Path
) -> None:
    fill(sqlite_store, first_batch=1, batches=2)
    length = log_file.stat().st_size
    with closing(sqlite3.connect(sqlite_place.directory / "stompbroker.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        sqlite_store.checkpoint()

        assert log_file.stat().st_size == length


def test_a_writer_that_has_filled_the_log_meanwhile_leaves_no_room_to_make(
    sqlite_store: Store, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sqlite_store, first_batch=1, batches=2)
    length = log_file.stat().st_size
    monkeypatch.setattr(disk_room.LogFile, "wants_room", lambda *_: log_file.stat().st_size == length)
    monkeypatch.setattr(disk_room, "LAST_BYTES", length - 1)

    sqlite_store.checkpoint()

    assert log_file.stat().st_size == length


def test_log_that_was_truncated_is_given_room_again(sqlite_store: Store, log_file: Path) -> None:
    fill(sqlite_store, first_batch=1, batches=5)
    sqlite_store.checkpoint(truncate=True)
    assert log_file.stat().st_size == 0
    assert not sqlite_store.needs_checkpoint

    fill(sqlite_store, first_batch=6, batches=2)

    assert sqlite_store.needs_checkpoint


def test_little_is_written_without_room(sqlite_store: Store, log_file: Path) -> None:
    for number in range(1, 9):
        sqlite_store.commit(publication(number, make_messages(1), first_offset=number - 1))

    assert log_file.stat().st_size < disk_room.FIRST_BYTES


def test_full_disk_keeps_what_is_left_of_it(
    sqlite_store: Store, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_room, "SPARE_BYTES", 10**18)

    fill(sqlite_store, first_batch=1, batches=3)

    assert log_file.stat().st_size == pytest.approx(3_100_000, rel=0.1)


def test_killed_process_leaves_room_behind_its_log(sqlite_store: Store, sqlite_place: Place, log_file: Path) -> None:
    fill(sqlite_store, first_batch=1, batches=3)
    sqlite_store.checkpoint()
    fill(sqlite_store, first_batch=4, batches=1, size_bytes=100)
    assert not any(log_file.read_bytes()[-100_000:])

    assert messages_after_a_kill(sqlite_place, log_file) == 400


# What a lone message costs -------------------------------------------------------------------------------------------


def test_a_message_and_an_answer_write_seven_pages(sqlite_store: Store, log_file: Path) -> None:
    """Fence, topic, message and its key, cursor, records and their key. At a thousand messages a second each comes
    alone, and every page is two writes more."""

    written = []
    for number in range(1, 100):
        batch = publication(number, make_messages(1), first_offset=number - 1)
        batch.cursors = [cursor(1, 1, ack_floor=number - 1)]
        batch.ledger = [ledger(number, payload=b"x" * 200)]
        before = log_file.stat().st_size
        sqlite_store.commit(batch)
        written.append((log_file.stat().st_size - before) // (PAGE_BYTES + FRAME_HEAD_BYTES))

    # Now and then one is full, and there are two.
    assert median(written) == 7


def test_a_commit_looks_at_each_file_once(sqlite_store: Store) -> None:
    """The log, the database, the reserve, and the file system; it used to be ten looks."""
    sqlite_store.commit(publication(1, make_messages(1)))

    def write_one() -> None:
        sqlite_store.write(publication(2, make_messages(1), first_offset=1), measures=False)

    looks = watched(write_one, LOOKS)

    assert len(looks) == 4
    assert looks.count("statfs") == 1
