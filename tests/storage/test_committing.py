"""What is committed is there for whoever opens the store next; on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker.ids import Offset
from stompbroker.storage import Batch, Deletion, LastValueRow, MessageRun, RedeliveryKey, StoreRefused
from tests.storage.place import bodies, cursor, expiring, publication, redelivery, subscription, topic
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from stompbroker.storage import Store
    from tests.storage.place import Place

#: The largest number that fits: times of the year 2262, and offsets nobody will reach.
LARGEST = 2**63 - 1


def test_an_empty_batch_moves_the_number_on(store: Store, place: Place) -> None:
    store.commit(Batch(number=1))
    store.commit(Batch(number=2))

    assert place.query("SELECT batch FROM journal_state") == [(2,)]


def test_every_kind_of_row_is_found_again_by_another_process(store: Store, place: Place) -> None:
    batch = Batch(
        number=1,
        topics=[topic(1, name="a.b", next_offset=2), topic(2, name="ö/☃", next_offset=LARGEST)],
        subscriptions=[
            subscription(1),
            subscription(2, is_no_local=True),
            subscription(3, is_ordered=True, delivery='{"attempts": 3, "why": "☃"}'),
        ],
        messages=[MessageRun(1, Offset(0), make_messages(2))],
        cursors=[
            cursor(1, 1, ack_floor=0, settled=((1, 2),), sent_up_to=2),
            cursor(2, 2, ack_floor=7, settled=((9, 11), (2**40, LARGEST)), sent_up_to=LARGEST, generation=LARGEST),
        ],
        redeliveries=[redelivery(1, 1, 0), redelivery(2, 2, LARGEST, is_final=True, nacks=3)],
    )
    store.commit(batch)
    store.close()

    kept = place.open().load()

    assert kept.topics == [(batch.topics[0], 0), (batch.topics[1], None)]
    assert kept.subscriptions == batch.subscriptions
    assert kept.cursors == batch.cursors
    assert kept.redeliveries == batch.redeliveries
    booleans = [value for row in kept.subscriptions for value in (row.is_no_local, row.is_ordered)]
    booleans += [row.is_final for row in kept.redeliveries]
    assert set(map(type, booleans)) == {bool}


def test_a_message_comes_back_as_it_was(store: Store) -> None:
    body = bytes(range(256)) * 3
    message = make_message(body, number=77, publisher="клиент")
    message.published_at_ns = LARGEST
    store.commit(publication(1, [message], first_offset=LARGEST - 1))

    ((offset, found),) = store.read_page(1, 0, LARGEST)

    assert offset == LARGEST - 1
    assert (found.tail, found.body, found.message_id) == (message.tail, body, b"test-1-77")
    assert (found.origin.publisher, found.origin.is_plain, found.published_at_ns) == ("клиент", True, LARGEST)


@pytest.mark.parametrize("size_bytes", [3, 20_000])
def test_when_a_message_expires_and_whom_it_is_for_comes_back(store: Store, size_bytes: int) -> None:
    messages = [
        expiring(b"x" * size_bytes, published_at_ns=10, lifetime_ns=lifetime_ns, only_for=only_for)
        for lifetime_ns, only_for in [(None, None), (5, None), (None, 7), (5, 7), (LARGEST - 10, LARGEST), (0, None)]
    ]
    store.commit(publication(1, messages))

    found = [message for _, message in store.read_page(1, 0, 10)]

    assert [message.expires_at_ns for message in found] == [None, 15, None, 15, LARGEST, 10]
    assert [message.origin.only_for for message in found] == [None, None, 7, 7, LARGEST, None]
    assert [message.origin.is_for_all_and_ever for message in found] == [True] + 5 * [False]
    assert all(message.origin.is_persistent for message in found)
    assert [message.tail for message in found] == [message.tail for message in messages]


@pytest.mark.parametrize("size_bytes", [3, 20_000])
def test_keys_and_who_wants_to_be_told_come_back(store: Store, size_bytes: int) -> None:
    asked = [(None, None), ("a", None), ("a", None), (None, "/queue/told"), ("ключ", "told"), (None, None)]
    messages = [expiring(b"x" * size_bytes, group_key=key, outcome_to=outcome_to) for key, outcome_to in asked]
    store.commit(publication(1, messages))

    found = [message.origin for _, message in store.read_page(1, 0, 10)]

    assert [(origin.group_key, origin.outcome_to) for origin in found] == asked
    assert [origin.is_ordinary for origin in found] == [True, False, False, False, False, True]
    assert all(origin.is_for_all_and_ever for origin in found)


@pytest.mark.parametrize("count", [1, 2, 3, 511, 512, 513, 1535])
def test_batches_of_any_size_are_written_whole_and_in_order(store: Store, count: int) -> None:
    messages = [make_message(b"%d" % number, number=number) for number in range(count)]

    store.commit(publication(1, messages, first_offset=5))

    found = bodies(store.read_page(1, 0, 10_000, max_rows=10_000))
    assert found == [(5 + number, b"%d" % number) for number in range(count)]


def test_runs_of_several_topics_go_into_one_batch(store: Store) -> None:
    batch = Batch(
        number=1,
        topics=[topic(1, next_offset=10), topic(2, next_offset=10)],
        messages=[
            MessageRun(1, Offset(0), [make_message(b"a")]),
            MessageRun(2, Offset(4), [make_message(b"b"), make_message(b"c")]),
            MessageRun(1, Offset(8), [make_message(b"d")]),
        ],
    )

    store.commit(batch)

    assert bodies(store.read_page(1, 0, 10)) == [(0, b"a"), (8, b"d")]
    assert bodies(store.read_page(2, 0, 10)) == [(4, b"b"), (5, b"c")]


def test_a_row_that_is_there_takes_new_values(store: Store) -> None:
    store.commit(
        Batch(
            number=1,
            topics=[topic(1, next_offset=10)],
            subscriptions=[subscription(1)],
            cursors=[cursor(1, 1, settled=((3, 5),), sent_up_to=6)],
            redeliveries=[redelivery(1, 1, 2)],
        )
    )
    changed = Batch(
        number=2,
        topics=[topic(1, next_offset=20)],
        subscriptions=[subscription(1, last_seen_at_ns=99, is_ordered=True, delivery="{}")],
        cursors=[cursor(1, 1, ack_floor=12, sent_up_to=13, generation=1)],
        redeliveries=[redelivery(1, 1, 2, attempts=5, is_final=True, nacks=2)],
    )

    store.commit(changed)

    kept = store.load()
    assert kept.topics == [(changed.topics[0], None)]
    assert kept.subscriptions == changed.subscriptions
    assert kept.cursors == changed.cursors
    assert kept.redeliveries == changed.redeliveries


def test_of_rows_with_one_key_in_one_batch_the_last_one_counts(store: Store) -> None:
    store.commit(
        Batch(
            number=1,
            topics=[topic(1, next_offset=1), topic(1, next_offset=9)],
            subscriptions=[subscription(1), subscription(1, last_seen_at_ns=9)],
            cursors=[cursor(1, 1, ack_floor=1), cursor(1, 1, ack_floor=9)],
            redeliveries=[redelivery(1, 1, 2), redelivery(1, 1, 2, attempts=9)],
        )
    )

    kept = store.load()
    assert [row.next_offset for row, _ in kept.topics] == [9]
    assert [row.last_seen_at_ns for row in kept.subscriptions] == [9]
    assert [row.ack_floor for row in kept.cursors] == [9]
    assert [row.attempts for row in kept.redeliveries] == [9]


def test_many_cursors_and_redeliveries_go_in_one_batch(store: Store) -> None:
    cursors = [cursor(subscription, 1, ack_floor=subscription) for subscription in range(1, 1001)]
    redeliveries = [redelivery(1, 1, offset) for offset in range(1000)]

    store.commit(
        Batch(number=1, topics=[topic(1, next_offset=1000)], cursors=cursors, redeliveries=redeliveries),
    )

    assert store.load().cursors == cursors
    assert store.load().redeliveries == redeliveries


def test_settled_redeliveries_go_and_others_stay(store: Store) -> None:
    rows = [redelivery(1, 1, offset) for offset in range(200)] + [redelivery(2, 1, offset) for offset in range(3)]
    store.commit(Batch(number=1, topics=[topic(1, next_offset=200)], redeliveries=rows))

    settled = [RedeliveryKey(1, 1, Offset(offset)) for offset in range(199)]
    store.commit(Batch(number=2, settled_redeliveries=settled))

    assert store.load().redeliveries == rows[199:]


def test_a_message_that_fails_again_in_the_batch_that_settles_it_is_kept(store: Store) -> None:
    store.commit(Batch(number=1, topics=[topic(1, next_offset=9)], redeliveries=[redelivery(1, 1, 3)]))

    again = redelivery(1, 1, 3, attempts=2)
    store.commit(Batch(number=2, settled_redeliveries=[RedeliveryKey(1, 1, Offset(3))], redeliveries=[again]))

    assert store.load().redeliveries == [again]


def test_deletions_take_ranges_of_one_topic(store: Store) -> None:
    store.commit(publication(1, make_messages(10)))
    store.commit(publication(2, make_messages(10), topic_id=2))

    store.commit(Batch(number=3, deletions=[Deletion(1, 0, 3), Deletion(1, 5, 6), Deletion(1, 9, 100)]))

    assert [offset for offset, _ in store.read_page(1, 0, 10)] == [3, 4, 6, 7, 8]
    assert store.read_page(2, 0, 10).message_count == 10
    assert [first for _, first in store.load().topics] == [3, 0]


def test_many_deletions_go_in_one_batch(store: Store) -> None:
    store.commit(publication(1, make_messages(600)))

    store.commit(Batch(number=2, deletions=[Deletion(1, offset, offset + 1) for offset in range(0, 600, 2)]))

    assert [offset for offset, _ in store.read_page(1, 0, 600)] == list(range(1, 600, 2))


def test_a_removed_topic_takes_everything_of_its_own_and_nothing_else(store: Store, place: Place) -> None:
    rows = {
        "topics": [topic(1, next_offset=5), topic(2, next_offset=5)],
        "messages": [MessageRun(1, Offset(0), make_messages(5)), MessageRun(2, Offset(0), make_messages(5))],
    }
    cursors = [cursor(1, 1), cursor(1, 2)]
    redeliveries = [redelivery(1, 1, 1), redelivery(1, 2, 1)]
    store.commit(
        Batch(number=1, subscriptions=[subscription(1)], cursors=cursors, redeliveries=redeliveries, **rows)  # type: ignore[arg-type]
    )

    store.commit(Batch(number=2, removed_topics=[1]))

    kept = store.load()
    assert [(row.id, first) for row, first in kept.topics] == [(2, 0)]
    assert (kept.cursors, kept.redeliveries) == (cursors[1:], redeliveries[1:])
    assert len(kept.subscriptions) == 1
    assert place.count("messages") == 5


def test_a_removed_subscription_takes_everything_of_its_own_and_nothing_else(store: Store) -> None:
    cursors = [cursor(1, 1), cursor(2, 1)]
    redeliveries = [redelivery(1, 1, 1), redelivery(2, 1, 1)]
    batch = publication(1, make_messages(5))
    batch.subscriptions += [subscription(1), subscription(2)]
    batch.cursors += cursors
    batch.redeliveries += redeliveries
    store.commit(batch)

    store.commit(Batch(number=2, removed_subscriptions=[1]))

    kept = store.load()
    assert [row.id for row in kept.subscriptions] == [2]
    assert (kept.cursors, kept.redeliveries) == (cursors[1:], redeliveries[1:])
    assert kept.topics == [(batch.topics[0], 0)]


def test_a_topic_and_a_queue_of_one_name_live_side_by_side(store: Store, place: Place) -> None:
    both = [topic(1, name="a", next_offset=2), topic(2, kind="queue", name="a", next_offset=1)]
    store.commit(
        Batch(
            number=1,
            topics=both,
            messages=[MessageRun(1, Offset(0), make_messages(2)), MessageRun(2, Offset(0), [make_message(b"job")])],
        )
    )
    with pytest.raises(StoreRefused):
        store.commit(Batch(number=2, topics=[topic(3, kind="queue", name="a")]))
    store.commit(Batch(number=2, removed_topics=[1]))
    store.close()

    again = place.open()

    assert again.load().topics == [(both[1], 0)]
    assert bodies(again.read_page(2, 0, 1)) == [(0, b"job")]


def test_a_name_that_is_removed_can_be_taken_in_the_same_batch(store: Store) -> None:
    store.commit(Batch(number=1, topics=[topic(1, name="a")], subscriptions=[subscription(1, name="x")]))

    anew = Batch(
        number=2,
        removed_topics=[1],
        removed_subscriptions=[1],
        topics=[topic(2, name="a")],
        subscriptions=[subscription(2, name="x")],
    )
    store.commit(anew)

    assert store.load().topics == [(anew.topics[0], None)]
    assert store.load().subscriptions == anew.subscriptions


def test_a_last_value_is_written_replaced_and_removed(place: Place) -> None:
    store = place.owned_store()
    first, other = (LastValueRow(name, 5, "shop", 1, None, b"message-id:1\n\n1\0") for name in ("a", "b'\u00e4"))
    second = first._replace(published_at_ns=6, expires_at_ns=7, tail=b"message-id:2\n\n2\0")
    store.commit(Batch(number=1, last_values=[first, other]))
    assert store.load().last_values == [first, other]

    store.commit(Batch(number=2, last_values=[second], removed_values=[other.name, "none"]))
    assert store.load().last_values == [second]
    store.commit(Batch(number=3, removed_values=["a"]))
    assert store.load().last_values == []
