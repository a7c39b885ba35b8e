"""What is planned, written down and deleted, step by step, on a real store; on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker.ledger import Kind, Payload
from stompbroker.ledger import exports as module
from stompbroker.storage import Batch
from tests.ledger.records import DAY, backlog_draft, deliveries

if TYPE_CHECKING:
    from tests.ledger.ledger_on_store import LedgerOnStore


def test_nothing_gathered_plans_nothing(on_store: LedgerOnStore) -> None:
    on_store.exports.plan(1)

    assert not on_store.exports.has_changes
    assert on_store.exports.ready == []
    assert on_store.exports.oldest is None
    assert not on_store.exports.is_full


def test_everything_of_a_day_goes_into_one_file(on_store: LedgerOnStore) -> None:
    on_store.settle(3, 1, 2)
    on_store.exports.plan(1_800_000_000_000_000_000)
    assert on_store.exports.has_changes
    assert on_store.exports.ready == []  # not before it is written down

    on_store.write()

    (row,) = on_store.exports.ready
    assert (row.kind, row.day, row.after_batch, row.last_batch, row.records) == ("deliveries", DAY, 0, 3, 6)
    assert row.name == "deliveries-1a2b3c4d-1-1-20270115T080000Z.parquet"
    assert not on_store.exports.has_changes


def test_each_kind_and_each_day_has_a_file_of_its_own(on_store: LedgerOnStore) -> None:
    on_store.settle(1)
    on_store.settle(1, day=DAY - 1)
    on_store.exports.add(Kind.BACKLOG, DAY, 4, 1, Payload(lambda: backlog_draft(4)))
    assert on_store.exports.has_changes
    on_store.write()
    assert on_store.exports.oldest is not None
    assert on_store.exports.oldest[1] == DAY - 1

    on_store.exports.plan(1)
    on_store.write()

    assert [(row.kind, row.day, row.records) for row in on_store.exports.ready] == [
        ("deliveries", DAY - 1, 1),
        ("backlog", DAY, 4),
        ("deliveries", DAY, 1),
    ]


def test_what_comes_after_the_plan_is_for_the_next(on_store: LedgerOnStore) -> None:
    on_store.settle(2)
    on_store.exports.plan(1)
    on_store.settle(3)  # in the batch that writes the plan down
    on_store.exports.plan(1)
    on_store.write()

    assert [(row.after_batch, row.last_batch, row.records) for row in on_store.exports.ready] == [(0, 1, 2), (1, 2, 3)]


def test_much_goes_into_several_files(on_store: LedgerOnStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PORTION_BYTES", 1)
    on_store.settle(*[2000] * 5)
    assert on_store.exports.is_full

    files = on_store.export()
    on_store.finish()

    assert len(files) > 1
    assert sum(file.records for file in files) == 10_000
    assert sorted(on_store.in_lake()) == on_store.settled
    assert on_store.in_store(also_exported=True) == []


def test_that_enough_has_gathered_wakes_once(on_store: LedgerOnStore, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[bool] = []
    filled = on_store.exports.filled
    monkeypatch.setattr(type(filled), "wake", lambda signal: woken.append(signal is filled))

    on_store.settle(*[2000] * 5)

    assert woken.count(True) == 1


def test_batches_are_deleted_in_portions(on_store: LedgerOnStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PORTION_BATCHES", 2)
    on_store.settle(1, 1, 1, 1, 1)
    on_store.export()
    on_store.settle(1)
    left = []
    while on_store.exports.has_leftovers:
        left.append(len(on_store.in_store(also_exported=True)))
        on_store.exports.delete_portion()
        assert on_store.exports.is_deleting
        on_store.write()
        assert not on_store.exports.is_deleting

    assert left == [6, 4, 2]
    assert on_store.in_store(also_exported=True) == [5]
    assert on_store.place.count("ledger_exports") == 0


@pytest.mark.parametrize("portions", [0, 1, 2])
def test_another_process_goes_on_deleting(
    on_store: LedgerOnStore, portions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PORTION_BATCHES", 1)
    on_store.settle(*[1] * 50)
    on_store.export()
    on_store.write()
    for _ in range(portions):
        on_store.exports.delete_portion()
        on_store.write()

    on_store.restart()
    assert on_store.exports.ready == []
    on_store.settle(1)
    on_store.finish()

    assert on_store.in_store(also_exported=True) == [50]
    assert sorted(on_store.in_lake()) == list(range(50))


def test_a_name_is_never_given_again(on_store: LedgerOnStore) -> None:
    for _ in range(3):
        on_store.settle(1)
        on_store.export()
        on_store.finish()
        on_store.restart()

    assert len(on_store.files()) == 3
    assert sorted(on_store.in_lake()) == [0, 1, 2]


def test_numbers_go_on_behind_what_an_export_still_names(on_store: LedgerOnStore) -> None:
    """Its batches are gone, but for the row that says so."""
    on_store.settle(1, 1)
    on_store.export()
    on_store.write()
    on_store.place.query("DELETE FROM ledger_batches")
    on_store.restart()

    on_store.settle(1)
    on_store.finish()

    assert on_store.in_store(also_exported=True) == [2]


def test_how_old_the_oldest_is(on_store: LedgerOnStore) -> None:
    on_store.write(deliveries([1]), made_at_ns=20)
    on_store.write(deliveries([2]), made_at_ns=10)
    on_store.write(deliveries([3]), day=DAY + 1, made_at_ns=15)
    assert on_store.exports.oldest is not None
    assert on_store.exports.oldest[0] == 10

    on_store.restart()

    assert on_store.exports.oldest == (10, DAY)


def test_what_a_batch_has_is_no_reason_for_another_one(on_store: LedgerOnStore) -> None:
    """Whoever waits until everything is written would wait for a batch that never comes."""
    on_store.settle(1)
    on_store.exports.plan(1)
    batch = Batch(number=2)

    on_store.exports.take(batch)
    assert not on_store.exports.has_changes
    on_store.exports.note_written(batch)

    assert not on_store.exports.has_changes
    (row,) = on_store.exports.ready
    on_store.exports.note_file(row.id)
    assert on_store.exports.has_changes
    batch = Batch(number=3)
    on_store.exports.take(batch)
    assert not on_store.exports.has_changes
    on_store.exports.note_written(batch)
    on_store.exports.delete_portion()
    assert on_store.exports.has_changes
    batch = Batch(number=4)
    on_store.exports.take(batch)
    assert not on_store.exports.has_changes
    on_store.exports.note_written(batch)
    assert not on_store.exports.has_leftovers
