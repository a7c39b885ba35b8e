"""A store on a server is its owner's while its lease lasts, by the database's clock; the owner itself stops earlier, by
its own. With a real server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import event

from stompbroker.errors import OperatorError
from stompbroker.storage import (
    Batch,
    Lease,
    Store,
    StoreFailing,
    StoreHeld,
    StoreTaken,
    StoreWentBack,
    boottime_s,
    note_owner,
    recall_owner,
)
from tests.storage.place import publication
from tests.support.broker_process import wait_until
from tests.support.messages import make_messages
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.storage.place import Place

LEASE_S = 60.0
LOCK_SESSIONS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"


@pytest.fixture
def owner(postgres_place: Place) -> Store:
    store = postgres_place.open()
    store.take_ownership("the first broker", lease_s=LEASE_S)
    store.commit(publication(1, make_messages(3)))
    return store


def let_lease_run_out(place: Place) -> None:
    place.query("UPDATE leases SET until = clock_timestamp() - interval '1 millisecond'")


def lasts_s(place: Place) -> float:
    ((seconds,),) = place.query("SELECT extract(epoch FROM until - clock_timestamp())::float FROM leases")
    return float(seconds)


# The owner's own clock ------------------------------------------------------------------------------------------------


def test_an_owner_stops_before_its_lease_is_over_and_is_ended_by_force_before_that_too() -> None:
    lease = Lease(10.0)

    lease.note_renewed(100.0)

    assert lease.stops_at_s == 108.0
    assert lease.ends_at_s == 109.0
    assert lease.renewal_s == 2.5


def test_a_renewal_that_is_answered_late_takes_no_time_away() -> None:
    lease = Lease(10.0)
    lease.note_renewed(100.0)

    lease.note_renewed(97.0)

    assert lease.stops_at_s == 108.0


def test_a_lease_that_was_never_renewed_is_not_trusted() -> None:
    assert Lease(10.0).rest_s() < 0


def test_trust_is_counted_from_before_the_database_was_asked(owner: Store, postgres_place: Place) -> None:
    before_s = boottime_s()
    owner.renew_lease()

    assert owner.lease is not None
    assert before_s + 0.8 * LEASE_S <= owner.lease.stops_at_s <= boottime_s() + 0.8 * LEASE_S
    assert lasts_s(postgres_place) > owner.lease.ends_at_s - boottime_s()


# The row and its clock ------------------------------------------------------------------------------------------------


def test_a_leased_store_is_not_taken_although_its_lock_is_lost(owner: Store, postgres_place: Place) -> None:
    postgres_place.query(f"SELECT pg_terminate_backend(pid, 30000) FROM ({LOCK_SESSIONS}) AS session(pid)")

    with pytest.raises(StoreHeld, match=r"the first broker \(its lease lasts (5\d\.\d|60\.0) s more") as refusal:
        postgres_place.open().take_ownership("the second broker", lease_s=LEASE_S)

    assert refusal.value.lasts_s == pytest.approx(LEASE_S, abs=HARD_TIMEOUT_S)
    owner.commit(Batch(number=2))
    assert owner.recover() == 2


def test_a_second_broker_is_told_at_once_while_the_lock_is_held(owner: Store, postgres_place: Place) -> None:
    with pytest.raises(StoreHeld, match=r"the first broker \(database session") as refusal:
        postgres_place.open().take_ownership("the second broker")

    assert refusal.value.lasts_s is None


def test_a_store_whose_lease_is_over_is_taken_although_its_lock_is_held(owner: Store, postgres_place: Place) -> None:
    let_lease_run_out(postgres_place)
    second = postgres_place.open()

    assert second.look_at_owner().is_over
    assert second.take_ownership("the second broker", lease_s=LEASE_S).batch == 1

    second.commit(publication(2, make_messages(1), first_offset=3))
    with pytest.raises(StoreHeld, match=r"the second broker \(database session"):
        postgres_place.open().take_ownership("the third broker")
    with pytest.raises(StoreTaken, match="the second broker"):
        owner.renew_lease()


def test_the_late_batch_of_a_lost_owner_is_not_written(owner: Store, postgres_place: Place) -> None:
    let_lease_run_out(postgres_place)
    postgres_place.open().take_ownership("the second broker", lease_s=LEASE_S)

    with pytest.raises(OperatorError, match="the second broker"):
        written_at_last(owner, Batch(number=2))

    assert postgres_place.query("SELECT batch FROM journal_state") == [(1,)]
    assert not owner.look_at_owner().is_over


def written_at_last(store: Store, batch: Batch) -> None:
    """As the journal does: after a failure, such as a session that was ended, start over."""
    try:
        store.commit(batch)
    except StoreFailing:
        store.recover()
        store.commit(batch)


@pytest.mark.parametrize("has_lock", [True, False])
def test_one_that_stands_still_within_a_batch_does_not_keep_the_next_owner_out(
    owner: Store, postgres_place: Place, has_lock: bool
) -> None:
    if not has_lock:
        postgres_place.query(f"SELECT pg_terminate_backend(pid, 30000) FROM ({LOCK_SESSIONS}) AS session(pid)")
    with psycopg.connect(postgres_place.database.replace("+psycopg", "")) as stopped:
        stopped.execute("UPDATE journal_state SET batch = batch + 1")
        let_lease_run_out(postgres_place)

        second = postgres_place.open()
        second.take_ownership("the second broker", lease_s=LEASE_S)

        with pytest.raises(psycopg.OperationalError):
            stopped.execute("SELECT 1")
    second.commit(Batch(number=2))
    with pytest.raises(StoreHeld, match="the second broker"):
        postgres_place.open().take_ownership("the third broker")


def test_a_large_batch_does_not_delay_a_renewal(owner: Store, postgres_place: Place) -> None:
    with psycopg.connect(postgres_place.database.replace("+psycopg", "")) as writing:
        writing.execute("UPDATE journal_state SET batch = batch")

        # It would fail after lock_timeout.
        owner.renew_lease()


def test_a_clean_end_gives_the_lease_back(owner: Store, postgres_place: Place) -> None:
    owner.close()

    second = postgres_place.open()
    standing = second.look_at_owner()
    assert standing.is_over
    assert standing.how_it_ended == "it has given its lease back"
    assert second.take_ownership("the second broker").was_closed


def test_an_owner_that_may_have_lost_its_store_gives_nothing_back(owner: Store, postgres_place: Place) -> None:
    owner.is_lost = True
    owner.close()

    assert lasts_s(postgres_place) > 0


def test_who_holds_the_directory_of_the_dead_owner_need_not_wait(
    owner: Store, postgres_place: Place, tmp_path: Path
) -> None:
    note_owner(tmp_path, owner.token)

    successor = postgres_place.open()
    successor.take_ownership("the same again", lease_s=LEASE_S, predecessor=recall_owner(tmp_path))

    with pytest.raises(StoreTaken, match="the same again"):
        owner.renew_lease()


def test_a_directory_that_had_no_owner_knows_none(tmp_path: Path) -> None:
    assert recall_owner(tmp_path) == ""


def test_an_owner_without_a_lease_is_waited_for_as_long_as_it_holds_the_lock(postgres_place: Place) -> None:
    old = postgres_place.owned_store("an older release")
    second = postgres_place.open()

    assert second.look_at_owner().owner
    with pytest.raises(StoreHeld, match="an older release"):
        second.take_ownership("the second broker", lease_s=LEASE_S)

    old.close()
    wait_until(lambda: not second.look_at_owner().owner, "the server to miss its session")
    assert second.look_at_owner().description == "an older release"
    second.take_ownership("the second broker", lease_s=LEASE_S)


def test_of_several_that_wait_one_gets_it(owner: Store, postgres_place: Place) -> None:
    let_lease_run_out(postgres_place)
    waiting = [postgres_place.open() for _ in range(4)]
    together = threading.Barrier(len(waiting))
    refused: list[StoreHeld] = []

    def take(store: Store) -> None:
        together.wait()
        try:
            store.take_ownership("one of them", lease_s=LEASE_S)
        except StoreHeld as held:
            refused.append(held)

    threads = [threading.Thread(target=take, args=(each,)) for each in waiting]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == len(waiting) - 1
    assert all("one of them" in str(each) for each in refused)


def test_a_lost_lock_does_not_stop_a_leased_owner(owner: Store, postgres_place: Place) -> None:
    postgres_place.query(f"SELECT pg_terminate_backend(pid, 30000) FROM ({LOCK_SESSIONS}) AS session(pid)")
    with psycopg.connect(postgres_place.database.replace("+psycopg", ""), autocommit=True) as ghost:
        ghost.execute("SELECT pg_advisory_lock(%s, hashtext(current_schema()))", (0x53544D50,))

        assert owner.recover() == 1


# What a database forgets ----------------------------------------------------------------------------------------------


def test_a_store_that_has_forgotten_a_batch_is_found_out_by_the_next_renewal(
    owner: Store, postgres_place: Place
) -> None:
    postgres_place.query("UPDATE journal_state SET batch = 0")

    with pytest.raises(StoreWentBack, match="its last batch is 0, and this broker has written 1"):
        owner.renew_lease()


def test_a_batch_that_is_written_during_a_renewal_is_not_missed(owner: Store, postgres_place: Place) -> None:
    batches = iter([Batch(number=2)])

    @event.listens_for(owner._writers, "after_cursor_execute")
    def write_behind_the_look(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "SELECT journal_state" in statement:
            for batch in batches:
                owner.commit(batch)

    owner.renew_lease()

    assert postgres_place.query("SELECT batch FROM journal_state") == [(2,)]


def test_a_store_that_has_forgotten_its_owner_too_is_found_out(owner: Store, postgres_place: Place) -> None:
    postgres_place.query("UPDATE journal_state SET owner = 'the one before', start_number = 0, batch = 0")

    with pytest.raises(StoreWentBack):
        owner.renew_lease()


def test_a_store_that_has_forgotten_a_batch_takes_no_more(store: Store, place: Place) -> None:
    store.commit(publication(1, make_messages(3)))
    place.query("UPDATE journal_state SET batch = 0")

    with pytest.raises(StoreWentBack, match="A replica that lacked commits has taken over, or a backup"):
        store.commit(Batch(number=2))
    with pytest.raises(StoreWentBack):
        store.recover()


def test_a_lease_whose_row_is_gone_is_not_ours(owner: Store, postgres_place: Place) -> None:
    postgres_place.query("DELETE FROM leases")

    with pytest.raises(StoreTaken, match="is not ours any more"):
        owner.renew_lease()
