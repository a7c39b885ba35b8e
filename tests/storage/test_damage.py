"""What was stored and is altered or lost is noticed, on either engine, and never handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker.errors import OperatorError
from stompbroker.ids import Offset
from stompbroker.storage import Batch, Deletion, Gap, LastValueRow, MessageRun, StoreDamaged, recognise
from tests.storage.place import bodies, cursor, expiring, export, ledger, redelivery, subscription, topic
from tests.support.messages import make_message

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.storage import Store
    from tests.storage.place import Place


@pytest.fixture
def store(place: Place) -> Store:
    """A topic with the offsets 2 to 9: there was never a message at 5, and nothing is known below 2."""
    store = place.owned_store()
    store.commit(
        Batch(
            number=1,
            topics=[topic(1, next_offset=10, whole_from=2)],
            messages=[
                MessageRun(1, Offset(2), [make_message(b"%d" % number) for number in (2, 3, 4)]),
                MessageRun(1, Offset(6), [make_message(b"%d" % number) for number in (6, 7, 8, 9)]),
            ],
            gaps=[Gap(1, 6, 5)],
        )
    )
    return store


def test_what_was_never_stored_and_what_is_below_the_mark_is_no_damage(store: Store) -> None:
    page = store.read_page(1, 0, 10)

    assert [offset for offset, _ in bodies(page)] == [2, 3, 4, 6, 7, 8, 9]
    assert page.end_offset == 10
    assert store.is_sound


def test_what_is_behind_the_end_of_a_topic_is_no_damage(store: Store) -> None:
    assert store.read_page(1, 99, 100).end_offset == 100


@pytest.mark.parametrize(
    "column", ["published_at_ns", "body_bytes", "expires_at_ns", "only_for", "group_key", "outcome_to"]
)
def test_a_page_ends_before_an_altered_message_which_is_damage_itself(store: Store, place: Place, column: str) -> None:
    place.query(f'UPDATE messages SET {column} = 3 WHERE "offset" = 7')

    assert [offset for offset, _ in bodies(store.read_page(1, 0, 10))] == [2, 3, 4]
    assert [offset for offset, _ in bodies(store.read_page(1, 5, 10))] == [6]
    with pytest.raises(StoreDamaged, match="the message at offset 7 is not as it was written"):
        store.read_page(1, 7, 10)
    assert [offset for offset, _ in bodies(store.read_page(1, 8, 10))] == [8, 9]
    assert not store.is_sound


@pytest.mark.parametrize("change", ["publisher = 'p'", "tail = tail || tail", 'topic_id = 2, "offset" = 3'])
def test_no_altered_value_goes_unnoticed(store: Store, place: Place, change: str) -> None:
    place.query(f'UPDATE messages SET {change} WHERE "offset" = 3')

    with pytest.raises(StoreDamaged):
        store.read_page(1, 3, 10)


@pytest.mark.parametrize("lost", [2, 4, 6, 9])
def test_a_message_that_is_gone_without_a_reason_is_damage(store: Store, place: Place, lost: int) -> None:
    place.query(f'DELETE FROM messages WHERE "offset" = {lost}')

    with pytest.raises(StoreDamaged, match=f"the message at offset {lost} was stored and is not there any more"):
        store.read_page(1, lost, 10)


def test_all_messages_of_a_topic_can_be_lost_and_are_missed(store: Store, place: Place) -> None:
    place.query("DELETE FROM messages")

    with pytest.raises(StoreDamaged, match="offset 2 "):
        store.read_page(1, 2, 10)


def test_a_lost_or_altered_gap_is_damage(store: Store, place: Place) -> None:
    place.query("UPDATE gaps SET start = 4")

    assert [offset for offset, _ in bodies(store.read_page(1, 2, 5))] == [2, 3, 4]
    with pytest.raises(StoreDamaged, match="gaps"):
        store.read_page(1, 5, 10)


def test_what_we_delete_is_explained_and_gaps_below_the_mark_go(store: Store, place: Place) -> None:
    store.commit(Batch(number=2, deletions=[Deletion(1, 8, 9)], gaps=[Gap(1, 9, 8)]))
    assert [offset for offset, _ in bodies(store.read_page(1, 2, 10))] == [2, 3, 4, 6, 7, 9]

    store.commit(Batch(number=3, topics=[topic(1, next_offset=10, whole_from=7)], deletions=[Deletion(1, 2, 7)]))

    assert [offset for offset, _ in bodies(store.read_page(1, 2, 10))] == [7, 9]
    assert place.query("SELECT start, stop FROM gaps") == [(8, 9)]


def test_a_topic_from_before_gaps_were_written_down_is_not_missed_anything(store: Store, place: Place) -> None:
    place.query("UPDATE topics SET whole_from = NULL")
    place.query('DELETE FROM messages WHERE "offset" = 3')

    assert [offset for offset, _ in bodies(store.read_page(1, 2, 10))] == [2, 4, 6, 7, 8, 9]


def test_an_altered_time_does_not_make_a_message_expire(store: Store, place: Place) -> None:
    later = [expiring(b"later", lifetime_ns=1000), expiring(b"later", lifetime_ns=10)]
    store.commit(Batch(number=2, messages=[MessageRun(1, Offset(10), later)]))
    place.query('UPDATE messages SET expires_at_ns = 5 WHERE "offset" = 10')

    altered, expired = store.surveys.expired(100, None, 10)

    assert (altered.offset, altered.message) == (10, None)
    assert expired.message is not None


def test_an_expired_message_that_was_cut_short_is_damage_and_nothing_worse(store: Store, place: Place) -> None:
    store.commit(Batch(number=2, messages=[MessageRun(1, Offset(10), [expiring(b"body", lifetime_ns=10)])]))
    place.query('UPDATE messages SET tail = substr(tail, 1, 2) WHERE "offset" = 10')

    (altered,) = store.surveys.expired(100, None, 10)

    assert (altered.offset, altered.message) == (10, None)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("topics", "next_offset = 11"),
        ("subscriptions", "pattern = 'b'"),
        ("cursors", "ack_floor = 2"),
        ("redeliveries", "attempts = 9"),
        ("ledger_exports", "last_batch = 9"),
    ],
)
def test_a_broker_does_not_start_on_altered_rows(store: Store, place: Place, table: str, change: str) -> None:
    store.commit(
        Batch(
            number=2,
            subscriptions=[subscription(1)],
            cursors=[cursor(1, 1)],
            redeliveries=[redelivery(1, 1, 3)],
            exports=[export(1)],
        )
    )
    assert store.load()

    place.query(f"UPDATE {table} SET {change}")

    with pytest.raises(OperatorError, match=f"damaged: a row of the table {table} .* Restore it from one backup"):
        store.load()


@pytest.mark.parametrize(
    "change",
    [
        "name = 'b'",
        "published_at_ns = 9",
        "publisher = 'b'",
        "body_bytes = 0",
        "expires_at_ns = 9",
        "tail = tail || tail",
    ],
)
def test_a_broker_does_not_start_on_an_altered_last_value(store: Store, place: Place, change: str) -> None:
    row = LastValueRow("prices.eur", 5, "shop", 1, None, b"message-id:1\n\n1\0")
    store.commit(Batch(number=2, last_values=[row]))
    assert store.load().last_values == [row]

    place.query(f"UPDATE last_values SET {change}")

    with pytest.raises(OperatorError, match=r"damaged: (the last value of the topic|what was stored) .* Restore"):
        store.load()


def test_a_broker_does_not_start_with_an_altered_identity(store: Store, place: Place) -> None:
    store.close()
    place.query("UPDATE journal_state SET start_number = 1000")

    with pytest.raises(OperatorError, match="which is damaged: the row that says whose store it is"):
        place.owned_store()


def test_an_altered_batch_of_the_ledger_is_found_by_the_check(store: Store, place: Place) -> None:
    store.commit(Batch(number=2, ledger=[ledger(1), ledger(2)]))
    assert store.check_ledger(0) == 2
    assert store.check_ledger(2) is None

    place.query("UPDATE ledger_batches SET records = 4 WHERE id = 2")

    with pytest.raises(StoreDamaged, match="batch 2 of the ledger cannot be read"):
        store.check_ledger(0)


def test_the_next_owner_knows_whether_the_last_one_closed_the_store(place: Place) -> None:
    first = place.open()
    assert first.take_ownership("first").was_closed, "there was none before"
    first.close()
    second = place.open()
    assert second.take_ownership("second").was_closed
    second.close(is_sound=False)

    assert not place.open().take_ownership("third").was_closed


# The file ------------------------------------------------------------------------------------------------------------


def overwrite(file: Path, *, page: int, content: bytes = bytes(4096)) -> None:
    with file.open("r+b") as opened:
        opened.seek((page - 1) * 4096)
        opened.write(content)


def test_damage_that_the_database_itself_tells_is_remembered(sqlite_place: Place) -> None:
    store = sqlite_place.owned_store()
    sqlite_place.query("DROP TABLE ledger_batches")

    with pytest.raises(StoreDamaged, match="no such table"):
        store.check_ledger(0)

    assert not store.is_sound


def test_a_table_whose_pages_are_zeroed_is_damaged_and_a_write_to_it_says_so(sqlite_place: Place) -> None:
    store = sqlite_place.owned_store()
    store.commit(
        Batch(
            number=1,
            topics=[topic(1, next_offset=1000, whole_from=0)],
            messages=[MessageRun(1, Offset(0), [make_message(b"x" * 100, number=number) for number in range(1000)])],
        )
    )
    store.close()
    file = sqlite_place.directory / "stompbroker.db"
    ((root,),) = sqlite_place.query("SELECT rootpage FROM sqlite_master WHERE name = 'messages'")
    overwrite(file, page=root)
    store = sqlite_place.owned_store()

    with pytest.raises(StoreDamaged, match="malformed"):
        store.read_page(1, 0, 1000)
    with pytest.raises(StoreDamaged, match=r"malformed|corrupt"):
        store.check_table("messages")
    with pytest.raises(StoreDamaged):
        store.commit(Batch(number=2, deletions=[Deletion(1, 0, 1000)]))


def test_a_file_that_is_no_database_is_refused_with_what_to_do(sqlite_place: Place) -> None:
    (sqlite_place.directory / "stompbroker.db").write_bytes(b"no database" * 1000)

    with pytest.raises(OperatorError, match=r"which is damaged: file is not a database. Restore it from one backup"):
        sqlite_place.open()


@pytest.mark.parametrize("left_bytes", [0, 1, 99, 100, 511, 512, 1000, 4095])
def test_a_file_that_is_cut_within_its_first_page_is_no_first_start(sqlite_place: Place, left_bytes: int) -> None:
    """SQLite takes some of these for an empty database."""
    store = sqlite_place.open()
    recognise(sqlite_place.directory, store.take_ownership("the first broker").store_id)
    store.close()
    file = sqlite_place.directory / "stompbroker.db"
    file.write_bytes(file.read_bytes()[:left_bytes])

    with pytest.raises(OperatorError, match="Restore it from one backup"):
        sqlite_place.open()
