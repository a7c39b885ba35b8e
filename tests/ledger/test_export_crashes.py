"""Whatever is killed, and when: lake and store together hold each record once; on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker.ledger import FileWritten
from tests.ledger.ledger_on_store import ENDS

if TYPE_CHECKING:
    from tests.ledger.ledger_on_store import LedgerOnStore


def check(on_store: LedgerOnStore) -> None:
    """Of a file that is there although nobody wrote that down, the next process makes the same again."""
    planned = {row.name for row in on_store.exports.ready}
    sure = [name for name in on_store.files() if name.rpartition("/")[2] not in planned]
    in_lake = [offset for name in sure for offset in on_store.offsets_in(name)]
    assert sorted(in_lake + on_store.in_store()) == on_store.settled


def finish_and_check(on_store: LedgerOnStore) -> None:
    check(on_store)
    on_store.export()
    on_store.finish()
    assert sorted(on_store.in_lake()) == on_store.settled
    assert on_store.in_store(also_exported=True) == []
    assert on_store.place.count("ledger_exports") == 0


@pytest.mark.parametrize("is_written_down", [False, True])
def test_killed_when_it_was_planned(on_store: LedgerOnStore, is_written_down: bool) -> None:
    on_store.settle(5, 5)
    on_store.exports.plan(1)
    if is_written_down:
        on_store.write()

    on_store.restart()

    assert len(on_store.exports.ready) == is_written_down
    on_store.settle(3)
    finish_and_check(on_store)
    assert len(on_store.files()) == 1 + is_written_down


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_broker_killed", [False, True])
def test_killed_while_files_are_written(on_store: LedgerOnStore, end: str, is_broker_killed: bool) -> None:
    on_store.settle(5, 5)
    on_store.settle(4, day=20_000)
    on_store.exports.plan(1)
    on_store.write()

    done = on_store.run_process(on_store.order(), killed_at=ENDS[end])
    assert done.returncode == -9, done.stderr.decode()
    assert not (on_store.lake / "_complete_until.json").exists()
    if is_broker_killed:
        on_store.restart()
    else:
        for file in FileWritten.read_all(done.stdout):
            on_store.exports.note_file(file.export)
        on_store.write()
    check(on_store)
    on_store.settle(3)

    finish_and_check(on_store)
    assert on_store.complete_until() == "2027-01-15T08:00:00.123Z"


def test_killed_again_and_again_at_every_place(on_store: LedgerOnStore) -> None:
    for function in ENDS.values():
        on_store.settle(2, 2)
        on_store.exports.plan(1)
        on_store.write()
        assert on_store.run_process(on_store.order(), killed_at=function).returncode == -9
        on_store.restart()
        check(on_store)

    finish_and_check(on_store)
    assert len(on_store.files()) == len(ENDS)


@pytest.mark.parametrize("is_written_down", [False, True])
def test_killed_when_the_file_is_there(on_store: LedgerOnStore, is_written_down: bool) -> None:
    on_store.settle(5, 5)
    on_store.export()
    if is_written_down:
        on_store.write()

    on_store.restart()

    assert len(on_store.exports.ready) == (not is_written_down)
    on_store.settle(3)
    finish_and_check(on_store)


def test_one_that_was_left_behind_does_not_spoil_what_its_successor_has_written(on_store: LedgerOnStore) -> None:
    """The broker was killed, its process was not, and goes on reading while batches are deleted."""
    on_store.settle(5, 5)
    on_store.exports.plan(1)
    on_store.write()
    order = on_store.order()
    on_store.restart()
    on_store.write_files()
    on_store.finish()

    late = on_store.run_process(order)

    assert late.returncode == 3
    assert b"there are 0 records for " in late.stderr
    assert FileWritten.read_all(late.stdout) == []
    finish_and_check(on_store)


def test_the_same_file_twice_is_the_same_file(on_store: LedgerOnStore) -> None:
    on_store.settle(500)
    on_store.exports.plan(1)
    on_store.write()
    first, second = (on_store.run_process(on_store.order()) for _ in range(2))

    assert first.stdout == second.stdout
    assert sorted(on_store.in_lake()) == on_store.settled
