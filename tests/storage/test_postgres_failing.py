"""What a store does when its PostgreSQL server, or the way there, fails; with a real server."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import make_url

from stompbroker.errors import OperatorError
from stompbroker.storage import Batch, StoreFailing, StoreTaken, migrate
from stompbroker.storage.postgres import PostgresStore
from tests.storage.cutting_proxy import AtCommit, CuttingProxy, cutting_proxy
from tests.storage.place import Place, publication
from tests.support.messages import make_messages
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection

    from stompbroker.storage import Store
    from tests.support.postgres import PostgresServer

#: Sessions that hold an advisory lock.
LOCK_SESSIONS = "(SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
#: All of ours but the one that asks.
OTHER_SESSIONS = (
    "(SELECT pid FROM pg_stat_activity WHERE application_name = 'stompbroker' AND datname = current_database())"
)


def terminate(place: Place, sessions: str) -> None:
    """As an administrator does; comes back when they are gone."""
    ended = place.query(f"SELECT pg_terminate_backend(pid, 30000) FROM {sessions} AS session(pid)")
    assert ended
    assert all(is_gone for (is_gone,) in ended)


@pytest.fixture
def store(postgres_place: Place) -> Store:
    store = postgres_place.owned_store()
    store.commit(publication(1, make_messages(3)))
    return store


# The lock ------------------------------------------------------------------------------------------------------------


def test_a_second_broker_is_refused_and_told_who_holds_the_store(store: Store, postgres_place: Place) -> None:
    second = postgres_place.open()

    with pytest.raises(OperatorError, match="held by another broker: the first broker") as refusal:
        second.take_ownership("the second broker")

    (session,) = postgres_place.query(
        "SELECT to_char(backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM pg_stat_activity "
        f"WHERE pid IN {LOCK_SESSIONS}"
    )
    assert f"from 127.0.0.1 since {session[0]} UTC" in str(refusal.value)
    store.commit(Batch(number=2))


def test_the_store_can_be_taken_when_the_first_broker_has_closed_it(store: Store, postgres_place: Place) -> None:
    store.close()

    assert postgres_place.open().take_ownership("the second broker").start_number == 2


def test_each_schema_is_a_store_of_its_own(store: Store, postgres_place: Place) -> None:
    postgres_place.query("CREATE SCHEMA other")
    elsewhere = f"{postgres_place.database}?options=-csearch_path%3Dother"
    try:
        migrate(elsewhere, postgres_place.directory)
        with ExitStack() as opened:
            other = Place(elsewhere, postgres_place.directory, opened).owned_store()
            other.commit(publication(1, make_messages(7)))

        assert postgres_place.count("messages") == 3
        assert postgres_place.count("other.messages") == 7
    finally:
        postgres_place.query("DROP SCHEMA other CASCADE")


def test_whoever_has_lost_lock_and_store_writes_nothing_more(store: Store, postgres_place: Place) -> None:
    terminate(postgres_place, LOCK_SESSIONS)
    second = postgres_place.open()
    second.take_ownership("the second broker")

    with pytest.raises(StoreTaken, match="the second broker"):
        store.commit(publication(2, make_messages(5), first_offset=3))
    with pytest.raises(StoreTaken, match="the second broker"):
        store.recover()

    assert postgres_place.count("messages") == 3
    second.commit(publication(2, make_messages(5), first_offset=3))


def test_a_lost_lock_is_taken_again_when_the_store_recovers(store: Store, postgres_place: Place) -> None:
    terminate(postgres_place, LOCK_SESSIONS)

    assert store.recover() == 1

    with pytest.raises(OperatorError, match="held by another broker"):
        postgres_place.open().take_ownership("the second broker")


def test_a_lock_that_our_own_lost_session_still_holds_is_waited_for(store: Store, postgres_place: Place) -> None:
    terminate(postgres_place, LOCK_SESSIONS)
    ghost = PostgresStore(make_url(postgres_place.database))
    assert ghost._lock_again() is None

    with pytest.raises(StoreFailing, match="is held by database session"):
        store.recover()

    ghost.close()
    assert recovered_when_released(store) == 1
    store.commit(Batch(number=2))


def recovered_when_released(store: Store) -> int:
    """The server takes a moment to end a session that has said goodbye."""
    for _ in range(1000):
        try:
            return store.recover()
        except StoreFailing:
            continue
    raise AssertionError("the lock was never let go")


# A connection that is lost -------------------------------------------------------------------------------------------


def test_a_lost_connection_is_a_failing_store_until_it_recovers(store: Store, postgres_place: Place) -> None:
    terminate(postgres_place, OTHER_SESSIONS)
    batch = publication(2, make_messages(5), first_offset=3)

    with pytest.raises(StoreFailing, match="fails: "):
        store.commit(batch)

    assert store.recover() == 1
    store.commit(batch)
    assert postgres_place.count("messages") == 8


def test_a_page_is_read_by_a_new_connection_when_the_old_one_is_lost(store: Store, postgres_place: Place) -> None:
    assert store.read_page(1, 0, 10).message_count == 3
    terminate(postgres_place, OTHER_SESSIONS)

    assert store.read_page(1, 0, 10).message_count == 3


def test_somebody_who_locks_our_rows_is_a_failing_store(postgres_place: Place) -> None:
    impatient = Place(
        f"{postgres_place.database}?options=-clock_timeout%3D50ms", postgres_place.directory, opened := ExitStack()
    )
    with opened:
        store = impatient.owned_store()
        with psycopg.connect(postgres_place.database.replace("+psycopg", "")) as intruder:
            intruder.execute("SELECT * FROM journal_state FOR UPDATE")

            with pytest.raises(StoreFailing, match="lock timeout"):
                store.commit(Batch(number=1))
            # Not before he has ended is it known what the row will say.
            with pytest.raises(StoreFailing, match="lock timeout"):
                store.recover()

        assert store.recover() == 0
        store.commit(Batch(number=1))


# An outcome that is not known ----------------------------------------------------------------------------------------


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    with cutting_proxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def distant_store(proxy: CuttingProxy, postgres_place: Place) -> Iterator[Store]:
    """A store behind a proxy."""
    url = make_url(postgres_place.database).set(port=proxy.port).render_as_string(hide_password=False)
    with ExitStack() as opened:
        store = Place(url, postgres_place.directory, opened).owned_store()
        store.commit(publication(1, make_messages(3)))
        yield store


@pytest.mark.parametrize("count", [5, 50], ids=["one statement", "many"])
def test_a_commit_whose_answer_is_lost_is_found_to_have_happened(
    distant_store: Store, proxy: CuttingProxy, postgres_place: Place, count: int
) -> None:
    proxy.at_commit = AtCommit.CUT_AFTER

    with pytest.raises(StoreFailing):
        distant_store.commit(publication(2, make_messages(count), first_offset=3))

    assert distant_store.recover() == 2
    distant_store.commit(publication(3, make_messages(count), first_offset=3 + count))
    assert postgres_place.count("messages") == 3 + 2 * count


@pytest.mark.parametrize("count", [5, 50], ids=["one statement", "many"])
def test_a_commit_that_never_arrived_is_found_not_to_have_happened(
    distant_store: Store, proxy: CuttingProxy, postgres_place: Place, count: int
) -> None:
    proxy.at_commit = AtCommit.CUT_BEFORE
    batch = publication(2, make_messages(count), first_offset=3)

    with pytest.raises(StoreFailing):
        distant_store.commit(batch)

    assert distant_store.recover() == 1
    distant_store.commit(batch)
    assert postgres_place.count("messages") == 3 + count


@pytest.mark.parametrize(("order", "expected"), [(AtCommit.CUT_BEFORE, 1), (AtCommit.CUT_AFTER, 2)])
def test_a_server_killed_at_a_commit_tells_the_truth_when_it_is_back(
    own_postgres: PostgresServer, tmp_path: Path, order: AtCommit, expected: int
) -> None:
    url = own_postgres.create_database()
    migrate(url, tmp_path)
    with cutting_proxy(own_postgres.port) as proxy, ExitStack() as opened:
        through_proxy = make_url(url).set(port=proxy.port).render_as_string(hide_password=False)
        store = Place(through_proxy, tmp_path, opened).owned_store()
        store.commit(publication(1, make_messages(3)))
        is_killed = threading.Event()

        def kill() -> None:
            own_postgres.kill()
            is_killed.set()

        proxy.when_cut = kill
        proxy.at_commit = order

        with pytest.raises(StoreFailing):
            store.commit(publication(2, make_messages(5), first_offset=3))
        assert is_killed.wait(HARD_TIMEOUT_S)
        with pytest.raises(StoreFailing):
            store.recover()
        with pytest.raises(StoreFailing):
            store.read_page(1, 0, 10)
        own_postgres.restart()

        assert store.recover() == expected
        assert store.read_page(1, 0, 10).message_count == (3 if expected == 1 else 8)
        store.commit(Batch(number=expected + 1))


# Settings ------------------------------------------------------------------------------------------------------------


def test_the_connection_that_commits_waits_for_the_disk_and_for_nothing_else_for_ever(
    postgres_place: Place,
) -> None:
    # A server whose administrator prefers speed.
    name = make_url(postgres_place.database).database
    postgres_place.query(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    names = ["synchronous_commit", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]

    try:
        store = postgres_place.owned_store()
        store.commit(Batch(number=1))
        assert store._writer is not None
        cursor = store._writer.connection.cursor()
        heard = {name: cursor.execute(f"SHOW {name}").fetchone()[0] for name in names}
    finally:
        postgres_place.query(f'ALTER DATABASE "{name}" RESET synchronous_commit')

    assert heard == {
        "synchronous_commit": "on",
        "statement_timeout": "30s",
        "lock_timeout": "5s",
        "idle_in_transaction_session_timeout": "30s",
    }


def test_pages_of_a_table_that_was_never_analysed_are_read_by_the_index(store: Store, postgres_place: Place) -> None:
    plans: list[str] = []

    def explain(connection: Connection) -> None:
        text = store._page_statement  # type: ignore[attr-defined]
        rows = connection.exec_driver_sql(f"EXPLAIN {text}", (1, 0, 10**9, 1000, 10**6))
        plans.extend(row[0].strip() for row in rows)

    with store.reading() as connection:
        explain(connection)

    assert any(line.startswith("->  Index Scan using pk_messages") for line in plans), plans
    assert not any("Sort" in line for line in plans), plans
