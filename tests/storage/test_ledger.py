"""Records of the ledger are there from the batch that settles them until their file is; on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.storage import Batch, ExportedBatches, Gathered, LedgerRow
from stompbroker.storage.loading import GATHERED_BATCHES
from tests.storage.place import export, ledger

if TYPE_CHECKING:
    from stompbroker.storage import Store
    from tests.storage.place import Place


def batches(place: Place) -> list[tuple[object, ...]]:
    return place.query("SELECT id, kind, day FROM ledger_batches ORDER BY id")


def test_a_batch_is_written_as_its_payload_was(store: Store, place: Place) -> None:
    payload = bytes(range(256)) * 300
    store.commit(Batch(number=1, ledger=[ledger(2**62, kind="backlog", payload=payload), ledger(3, payload=b"")]))

    found = place.query("SELECT id, kind, day, records, made_at_ns, payload FROM ledger_batches ORDER BY id")

    assert [(*row[:5], bytes(row[5])) for row in found] == [
        (3, "deliveries", 20_000, 3, 5, b""),
        (2**62, "backlog", 20_000, 3, 5, payload),
    ]


def test_the_payload_is_asked_for_only_when_it_is_written(store: Store) -> None:
    asked: list[str] = []

    def payload() -> bytes:
        asked.append("payload")
        return b"p"

    batch = Batch(number=1, ledger=[LedgerRow(1, "deliveries", 1, 1, 1, payload)])
    assert asked == []

    store.commit(batch)

    assert asked


def test_a_start_is_told_how_much_has_gathered_and_in_which_order(store: Store, place: Place) -> None:
    rows = [ledger(number, payload=b"x" * number, made_at_ns=100 - number) for number in range(1, 40)]
    rows += [ledger(40, kind="backlog", records=7), ledger(41, day=20_001)]
    store.commit(Batch(number=1, ledger=rows))

    gathered = place.open().load().gathered

    assert [row.last_batch for row in gathered] == sorted(row.last_batch for row in gathered)
    assert gathered[-2] == Gathered("backlog", 20_000, 0, 40, 7, 7, 5)
    assert gathered[-1] == Gathered("deliveries", 20_001, 0, 41, 3, 7, 5)
    of_day = gathered[:-2]
    assert [row.last_batch for row in of_day] == [GATHERED_BATCHES - 1, 2 * GATHERED_BATCHES - 1, 39]
    assert sum(row.records for row in of_day) == 3 * 39
    assert sum(row.payload_bytes for row in of_day) == sum(range(1, 40))
    assert [row.oldest_made_at_ns for row in of_day] == [100 - row.last_batch for row in of_day]
    assert {type(value) for row in of_day for value in row[1:]} == {int}


def test_what_belongs_to_different_exports_is_told_of_apart(store: Store) -> None:
    store.commit(Batch(number=1, ledger=[ledger(id, records=id) for id in range(1, 7)] + [ledger(7, kind="backlog")]))
    exports = [export(1, last_batch=2), export(2, after_batch=2, last_batch=4, is_written=True), export(3, day=7)]
    store.commit(Batch(number=2, exports=exports))

    found = [(row.kind, row.export, row.last_batch, row.records) for row in store.load().gathered]

    assert found == [("deliveries", 1, 2, 3), ("deliveries", 2, 4, 7), ("deliveries", 0, 6, 11), ("backlog", 0, 7, 3)]


def test_an_export_is_found_again_in_the_state_it_is_in(store: Store, place: Place) -> None:
    store.commit(Batch(number=1, exports=[export(1, last_batch=5), export(2, kind="backlog")]))
    store.commit(Batch(number=2, exports=[export(1, last_batch=5, is_written=True)]))

    assert place.open().load().exports == [export(1, last_batch=5, is_written=True), export(2, kind="backlog")]


def test_planned_and_written_in_one_batch_counts_as_written(store: Store) -> None:
    store.commit(Batch(number=1, exports=[export(1), export(1, is_written=True)]))

    assert store.load().exports == [export(1, is_written=True)]


def test_exported_batches_go_and_others_stay(store: Store, place: Place) -> None:
    rows = [
        ledger(1),
        ledger(2, kind="backlog"),
        ledger(3, day=20_001),
        ledger(4),
        ledger(5),
    ]
    store.commit(Batch(number=1, ledger=rows, exports=[export(1, last_batch=4)]))

    store.commit(Batch(number=2, exported=[ExportedBatches("deliveries", 20_000, 0, 1)]))
    assert [row[0] for row in batches(place)] == [2, 3, 4, 5]
    assert store.load().exports == [export(1, last_batch=4)]
    store.commit(Batch(number=3, exported=[ExportedBatches("deliveries", 20_000, 4, 4)]))
    assert [row[0] for row in batches(place)] == [2, 3, 4, 5]

    store.commit(Batch(number=4, finished_exports=[export(1, last_batch=4)]))
    assert batches(place) == [(2, "backlog", 20_000), (3, "deliveries", 20_001), (5, "deliveries", 20_000)]
    assert store.load().exports == []


def test_several_exports_are_finished_in_one_batch(store: Store, place: Place) -> None:
    exports = [export(number, day=number, last_batch=number) for number in range(1, 8)]
    store.commit(
        Batch(number=1, ledger=[ledger(number, day=number) for number in range(1, 9)], exports=exports),
    )

    store.commit(Batch(number=2, finished_exports=exports))

    assert batches(place) == [(8, "deliveries", 8)]
    assert store.load().exports == []


def test_a_deletion_asks_the_index(sqlite_place: Place) -> None:
    store = sqlite_place.owned_store()
    store.commit(Batch(number=1, ledger=[ledger(1)]))

    plan = sqlite_place.query(
        "EXPLAIN QUERY PLAN DELETE FROM ledger_batches WHERE kind = 'deliveries' AND day = 1 AND id > 2 AND id <= 5"
    )

    assert [row[3] for row in plan] == [
        "SEARCH ledger_batches USING INDEX ix_ledger_batches_kind_day_id (kind=? AND day=? AND id>? AND id<?)"
    ]
