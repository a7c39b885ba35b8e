"""Pages hold what is stored, up to their limits, and say how far they reach; on both engines."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from stompbroker.message import Message, Origin
from stompbroker.storage import Batch, Deletion
from stompbroker.storage.paging import MAX_PAGE_BYTES, MAX_PAGE_ROWS
from tests.storage.place import bodies, expiring, publication
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from stompbroker.storage import Store


def numbered(count: int) -> list[Message]:
    return [make_message(b"%d" % number, number=number) for number in range(count)]


def test_a_page_of_everything_is_complete_up_to_where_it_was_asked_for(store: Store) -> None:
    store.commit(publication(1, numbered(5)))

    page = store.read_page(1, 0, 5)

    assert bodies(page) == [(number, b"%d" % number) for number in range(5)]
    assert (page.start_offset, page.end_offset) == (0, 5)
    page.check_invariants()


def test_a_page_begins_and_ends_where_it_was_asked_to(store: Store) -> None:
    store.commit(publication(1, numbered(10)))

    page = store.read_page(1, 3, 6)

    assert bodies(page) == [(3, b"3"), (4, b"4"), (5, b"5")]
    assert page.end_offset == 6


def test_a_page_of_nothing_is_complete(store: Store) -> None:
    store.commit(publication(1, numbered(5)))

    for topic_id, start, stop in [(1, 5, 99), (2, 0, 50), (1, 3, 3)]:
        page = store.read_page(topic_id, start, stop)

        assert (page.message_count, page.end_offset) == (0, stop)


def test_gaps_are_stepped_over(store: Store) -> None:
    store.commit(publication(1, numbered(10), first_offset=5))
    store.commit(Batch(number=2, deletions=[Deletion(1, 6, 8), Deletion(1, 12, 100)]))

    page = store.read_page(1, 0, 20)

    assert [offset for offset, _ in page] == [5, 8, 9, 10, 11]
    assert (page.start_offset, page.end_offset) == (5, 20)
    assert page.read(6, 10)[0] == 8
    page.check_invariants()


def test_a_page_ends_behind_the_last_row_it_may_have(store: Store) -> None:
    store.commit(publication(1, numbered(10), first_offset=2))

    page = store.read_page(1, 0, 100, max_rows=3)

    assert [offset for offset, _ in page] == [2, 3, 4]
    assert page.end_offset == 5


def test_a_page_ends_with_the_message_that_reaches_its_bytes(store: Store) -> None:
    messages = [make_message(b"x" * 1000) for _ in range(10)]
    store.commit(publication(1, messages))

    page = store.read_page(1, 0, 100, max_bytes=2 * len(messages[0].tail) + 1)

    assert [offset for offset, _ in page] == [0, 1, 2]
    assert page.end_offset == 3


@pytest.mark.parametrize("size_bytes", [10, 10_000, 3 * MAX_PAGE_BYTES])
def test_a_page_has_one_message_at_least_however_large(store: Store, size_bytes: int) -> None:
    store.commit(publication(1, [make_message(b"x" * size_bytes), make_message(b"y" * size_bytes)]))

    page = store.read_page(1, 0, 2, max_bytes=1)

    assert bodies(page) == [(0, b"x" * size_bytes)]
    assert page.end_offset == 1


@pytest.mark.parametrize("size_bytes", [0, 500, 5000, 100_000])
def test_pages_in_a_row_hold_everything_once(store: Store, size_bytes: int) -> None:
    messages = [make_message(b"%d " % number + b"x" * size_bytes, number=number) for number in range(60)]
    store.commit(publication(1, messages))
    found: list[Message] = []

    offset = 0
    while offset < 60:
        page = store.read_page(1, offset, 60, max_rows=7, max_bytes=250_000)
        assert 0 < page.message_count <= 7
        found += [message for _, message in page]
        offset = page.end_offset

    assert [message.tail for message in found] == [message.tail for message in messages]


def test_a_page_is_a_thousand_rows_or_a_mebibyte_unless_said_otherwise(store: Store) -> None:
    store.commit(publication(1, make_messages(MAX_PAGE_ROWS + 1)))
    store.commit(publication(2, [make_message(b"x" * 100_000) for _ in range(20)], topic_id=2))

    assert store.read_page(1, 0, 5000).end_offset == 1000
    assert store.read_page(2, 0, 5000).end_offset == 11


def test_long_and_short_messages_may_follow_each_other(store: Store) -> None:
    messages = [make_message(b"y" * length) for length in (0, 50_000, 1, 4096, 0, 200_000, 3)]
    store.commit(publication(1, messages))

    page = store.read_page(1, 0, 7)

    assert [message.body for _, message in page] == [message.body for message in messages]


def test_a_body_may_hold_any_bytes(store: Store) -> None:
    every = [bytes([value]) * (value % 5) + b"\0" + bytes(range(256)) for value in range(256)]
    store.commit(publication(1, [make_message(body) for body in every]))

    page = store.read_page(1, 0, 256)

    assert [message.body for _, message in page] == every


def test_a_carriage_return_counts_only_in_a_header(store: Store) -> None:
    def message(head: bytes, body: bytes) -> Message:
        tail = b"message-id:1\n" + head + b"\n\n" + body + b"\0"
        return Message(len(body), tail, Origin("p", is_plain=b"\\r" not in head), 0)

    messages = [message(b"a:b", b"x"), message(b"a:\\r", b"x"), message(b"a:b", b"\\r"), message(b"a:\\r", b"")]
    store.commit(publication(1, messages))

    page = store.read_page(1, 0, 4)

    assert [found.origin.is_plain for _, found in page] == [True, False, True, False]


def test_messages_of_one_publisher_share_their_origin(store: Store) -> None:
    messages = [make_message(publisher=publisher) for publisher in ("a", "b", "a", "a")]
    store.commit(publication(1, messages))

    origins = [message.origin for _, message in store.read_page(1, 0, 4)]

    assert [origin.publisher for origin in origins] == ["a", "b", "a", "a"]
    assert len(set(map(id, origins))) == 2


def test_messages_that_live_as_long_and_are_for_the_same_share_their_origin(store: Store) -> None:
    messages = [
        expiring(published_at_ns=number, lifetime_ns=lifetime_ns, only_for=only_for)
        for number, (lifetime_ns, only_for) in enumerate([(None, None), (5, None), (5, 7), (5, None), (None, None)])
    ]
    store.commit(publication(1, messages))

    found = [message for _, message in store.read_page(1, 0, 5)]

    assert [message.expires_at_ns for message in found] == [None, 6, 7, 8, None]
    assert len({id(message.origin) for message in found}) == 3
    assert found[1].origin is found[3].origin


def test_gaps_keep_each_messages_own_expiry(store: Store) -> None:
    store.commit(publication(1, [expiring(lifetime_ns=number, only_for=number) for number in range(10)]))
    store.commit(Batch(number=2, deletions=[Deletion(1, 2, 4)]))

    page = store.read_page(1, 1, 10, max_rows=4)

    assert [(offset, message.expires_at_ns, message.origin.only_for) for offset, message in page] == [
        (1, 1, 1),
        (4, 4, 4),
        (5, 5, 5),
        (6, 6, 6),
    ]


@pytest.mark.parametrize("publisher", ['say "hello"', "line\nbreak", "back\\slash", "☃", "", "a,b;c"])
def test_a_publisher_may_have_any_name(store: Store, publisher: str) -> None:
    store.commit(publication(1, [make_message(publisher=publisher)]))

    ((_, message),) = store.read_page(1, 0, 1)

    assert message.origin.publisher == publisher


def test_a_page_is_read_while_another_thread_writes(store: Store) -> None:
    store.commit(publication(1, numbered(50)))
    enough = threading.Event()
    written = 1

    def write() -> None:
        nonlocal written
        while not enough.is_set():
            store.commit(publication(written + 1, numbered(50), first_offset=50 * written))
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            page = store.read_page(1, 0, 10**6, max_rows=10**6, max_bytes=10**9)
            assert page.message_count % 50 == 0  # batches are seen as a whole
            assert bodies(page)[:50] == [(number, b"%d" % number) for number in range(50)]
    finally:
        enough.set()
        writer.join()

    assert store.read_page(1, 0, 10**6, max_rows=10**6, max_bytes=10**9).message_count == 50 * written


def test_what_is_committed_is_in_the_next_page(store: Store) -> None:
    for number in range(20):
        store.commit(publication(number + 1, numbered(1), first_offset=number))

        assert store.read_page(1, 0, number + 1).message_count == number + 1
