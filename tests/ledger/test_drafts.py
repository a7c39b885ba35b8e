"""What was put down beside a cursor becomes records, many drafts at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from stompbroker.ledger import Kind, payload
from stompbroker.ledger.drafts import draft
from stompbroker.ledger.payload import BrokenPayload, pack, unpack
from stompbroker.ledger.records import Account, Outcome, Party, Settled
from stompbroker.ledger.schema import DELIVERIES
from tests.ledger.records import deliveries, packed, unpack_one
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTY = Party("orders", "billing/invoices", "billing", "invoices", True, "client", 0)
SENT = datetime(2026, 11, 16, 12, tzinfo=UTC)
SENT_NS = int(SENT.timestamp()) * 1_000_000_000
SETTLED_NS = SENT_NS + 2_000_000


def drafted(*settled: Settled, party: Party = PARTY) -> bytes:
    return pack(draft([Account(party, list(settled))]))


def acked(first: int, count: int) -> Settled:
    return Settled(Outcome.ACKED, first, count, make_messages(count), SETTLED_NS, SENT_NS, SENT_NS, attempts=1)


def drafts_of_five(count: int) -> list[tuple[int, bytes]]:
    """Offsets go on from one to the next."""
    return [(number, drafted(acked(5 * number, 5))) for number in range(count)]


def offsets(records: Iterable[pa.RecordBatch]) -> list[int]:
    return [offset for batch in records for offset in batch.column("offset").to_pylist()]


def test_every_message_of_a_draft_is_a_row() -> None:
    messages = [make_message(b"four", number=7, publisher="Jörg"), make_message(b"", number=8, publisher="shop")]
    run = Settled(
        Outcome.DEAD, 40, 2, messages, SETTLED_NS, SENT_NS, SENT_NS + 1_000, attempts=3, nacks=2, reason="no", weight=10
    )

    first, second = unpack_one(Kind.DELIVERIES, drafted(run)).to_pylist()

    assert first == {
        "message_id": "test-1-7",
        "topic": "orders",
        "offset": 40,
        "subscription": "billing/invoices",
        "client_id": "billing",
        "subscription_name": "invoices",
        "is_durable": True,
        "ack_mode": "client",
        "generation": 0,
        "body_bytes": 4,
        "publisher": "Jörg",
        "published_at": datetime(1970, 1, 1, tzinfo=UTC),
        "first_sent_at": SENT,
        "last_sent_at": SENT + timedelta(microseconds=1),
        "settled_at": SENT + timedelta(milliseconds=2),
        "attempts": 3,
        "nacks": 2,
        "last_reason": "no",
        "outcome": "dead",
        "weight": 10,
        "kind": "topic",
        "member": None,
    }
    assert second == first | {"message_id": "test-1-8", "offset": 41, "body_bytes": 0, "publisher": "shop"}


def test_a_draft_says_of_which_kind_its_topic_is_and_an_older_one_means_topics() -> None:
    of_queue = drafted(acked(0, 1), party=PARTY._replace(kind="queue"))
    older = draft([Account(PARTY[:-1], [acked(1, 1)])])  # type: ignore[arg-type]

    assert unpack_one(Kind.DELIVERIES, of_queue).column("kind").to_pylist() == ["queue"]
    assert unpack_one(Kind.DELIVERIES, pack(older)).column("kind").to_pylist() == ["topic"]


def test_a_draft_says_which_member_had_a_run_and_one_without_members_is_as_in_older_releases() -> None:
    of_group = drafted(acked(0, 2)._replace(member="worker-1"), acked(2, 1))
    of_nobody = draft([Account(PARTY, [acked(0, 1)])])

    assert unpack_one(Kind.DELIVERIES, of_group).column("member").to_pylist() == ["worker-1", "worker-1", None]
    assert b',1]],"publishers"' in of_nobody  # the weight comes last


def test_a_stretch_of_messages_that_nobody_knows_is_one_row() -> None:
    stretch = Settled(Outcome.UNSUBSCRIBED, 100, 1_000_000, (), SETTLED_NS)

    known, unknown = unpack_one(Kind.DELIVERIES, drafted(acked(99, 1), stretch)).to_pylist()

    assert (known["offset"], known["weight"]) == (99, 1)
    nothing = ("message_id", "body_bytes", "publisher", "published_at", "first_sent_at", "last_sent_at", "last_reason")
    assert {name: unknown[name] for name in nothing} == dict.fromkeys(nothing)
    assert (unknown["offset"], unknown["weight"], unknown["outcome"]) == (100, 1_000_000, "unsubscribed")


def test_many_small_drafts_are_copied_together_and_columns_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    array = pa.array

    def counted(*arguments: Any, **more: Any) -> pa.Array:
        nonlocal made
        made += 1
        return array(*arguments, **more)

    monkeypatch.setattr(pa, "array", counted)

    found = list(unpack(Kind.DELIVERIES, drafts_of_five(1000)))

    assert made == len(DELIVERIES)
    assert offsets(found) == list(range(5000))


def test_no_more_rows_gather_than_are_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "COPIED_RECORDS", 12)

    found = list(unpack(Kind.DELIVERIES, drafts_of_five(8)))

    assert [batch.num_rows for batch in found] == [15, 15, 10]
    assert offsets(found) == list(range(40))


def test_drafts_and_records_among_each_other_stay_in_order() -> None:
    first, second, third = (written for _, written in drafts_of_five(3))
    batches = [(1, first), (2, second), (3, packed(deliveries(range(50, 53)))), (4, third)]

    found = list(unpack(Kind.DELIVERIES, batches))

    assert [batch.num_rows for batch in found] == [10, 3, 5]
    assert offsets(found) == [*range(10), 50, 51, 52, *range(10, 15)]


def test_what_is_no_draft_is_named_among_many() -> None:
    batches = drafts_of_five(10)
    batches[6] = (6, pack(b"nothing of ours"))

    with pytest.raises(BrokenPayload, match=r"^batch 6 of the ledger cannot be read: "):
        list(unpack(Kind.DELIVERIES, batches))


def test_a_draft_that_says_what_cannot_be_is_named_with_those_it_was_copied_with() -> None:
    batches = drafts_of_five(3)
    batches[1] = (1, drafted(acked(5, 5), party=PARTY._replace(generation=2**40)))

    with pytest.raises(BrokenPayload, match=r"^one of batches 0 to 2 of the ledger cannot be read: "):
        list(unpack(Kind.DELIVERIES, batches))
