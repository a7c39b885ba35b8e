"""A few messages of one topic are one statement of PostgreSQL, which does all that the usual transaction does."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url

from stompbroker.ids import Offset
from stompbroker.storage import Batch, MessageRun, StoreFailing, StoreRefused, StoreTaken
from stompbroker.storage.one_statement import MOST, MOST_BYTES, fits
from tests.storage.place import Place, bodies, cursor, ledger, publication, topic
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbroker.storage import Store
    from tests.support.postgres import PostgresServer

_SAID = re.compile(r"LOG:  (?:execute [^:]+|statement): (\w+)")


@pytest.fixture
def store(postgres_place: Place) -> Store:
    return postgres_place.owned_store()


@pytest.fixture
def talkative_store(postgres_place: Place) -> Iterator[Store]:
    """The server's log has every statement of it."""
    url = make_url(postgres_place.database).update_query_dict({"options": "-c log_statement=all"})
    with ExitStack() as opened:
        talkative = Place(url.render_as_string(hide_password=False), postgres_place.directory, opened)
        yield talkative.owned_store()


def said_for(batch: Batch, store: Store, server: PostgresServer) -> list[str]:
    """The first words of all statements."""
    heard = len(server.log())
    store.commit(batch)
    return _SAID.findall(server.log()[heard:])


@pytest.mark.parametrize("count", [1, 2, MOST])
def test_a_few_messages_of_one_topic_are_one_statement(
    talkative_store: Store, postgres_server: PostgresServer, count: int
) -> None:
    for number in range(1, 8):  # from the sixth on it is prepared
        batch = publication(number, make_messages(count), first_offset=number * count)

        assert said_for(batch, talkative_store, postgres_server) == ["WITH"]


def test_more_messages_are_a_transaction(talkative_store: Store, postgres_server: PostgresServer) -> None:
    batch = publication(1, make_messages(MOST + 1))

    said = said_for(batch, talkative_store, postgres_server)

    assert said == ["BEGIN", "UPDATE", "INSERT", "COPY", "COMMIT"]


def test_large_messages_are_a_transaction(talkative_store: Store, postgres_server: PostgresServer) -> None:
    """Eight of 128 MiB are no statement that the server takes: the store would fail for ever."""
    batch = publication(1, make_messages(2, size_bytes=MOST_BYTES // 2))

    said = said_for(batch, talkative_store, postgres_server)

    assert said == ["BEGIN", "UPDATE", "INSERT", "COPY", "COMMIT"]


def test_statements_are_prepared_once_whatever_their_numbers_are(
    talkative_store: Store, postgres_server: PostgresServer
) -> None:
    """With the driver's own types hardly two rows would have the same ones, and each would be planned again."""
    heard = len(postgres_server.log())

    for number in range(1, 31):
        talkative_store.commit(publication(number, make_messages(1), first_offset=40**number % 2**40 + number))

    unprepared = postgres_server.log()[heard:].count("execute <unnamed>: WITH")
    assert unprepared == 5


@pytest.mark.parametrize(
    "batch",
    [
        Batch(number=1),
        Batch(number=1, topics=[topic(1)]),
        Batch(number=1, messages=[MessageRun(1, Offset(0), make_messages(1))]),
        Batch(number=1, topics=[topic(1), topic(2)], messages=[MessageRun(1, Offset(0), make_messages(1))]),
        replace(publication(1, make_messages(1)), cursors=[cursor(1, 1)]),
        replace(publication(1, make_messages(1)), ledger=[ledger(1)]),
        publication(1, make_messages(MOST + 1)),
        publication(1, make_messages(2, size_bytes=MOST_BYTES // 2)),
    ],
)
def test_anything_else_does_not_fit(batch: Batch) -> None:
    assert not fits(batch)


def test_several_runs_of_one_topic_fit(store: Store) -> None:
    runs = [MessageRun(1, Offset(0), [make_message(b"a")]), MessageRun(1, Offset(4), [make_message(b"b")])]
    batch = Batch(number=1, topics=[topic(1, next_offset=5)], messages=runs)

    assert fits(batch)
    store.commit(batch)

    assert bodies(store.read_page(1, 0, 10)) == [(0, b"a"), (4, b"b")]


def test_a_batch_that_is_not_the_next_one_writes_nothing(store: Store, postgres_place: Place) -> None:
    store.commit(publication(1, make_messages(1)))

    with pytest.raises(StoreFailing, match="batch 1 is the last one"):
        store.commit(publication(3, make_messages(1), first_offset=1))

    assert postgres_place.count("messages") == 1
    assert store.recover() == 1


def test_who_has_lost_the_store_writes_nothing(store: Store, postgres_place: Place) -> None:
    postgres_place.query("UPDATE journal_state SET owner = 'another', start_number = start_number + 1")

    with pytest.raises(StoreTaken):
        store.commit(publication(1, make_messages(1)))

    assert postgres_place.count("messages") == postgres_place.count("topics") == 0


def test_a_refused_message_leaves_nothing_and_the_next_batch_is_taken(store: Store, postgres_place: Place) -> None:
    store.commit(publication(1, make_messages(1)))

    with pytest.raises(StoreRefused):
        store.commit(publication(2, make_messages(1), first_offset=0))  # an offset that is taken
    store.commit(publication(2, make_messages(1), first_offset=1))
    store.commit(publication(3, make_messages(50), first_offset=2))

    assert postgres_place.count("messages") == 52
