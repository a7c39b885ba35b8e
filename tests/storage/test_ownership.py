"""One broker writes, each batch is written once, and whoever is late is told; on both engines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from stompbroker.errors import OperatorError
from stompbroker.storage import Batch, Ownership, StoreFailing, StoreTaken
from tests.storage.place import publication
from tests.support.messages import make_messages

if TYPE_CHECKING:
    from stompbroker.storage import Store
    from tests.storage.place import Place


def let_another_take(place: Place, description: str = "the second broker") -> None:
    """Somebody who got past the lock, as if that had been lost."""
    place.query(f"UPDATE journal_state SET owner = 'somebody else', owner_description = '{description}'")


def test_the_first_start_makes_a_store_id_and_counts_from_one(place: Place) -> None:
    ownership = place.open().take_ownership("a broker")

    assert re.fullmatch("[0-9a-f]{8}", ownership.store_id)
    assert ownership == Ownership(store_id=ownership.store_id, start_number=1, batch=0)


def test_each_start_has_the_next_number_and_finds_the_last_batch(place: Place) -> None:
    store = place.open()
    first = store.take_ownership("a broker")
    store.commit(Batch(number=1))
    store.commit(Batch(number=2))
    store.close()

    second = place.open().take_ownership("a broker")

    assert second == Ownership(store_id=first.store_id, start_number=2, batch=2)


def test_two_stores_have_two_ids(sqlite_place: Place, postgres_place: Place) -> None:
    here, there = (place.open().take_ownership("a broker") for place in (sqlite_place, postgres_place))

    assert here.store_id != there.store_id


def test_the_owner_is_written_down_for_people(store: Store, place: Place) -> None:
    assert place.query("SELECT owner_description FROM journal_state") == [("the first broker",)]


def test_a_broker_that_has_lost_the_store_writes_nothing_more(store: Store, place: Place) -> None:
    store.commit(publication(1, make_messages(1)))
    let_another_take(place, "process 7 on elsewhere")

    with pytest.raises(StoreTaken, match="process 7 on elsewhere"):
        store.commit(publication(2, make_messages(5), first_offset=1))

    assert place.count("messages") == 1
    assert place.query("SELECT batch FROM journal_state") == [(1,)]


def test_a_broker_that_has_lost_the_store_is_told_again_when_it_recovers(store: Store, place: Place) -> None:
    let_another_take(place, "process 7 on elsewhere")

    with pytest.raises(StoreTaken, match="process 7 on elsewhere"):
        store.recover()


def test_that_the_store_is_taken_is_for_the_operator_to_mend() -> None:
    assert issubclass(StoreTaken, OperatorError)


def test_a_batch_is_not_written_twice(store: Store, place: Place) -> None:
    batch = publication(1, make_messages(3))
    store.commit(batch)

    with pytest.raises(StoreFailing, match="batch 1 is the last one"):
        store.commit(batch)

    assert store.recover() == 1
    assert place.count("messages") == 3


def test_a_batch_that_leaves_one_out_is_not_written(store: Store, place: Place) -> None:
    with pytest.raises(StoreFailing, match="batch 0 is the last one"):
        store.commit(publication(2, make_messages(3)))

    assert place.count("messages") == 0


def test_recovering_without_need_changes_nothing(store: Store) -> None:
    store.commit(Batch(number=1))

    assert store.recover() == 1

    store.commit(Batch(number=2))
    assert store.recover() == 2


def test_a_store_that_has_failed_takes_nothing_before_it_is_recovered(store: Store) -> None:
    with pytest.raises(StoreFailing):
        store.commit(Batch(number=7))

    with pytest.raises(StoreFailing, match="not recovered"):
        store.commit(Batch(number=1))

    assert store.recover() == 0
    store.commit(Batch(number=1))


def test_closing_twice_is_harmless(store: Store) -> None:
    store.close()
    store.close()
