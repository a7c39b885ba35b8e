"""The columns of the lake's files; `docs/ledger.md` explains each.

Law: a new column comes last and may be null, so that older files can still be read.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from stompbroker.ledger.lake import Kind

#: Parquet readers disagree about nanoseconds, and Spark refuses them.
_TIME: Final = pa.timestamp("us", tz="UTC")
#: Null, or not there, in files of older releases, which only knew topics.
_KIND: Final = pa.field("kind", pa.string())

#: One row per settled delivery; or for a run of messages that were settled together and are not known any more.
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
        _KIND,
        # Null, or not there, in files of releases that did not know members.
        pa.field("member", pa.string()),
    ]
)

#: One row per durable subscription and topic, every hour and at the end of a day.
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
        _KIND,
    ]
)

SCHEMAS: Final = {Kind.DELIVERIES: DELIVERIES, Kind.BACKLOG: BACKLOG}
