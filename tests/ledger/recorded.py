"""What the ledger has of deliveries, as the database has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompbroker.ledger import Kind
from tests.ledger.records import unpack_one

if TYPE_CHECKING:
    from tests.support.broker_under_test import BrokerUnderTest


def recorded(broker: BrokerUnderTest, topic: str) -> list[dict[str, Any]]:
    """The records of a topic, in the order in which they were written."""
    payloads = broker.look("SELECT payload FROM ledger_batches WHERE kind = 'deliveries' ORDER BY id")
    rows = [row for (payload,) in payloads for row in unpack_one(Kind.DELIVERIES, payload).to_pylist()]
    return [row for row in rows if row["topic"] == topic]
