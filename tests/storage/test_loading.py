"""A start reads what is kept but messages, and refuses what contradicts itself; on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, event

from stompbroker.errors import OperatorError
from stompbroker.storage import Batch
from tests.storage.place import cursor, publication, redelivery, topic
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage import Store
    from tests.storage.place import Place


def test_an_empty_store_has_nothing(store: Store) -> None:
    kept = store.load()

    assert (kept.topics, kept.subscriptions, kept.cursors, kept.redeliveries) == ([], [], [], [])
    assert (kept.exports, kept.gathered) == ([], [])


def statements_of_loading(store: Store) -> list[str]:
    seen: list[str] = []

    def note(_c: Connection, _cursor: DBAPICursor, statement: str, *_rest: object) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        store.load()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return [statement for statement in seen if statement.startswith("SELECT")]


def test_loading_takes_as_many_statements_for_many_messages_as_for_none(store: Store) -> None:
    before = statements_of_loading(store)
    for number in range(1, 4):
        store.commit(publication(number, make_messages(1000), topic_id=number))

    assert statements_of_loading(store) == before
    assert len(before) == 10


def test_of_the_messages_only_an_index_is_touched(store: Store, place: Place) -> None:
    for number in range(1, 4):
        store.commit(publication(number, make_messages(1000), topic_id=number))
    (statement, of_failed) = (text for text in statements_of_loading(store) if "messages" in text)
    assert "JOIN redeliveries" in of_failed

    if place.is_sqlite:
        plan = [row[3] for row in place.query(f"EXPLAIN QUERY PLAN {statement}")]
        (step,) = (line for line in plan if "messages" in line)
        assert step.startswith("SEARCH messages USING COVERING INDEX")
        plan = [row[3] for row in place.query(f"EXPLAIN QUERY PLAN {of_failed}")]
        (step,) = (line for line in plan if "messages" in line)
        assert step.startswith("SEARCH messages USING INDEX")
    else:
        place.query("VACUUM ANALYZE messages, topics")
        plan = [row[0] for row in place.query(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS OFF) {statement}")]
        (step,) = (line for line in plan if " on messages" in line)
        # One row of the index for each of the three topics.
        assert "Index Only Scan using pk_messages on messages (actual rows=1.00 loops=3)" in step


def test_the_keys_of_messages_that_failed_are_known(store: Store) -> None:
    messages = [make_message(number=number, group_key=key) for number, key in enumerate(("a", "b", None))]
    failed = [redelivery(7, 1, offset) for offset in (1, 2)]
    batch = publication(1, messages)
    batch.redeliveries += failed
    store.commit(batch)

    assert store.load().failed_keys == {(1, 1): "b"}


@pytest.mark.parametrize(
    "ahead",
    [
        cursor(7, 1, ack_floor=11),
        cursor(7, 1, sent_up_to=11),
        cursor(7, 1, settled=((3, 4), (9, 11))),
    ],
)
def test_a_cursor_ahead_of_its_topic_is_named(store: Store, ahead: object) -> None:
    store.commit(Batch(number=1, topics=[topic(1, name="a.b", next_offset=10)], cursors=[ahead]))  # type: ignore[list-item]

    with pytest.raises(OperatorError, match=r"subscription 7 in the topic a\.b stands at 11, .* gets offset 10"):
        store.load()


def test_a_cursor_at_the_end_of_its_topic_is_fine(store: Store) -> None:
    store.commit(
        Batch(number=1, topics=[topic(1, next_offset=10)], cursors=[cursor(7, 1, ack_floor=10, sent_up_to=10)])
    )

    assert len(store.load().cursors) == 1


def test_a_cursor_without_its_topic_is_named(store: Store) -> None:
    store.commit(Batch(number=1, cursors=[cursor(7, 5)]))

    with pytest.raises(OperatorError, match="subscription 7 has a cursor in a topic 5 that is not there"):
        store.load()
