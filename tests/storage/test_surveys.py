"""What is asked of stored messages beside pages is answered from what is there; on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, event

from stompbroker.message import Message, Origin
from stompbroker.storage import Batch, Deletion, Extent, StoreFailing, Stretch
from stompbroker.storage.surveys import MAX_FOUND
from tests.storage.place import expiring, publication
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage import Expired, Store
    from tests.storage.place import Place

LARGEST = 2**63 - 1


def message(head: bytes, body: bytes = b"", *, published_at_ns: int = 0) -> Message:
    """`head` is the header block, without the empty line behind it."""
    return Message(len(body), head + b"\n\n" + body + b"\0", Origin("p", is_plain=True), published_at_ns)


# Finding a message ---------------------------------------------------------------------------------------------------


def test_a_message_is_found_by_its_id_wherever_it_is(store: Store) -> None:
    store.commit(publication(1, [make_message(number=number) for number in (7, 77, 8)], first_offset=5))
    store.commit(publication(2, [make_message(b"x" * 100_000, number=number) for number in (9, 7)], topic_id=2))

    assert store.surveys.find_messages("test-1-7", []) == [(1, 5), (2, 1)]
    assert store.surveys.find_messages("test-1-77", []) == [(1, 6)]


@pytest.mark.parametrize(
    "unknown", ["", "test-1", "test-1-", "est-1-7", "test-1-70", "TEST-1-7", "test-1-_", "test-1-%", "☃"]
)
def test_an_id_is_meant_as_a_whole_and_as_it_is_written(store: Store, unknown: str) -> None:
    store.commit(publication(1, [make_message(number=7)]))

    assert store.surveys.find_messages(unknown, [1]) == []


@pytest.mark.parametrize("known", ["☃-1", "a\\cb", "per%cent", "?", ":x", "'"])
def test_an_id_may_hold_any_characters(store: Store, known: str) -> None:
    store.commit(publication(1, [message(b"message-id:" + known.encode() + b"\na:b")]))

    assert store.surveys.find_messages(known, []) == [(1, 0)]


def test_an_id_of_several_lines_is_nobodys(store: Store) -> None:
    store.commit(publication(1, [message(b"message-id:1\na:b")]))

    assert store.surveys.find_messages("1\na:b", [1]) == []


@pytest.mark.parametrize(
    "head",
    [
        b"message-id:letter\ndead-letter-message-id:7",
        b"message-id:letter\ndead-letter-message-id:7\nz:z",
        b"message-id:letter\na:b\ndead-letter-message-id:7\nz:z",
    ],
)
def test_a_dead_letter_is_found_by_the_id_of_what_is_in_it(store: Store, head: bytes) -> None:
    for number, body in enumerate([b"", b"body", b"\n\n", b"\ndead-letter-message-id:7\n", b"x" * 100_000], 1):
        store.commit(publication(number, [message(head, body)], topic_id=number))

    assert store.surveys.find_messages("7", [1, 2, 3, 4, 5]) == [(number, 0) for number in range(1, 6)]
    assert store.surveys.find_messages("letter", []) == [(number, 0) for number in range(1, 6)]


def test_only_topics_of_dead_letters_hold_dead_letters(store: Store) -> None:
    letter = message(b"message-id:letter\ndead-letter-message-id:7")
    store.commit(publication(1, [message(b"message-id:7"), letter]))
    store.commit(publication(2, [letter, message(b"message-id:7"), letter], topic_id=2))

    assert store.surveys.find_messages("7", [2, 3]) == [(1, 0), (2, 0), (2, 1), (2, 2)]
    assert store.surveys.find_messages("7", []) == [(1, 0), (2, 1)]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"message-id:letter\ndead-letter-message-id:77", b""),
        (b"message-id:letter\ndead-letter-message-id:6\nz:7", b""),
        (b"message-id:letter\nz-dead-letter-message-id:7", b""),
        (b"message-id:letter\na:b", b"dead-letter-message-id:7\n"),
        (b"message-id:letter\na:b", b"x\ndead-letter-message-id:7\n"),
        (b"message-id:letter\na:b", b"\ndead-letter-message-id:7\n\n"),
        (b"message-id:letter\na:b\\ndead-letter-message-id:7", b""),
    ],
)
def test_what_only_looks_like_a_dead_letter_is_none(store: Store, head: bytes, body: bytes) -> None:
    store.commit(publication(1, [message(head, body)]))

    assert store.surveys.find_messages("7", [1]) == []


def test_there_may_be_more_topics_of_dead_letters_than_a_statement_takes_parameters(store: Store) -> None:
    store.commit(publication(1, [message(b"message-id:letter\ndead-letter-message-id:7")], topic_id=LARGEST))

    assert store.surveys.find_messages("7", [*range(70_000), LARGEST]) == [(LARGEST, 0)]


def test_no_more_is_told_than_people_read(store: Store) -> None:
    store.commit(publication(1, [make_message(number=7) for _ in range(MAX_FOUND + 1)]))

    assert len(store.surveys.find_messages("test-1-7", [])) == MAX_FOUND


def test_looking_at_everything_changes_nothing_for_whoever_reads_next(store: Store, place: Place) -> None:
    store.surveys.find_messages("1", [])

    if not place.is_sqlite:
        with store.reading() as connection:
            assert connection.exec_driver_sql("SHOW enable_seqscan").scalar() == "off"


# What has expired ----------------------------------------------------------------------------------------------------


def places(found: list[Expired]) -> list[tuple[int, int, int]]:
    return [expired.place for expired in found]


def test_what_has_expired_is_told_without_its_body(store: Store) -> None:
    origin = Origin("orders", is_plain=True, expires_at_ns=50, only_for=7)
    store.commit(publication(1, [Message(3, b"message-id:a-1-1\nx:y\n\nabc\0", origin, 40)]))

    ((_, _, _, message),) = store.surveys.expired(50, None, 10)

    assert message is not None
    assert (message.message_id, message.body_bytes, message.published_at_ns) == (b"a-1-1", 3, 40)
    assert (message.origin.publisher, message.origin.only_for, message.expires_at_ns) == ("orders", 7, 50)


def test_what_has_expired_is_told_in_the_order_of_time_topic_and_offset(store: Store) -> None:
    lifetimes = (30, None, 10, 20)
    store.commit(publication(1, [expiring(lifetime_ns=lifetime_ns) for lifetime_ns in lifetimes], topic_id=2))
    store.commit(publication(2, [expiring(lifetime_ns=20), expiring(lifetime_ns=20)], first_offset=8))

    assert store.surveys.expired(9, None, 10) == []
    assert places(store.surveys.expired(10, None, 10)) == [(10, 2, 2)]
    assert places(store.surveys.expired(LARGEST, None, 10)) == [
        (10, 2, 2),
        (20, 1, 8),
        (20, 1, 9),
        (20, 2, 3),
        (30, 2, 0),
    ]


def test_what_expires_at_a_moment_of_its_own_is_found_as_well(store: Store) -> None:
    origin = Origin("p", is_plain=True, expires_at_ns=50)
    store.commit(publication(1, [Message(0, b"message-id:1\n\n\0", origin, 40)]))

    assert store.surveys.expired(49, None, 10) == []
    assert places(store.surveys.expired(50, None, 10)) == [(50, 1, 0)]
    ((_, found),) = store.read_page(1, 0, 1)
    assert (found.published_at_ns, found.expires_at_ns) == (40, 50)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_answers_in_a_row_hold_everything_once(store: Store, limit: int) -> None:
    for topic_id in range(1, 4):
        run = [expiring(lifetime_ns=number // 4) for number in range(12)]
        store.commit(publication(topic_id, run, topic_id=topic_id))
    everything = places(store.surveys.expired(1, None, 1000))
    found: list[tuple[int, int, int]] = []

    while answer := places(store.surveys.expired(1, found[-1] if found else None, limit)):
        assert len(answer) <= limit
        found += answer

    assert found == everything
    assert len(everything) == 24


def test_what_is_deleted_has_not_expired(store: Store) -> None:
    store.commit(publication(1, [expiring(lifetime_ns=1) for _ in range(5)]))
    store.commit(Batch(number=2, deletions=[Deletion(1, 1, 4)]))

    assert places(store.surveys.expired(1, None, 10)) == [(1, 1, 0), (1, 1, 4)]


@pytest.mark.parametrize("after", [None, (5, 1, 5)])
def test_only_the_index_of_what_can_expire_and_its_rows_are_touched(
    store: Store, place: Place, after: tuple[int, int, int] | None
) -> None:
    store.commit(publication(1, [*make_messages(2000), *(expiring(lifetime_ns=number) for number in range(100))]))

    plan = plan_of(store, place, lambda: store.surveys.expired(50, after, 20))

    if place.is_sqlite:
        assert plan == [
            "SEARCH messages USING INDEX ix_messages_expires_at_ns_topic_id_offset "
            "((expires_at_ns,topic_id,offset)>(?,?,?) AND expires_at_ns<?)"
        ]
    else:
        assert any("Index Scan using ix_messages_expires_at_ns_topic_id_offset" in step for step in plan)
        assert not any("Sort" in step for step in plan)


def plan_of(store: Store, place: Place, ask: Callable[[], object]) -> list[str]:
    """How the database goes about what `ask` asks it."""
    asked: list[tuple[str, object]] = []

    def note(_c: Connection, _cursor: DBAPICursor, statement: str, parameters: object, *_rest: object) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        ask()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    (question,) = asked
    explain = "EXPLAIN QUERY PLAN" if place.is_sqlite else "EXPLAIN (COSTS OFF)"
    with store.reading() as connection:
        rows = connection.exec_driver_sql(f"{explain} {question[0]}", question[1]).all()  # type: ignore[arg-type]
    return [row[-1] for row in rows]


# How much there is ---------------------------------------------------------------------------------------------------


def test_stretches_are_aligned_and_tell_what_is_in_them(store: Store) -> None:
    run = [message(b"message-id:%d" % number, b"x" * number, published_at_ns=1000 - number) for number in range(5, 25)]
    sizes = {number: len(made.tail) for number, made in enumerate(run, 5)}
    store.commit(publication(1, run, first_offset=5))
    store.commit(Batch(number=2, deletions=[Deletion(1, 8, 10), Deletion(1, 19, 21)]))

    assert store.surveys.stretches(1, 10, LARGEST) == [
        Stretch(5, 8, 3, sizes[5] + sizes[6] + sizes[7], 995),  # type: ignore[arg-type]
        Stretch(10, 19, 9, sum(sizes[number] for number in range(10, 19)), 990),  # type: ignore[arg-type]
        Stretch(21, 25, 4, sum(sizes[number] for number in range(21, 25)), 979),  # type: ignore[arg-type]
    ]


def test_stretches_without_messages_are_left_out(store: Store) -> None:
    store.commit(publication(1, make_messages(1)))
    store.commit(publication(2, make_messages(1), first_offset=LARGEST - 1))
    store.commit(publication(3, make_messages(5), topic_id=2))

    assert [(found.start, found.stop) for found in store.surveys.stretches(1, 1000, LARGEST)] == [
        (0, 1),
        (LARGEST - 1, LARGEST),
    ]
    assert store.surveys.stretches(3, 1000, LARGEST) == []


def test_stretches_end_below_where_they_are_to_stop(store: Store) -> None:
    store.commit(publication(1, make_messages(30)))

    found = store.surveys.stretches(1, 10, 15)

    assert [(stretch.start, stretch.stop, stretch.messages) for stretch in found] == [(0, 10, 10), (10, 15, 5)]
    assert store.surveys.stretches(1, 10, 0) == []


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_stretches_together_are_what_there_is(store: Store, size: int) -> None:
    run = [make_message(b"x" * 7 * number) for number in range(50)]
    store.commit(publication(1, run, first_offset=3))

    found = store.surveys.stretches(1, size, LARGEST)

    assert sum(stretch.messages for stretch in found) == 50
    assert sum(stretch.tail_bytes for stretch in found) == sum(len(made.tail) for made in run)
    assert found == sorted(found)
    assert all(stretch.start // size == (stretch.stop - 1) // size for stretch in found)


def test_the_extent_of_a_range_begins_with_its_first_message(store: Store) -> None:
    run = [message(b"message-id:%d" % number, b"x" * number, published_at_ns=100 - number) for number in range(10)]
    store.commit(publication(1, run))
    store.commit(publication(2, make_messages(10), topic_id=2))
    store.commit(Batch(number=3, deletions=[Deletion(1, 2, 4)]))

    assert store.surveys.extent(1, 2, 6) == Extent(2, len(run[4].tail) + len(run[5].tail), 4, 96)  # type: ignore[arg-type]
    assert store.surveys.extent(1, 0, LARGEST)[:1] == (8,)
    assert store.surveys.extent(1, 9, 10) == Extent(1, len(run[9].tail), 9, 91)  # type: ignore[arg-type]


@pytest.mark.parametrize(("topic_id", "start", "stop"), [(1, 3, 5), (1, 0, 0), (2, 0, 100), (1, 9, 3)])
def test_the_extent_of_nothing_is_nothing(store: Store, topic_id: int, start: int, stop: int) -> None:
    store.commit(publication(1, make_messages(3)))

    assert store.surveys.extent(topic_id, start, stop) == Extent(0, 0, None, None)


def test_answers_are_numbers_that_json_takes(store: Store) -> None:
    store.commit(publication(1, make_messages(3)))

    answers = [*store.surveys.stretches(1, 2, LARGEST)[0], *store.surveys.extent(1, 0, 3)]

    assert {type(value) for value in answers} == {int}


# A store that fails --------------------------------------------------------------------------------------------------


def test_a_question_that_cannot_be_answered_is_a_failing_store(store: Store, place: Place) -> None:
    place.query("ALTER TABLE messages RENAME TO elsewhere")
    try:
        questions: list[Callable[[], object]] = [
            lambda: store.surveys.find_messages("1", []),
            lambda: store.surveys.expired(1, None, 1),
            lambda: store.surveys.stretches(1, 10, LARGEST),
            lambda: store.surveys.extent(1, 0, 1),
        ]
        for ask in questions:
            with pytest.raises(StoreFailing, match="messages"):
                ask()
    finally:
        place.query("ALTER TABLE elsewhere RENAME TO messages")
