"""The two tables of the lake, as the broker writes them.

Names and Arrow types. `docs/ledger.md` and the broker's `stompbroker/ledger/schema.py` explain the columns; a test
compares both files, since this package never imports the broker. New columns come last and may be null.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_TIME: Final = pa.timestamp("us", tz="UTC")

DELIVERIES: Final = pa.schema(
    [
        pa.field("message_id", pa.string()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("subscription", pa.string(), nullable=False),
        pa.field("client_id", pa.string()),
        pa.field("subscription_name", pa.string(), nullable=False),
        pa.field("is_durable", pa.bool_(), nullable=False),
        pa.field("ack_mode", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("body_bytes", pa.int64()),
        pa.field("publisher", pa.string()),
        pa.field("published_at", _TIME),
        pa.field("first_sent_at", _TIME),
        pa.field("last_sent_at", _TIME),
        pa.field("settled_at", _TIME, nullable=False),
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("nacks", pa.int32(), nullable=False),
        pa.field("last_reason", pa.string()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("weight", pa.int64(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("member", pa.string()),
    ]
)

BACKLOG: Final = pa.schema(
    [
        pa.field("taken_at", _TIME, nullable=False),
        pa.field("is_closing", pa.bool_(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("subscription", pa.string(), nullable=False),
        pa.field("client_id", pa.string()),
        pa.field("subscription_name", pa.string(), nullable=False),
        pa.field("lag_messages", pa.int64(), nullable=False),
        pa.field("lag_s", pa.float64()),
        pa.field("in_flight", pa.int64(), nullable=False),
        pa.field("waiting", pa.int64(), nullable=False),
        pa.field("pinned_bytes", pa.int64()),
        pa.field("kind", pa.string()),
    ]
)

#: By the name of the table's folder.
TABLES: Final = {"deliveries": DELIVERIES, "backlog": BACKLOG}

#: Values of the column `outcome`, in the report's order.
OUTCOMES: Final = (
    "acked",
    "sent",
    "dead",
    "discarded",
    "expired",
    "evicted",
    "dropped",
    "unsubscribed",
    "skipped",
)
