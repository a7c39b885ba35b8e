"""A row that cannot be written is found out, and does the store no harm; on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker.ids import Offset
from stompbroker.storage import Batch, MessageRun, StoreRefused
from tests.storage.place import cursor, publication, subscription, topic
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from stompbroker.storage import Store
    from tests.storage.place import Place

POISON = {
    "a message at an offset that is taken": Batch(number=2, messages=[MessageRun(1, Offset(3), make_messages(1))]),
    "one offset twice in a batch": Batch(
        number=2, messages=[MessageRun(1, Offset(5), make_messages(1)), MessageRun(1, Offset(5), make_messages(1))]
    ),
    "a topic's name under another id": Batch(number=2, topics=[topic(2, name="topic.1")]),
    "a subscription's identity under another id": Batch(number=2, subscriptions=[subscription(2, name="name 1")]),
    "text that no encoding has": Batch(number=2, topics=[topic(2, name="\udc80")]),
    "a publisher that no encoding has": Batch(
        number=2, messages=[MessageRun(1, Offset(9), [make_message(publisher="\udc80")])]
    ),
    "an integer of more than 64 bits": Batch(number=2, cursors=[cursor(1, 1, ack_floor=2**63)]),
    "an offset of more than 64 bits": Batch(number=2, messages=[MessageRun(1, Offset(2**63), make_messages(1))]),
    "a settled range of more than 64 bits": Batch(number=2, cursors=[cursor(1, 1, settled=((1, 2**63),))]),
}


@pytest.fixture
def filled(store: Store) -> Store:
    batch = publication(1, make_messages(5))
    batch.subscriptions.append(subscription(1))
    store.commit(batch)
    return store


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_a_poisoned_batch_is_refused_as_a_whole(filled: Store, place: Place, poison: Batch) -> None:
    poisoned = poison.copy()
    poisoned.topics.insert(0, topic(77, name="innocent"))

    with pytest.raises(StoreRefused):
        filled.commit(poisoned)

    assert place.query("SELECT count(*) FROM topics WHERE name = 'innocent'") == [(0,)]
    assert place.query("SELECT batch FROM journal_state") == [(1,)]


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_poison_is_found_without_writing_anything(filled: Store, place: Place, poison: Batch) -> None:
    assert not filled.would_accept(poison)

    assert place.count("topics") == 1
    assert place.query("SELECT batch FROM journal_state") == [(1,)]


def test_what_would_be_accepted_is_not_written(filled: Store, place: Place) -> None:
    assert filled.would_accept(publication(2, make_messages(5), first_offset=5))

    assert place.count("messages") == 5
    assert place.query("SELECT batch FROM journal_state") == [(1,)]


def test_the_store_goes_on_after_a_refusal_without_being_recovered(filled: Store) -> None:
    with pytest.raises(StoreRefused):
        filled.commit(POISON["a message at an offset that is taken"])
    assert not filled.would_accept(POISON["a message at an offset that is taken"])

    filled.commit(publication(2, make_messages(5), first_offset=5))

    assert filled.read_page(1, 0, 10).message_count == 10


def test_a_refusal_says_nothing_of_what_clients_sent(filled: Store) -> None:
    batch = Batch(number=2, messages=[MessageRun(1, Offset(3), [make_message(b"a secret of a client")])])

    with pytest.raises(StoreRefused) as refusal:
        filled.commit(batch)

    assert "secret" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_text_with_a_nul_is_refused_by_postgresql(postgres_place: Place) -> None:
    store = postgres_place.owned_store()

    assert not store.would_accept(Batch(number=1, topics=[topic(1, name="a\0b")]))
    assert not store.would_accept(publication(1, [make_message(publisher="a\0b")]))


def test_a_name_too_long_for_postgresqls_index_is_refused_and_not_a_failing_store(postgres_place: Place) -> None:
    store = postgres_place.owned_store()
    # Without repetition, since what can be compressed is shorter in the index.
    name = "".join(chr(0x4E00 + number) for number in range(4000))

    assert not store.would_accept(Batch(number=1, topics=[topic(1, name=name)]))
