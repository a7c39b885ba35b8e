"""What goes to the writing process is what arrives there: every part of a batch, every field of every row."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stompbroker.ids import Offset
from stompbroker.message import Message, Origin
from stompbroker.storage import (
    Batch,
    CursorRow,
    Deletion,
    ExportedBatches,
    ExportRow,
    Gap,
    LastValueRow,
    LedgerRow,
    MessageRun,
    ProducerKey,
    ProducerRow,
    RedeliveryKey,
    RedeliveryRow,
    SubscriptionRow,
    TopicRow,
)
from stompbroker.storage.sqlite.batch_wire import decode, encode
from tests.storage.place import cursor, expiring, export, ledger, publication, redelivery, subscription, topic
from tests.support.compiled import slots_of
from tests.support.messages import make_message, make_messages

#: What there is, and what the store will refuse: that is for the store to say, not for the way there.
NUMBERS = st.integers(-(2**70), 2**70)
TEXTS = st.text(st.characters(categories=["L", "Cc", "Cs", "So"]), max_size=10)
FLAGS = st.booleans()


def rows(kind: Any, *values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.builds(kind, *values), max_size=3)


ORIGINS = st.builds(
    Origin,
    TEXTS,
    is_plain=FLAGS,
    is_persistent=FLAGS,
    lifetime_ns=st.none() | NUMBERS,
    expires_at_ns=st.none() | NUMBERS,
    only_for=st.none() | NUMBERS,
    group_key=st.none() | TEXTS,
    outcome_to=st.none() | TEXTS,
)
MESSAGES = st.builds(Message, NUMBERS, st.binary(max_size=20), ORIGINS, NUMBERS)
SETTLED = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3).map(tuple)
BATCHES = st.builds(
    Batch,
    number=NUMBERS,
    removed_topics=st.lists(NUMBERS, max_size=3),
    removed_subscriptions=st.lists(NUMBERS, max_size=3),
    topics=rows(TopicRow, NUMBERS, TEXTS, TEXTS, NUMBERS),
    subscriptions=rows(SubscriptionRow, NUMBERS, *[TEXTS] * 7, FLAGS, NUMBERS, NUMBERS, FLAGS, TEXTS),
    messages=rows(MessageRun, NUMBERS, NUMBERS, st.lists(MESSAGES, max_size=4)),
    cursors=rows(CursorRow, NUMBERS, NUMBERS, NUMBERS, SETTLED, NUMBERS, NUMBERS),
    settled_redeliveries=rows(RedeliveryKey, NUMBERS, NUMBERS, NUMBERS),
    redeliveries=rows(RedeliveryRow, *[NUMBERS] * 5, TEXTS, NUMBERS, NUMBERS, FLAGS, NUMBERS),
    removed_values=st.lists(TEXTS, max_size=3),
    last_values=rows(LastValueRow, TEXTS, NUMBERS, TEXTS, NUMBERS, st.none() | NUMBERS, st.binary(max_size=9)),
    removed_producers=rows(ProducerKey, TEXTS, TEXTS),
    producers=rows(ProducerRow, TEXTS, TEXTS, NUMBERS, SETTLED, NUMBERS),
    deletions=rows(Deletion, NUMBERS, NUMBERS, NUMBERS),
    gaps=rows(Gap, NUMBERS, NUMBERS, NUMBERS),
    ledger=rows(
        LedgerRow, NUMBERS, TEXTS, NUMBERS, NUMBERS, NUMBERS, st.binary(max_size=20).map(lambda found: lambda: found)
    ),
    exports=rows(ExportRow, NUMBERS, TEXTS, NUMBERS, TEXTS, *[NUMBERS] * 4, FLAGS),
    exported=rows(ExportedBatches, TEXTS, NUMBERS, NUMBERS, NUMBERS),
    finished_exports=rows(ExportRow, NUMBERS, TEXTS, NUMBERS, TEXTS, *[NUMBERS] * 4, FLAGS),
)


def carried(batch: Batch) -> Batch:
    document, tails = encode(batch)
    return decode(document, b"".join(tails))


def plain(batch: Batch) -> dict[str, Any]:
    """Everything a batch says, as values that can be compared; with their classes."""
    return {part.name: _plain(getattr(batch, part.name)) for part in fields(batch)}


def _plain(found: Any) -> Any:
    if isinstance(found, Message | Origin):
        return type(found), {name: _plain(getattr(found, name)) for name in slots_of(type(found))}
    if callable(found):
        return found()
    if isinstance(found, list | tuple):
        return type(found), [_plain(each) for each in found]
    return type(found), found


@given(BATCHES)
def test_what_is_decoded_is_what_was_encoded(batch: Batch) -> None:
    assert plain(carried(batch)) == plain(batch)


def test_no_part_of_a_batch_is_forgotten() -> None:
    """A part that is added to `Batch` must be added here, and then has to be carried."""
    whole = publication(7, [make_message(), expiring(lifetime_ns=5, only_for=3)])
    whole.removed_topics = [1]
    whole.removed_subscriptions = [2]
    whole.topics = [topic(1)]
    whole.subscriptions = [subscription(1)]
    whole.cursors = [cursor(1, 1, ack_floor=3, settled=((4, 5), (7, 9)), sent_up_to=9, generation=2)]
    whole.settled_redeliveries = [RedeliveryKey(1, 1, Offset(2))]
    whole.redeliveries = [redelivery(1, 1, 2, nacks=1)]
    whole.removed_values = ["b"]
    whole.last_values = [LastValueRow("a", 5, "shop", 1, None, b"tail")]
    whole.removed_producers = [ProducerKey("olga", "shop")]
    whole.producers = [ProducerRow("", "shop", 2, ((1, 5), (7, 9)), 11)]
    whole.deletions = [Deletion(1, 0, 2)]
    whole.gaps = [Gap(1, 5, 3)]
    whole.ledger = [ledger(1)]
    whole.exports = [export(1)]
    whole.exported = [ExportedBatches("deliveries", 20_000, 0, 1)]
    whole.finished_exports = [export(2)]
    assert [part.name for part in fields(whole) if not getattr(whole, part.name)] == []

    assert plain(carried(whole)) == plain(whole)


def test_every_field_of_an_origin_is_carried() -> None:
    """What is derived from others is made anew; a field that is added must be one of either."""
    derived = {"can_expire", "is_for_all_and_ever", "is_ordinary"}
    origin = Origin(
        "me",
        is_plain=False,
        is_persistent=False,
        lifetime_ns=1,
        expires_at_ns=2,
        only_for=3,
        group_key="a key",
        outcome_to="/queue/outcomes",
    )
    assert set(slots_of(Origin)) - derived == {
        "publisher", "is_plain", "is_persistent", "lifetime_ns", "expires_at_ns", "only_for", "group_key",
        "outcome_to",
    }  # fmt: skip

    batch = publication(1, [Message(1, b"x\0", origin, 4)])

    assert plain(carried(batch)) == plain(batch)


def test_messages_of_one_origin_share_it_when_they_arrive() -> None:
    origin = Origin("me", is_plain=True)
    (run,) = carried(publication(1, [Message(1, b"x\0", origin, number) for number in range(3)])).messages

    assert len({id(message.origin) for message in run.messages}) == 1


def test_tails_are_not_copied() -> None:
    messages = make_messages(3, size_bytes=1000)

    document, tails = encode(publication(1, messages))

    assert all(tail is message.tail for tail, message in zip(tails, messages, strict=True))
    assert len(document) < 1000
