"""What a record of the ledger holds: the one schema of outbox, lake and report.

Law: names and types, and nothing that runs. A file of the lake has exactly these columns; a column that is added
comes last and may be null, so that older files can still be read. `docs/ledger.md` explains every one of them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from stompbroker.ledger.lake import Kind

__all__ = ["BACKLOG", "DELIVERIES", "SCHEMAS"]

#: Parquet readers disagree about nanoseconds, and Spark refuses them.
_TIME: Final = pa.timestamp("us", tz="UTC")
#: Of the topic: topic or queue. Null, or not there, in files of older releases, which only knew topics.
_KIND: Final = pa.field("kind", pa.string())

#: One row per settled delivery.
DELIVERIES: Final = pa.schema(
    [
        # Null in a record that stands for a stretch of messages which were settled together and never sent.
        pa.field("message_id", pa.string()),
        pa.field("topic", pa.string(), nullable=False),
        # Of the first message, where it stands for a stretch.
        pa.field("offset", pa.int64(), nullable=False),
        # As people write it: CLIENT-ID/NAME, or what the broker calls one that is not named.
        pa.field("subscription", pa.string(), nullable=False),
        pa.field("client_id", pa.string()),
        # The name of a durable one, the id of a transient one.
        pa.field("subscription_name", pa.string(), nullable=False),
        pa.field("is_durable", pa.bool_(), nullable=False),
        pa.field("ack_mode", pa.string(), nullable=False),
        # 0, and one more each time that the subscription was moved to another place.
        pa.field("generation", pa.int32(), nullable=False),
        # The length of the body; null where the message is not known.
        pa.field("body_bytes", pa.int64()),
        # Name of the connection that published it.
        pa.field("publisher", pa.string()),
        pa.field("published_at", _TIME),
        # Null: never sent.
        pa.field("first_sent_at", _TIME),
        pa.field("last_sent_at", _TIME),
        pa.field("settled_at", _TIME, nullable=False),
        # How often it was sent, as `delivery-count` says it; and how often it was refused.
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("nacks", pa.int32(), nullable=False),
        # Why it last failed.
        pa.field("last_reason", pa.string()),
        # A word of `stompbroker.ledger.outcome`.
        pa.field("outcome", pa.string(), nullable=False),
        # How many deliveries the record stands for: 1, or more where only some are kept, or where it is a stretch.
        pa.field("weight", pa.int64(), nullable=False),
        _KIND,
    ]
)

#: One row per durable subscription and topic, every hour and at the end of a day.
BACKLOG: Final = pa.schema(
    [
        pa.field("taken_at", _TIME, nullable=False),
        # The last one of a day, taken when it ended; its partition is that day.
        pa.field("is_closing", pa.bool_(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("subscription", pa.string(), nullable=False),
        pa.field("client_id", pa.string()),
        pa.field("subscription_name", pa.string(), nullable=False),
        # Unsettled messages, of which so many are in flight or wait for their time.
        pa.field("lag_messages", pa.int64(), nullable=False),
        # The age of the oldest unsettled one; null where nothing is unsettled, or its time is not known.
        pa.field("lag_s", pa.float64()),
        pa.field("in_flight", pa.int64(), nullable=False),
        pa.field("waiting", pa.int64(), nullable=False),
        # What is kept in the store for this subscription; null where that is not known.
        pa.field("pinned_bytes", pa.int64()),
        _KIND,
    ]
)

SCHEMAS: Final = {Kind.DELIVERIES: DELIVERIES, Kind.BACKLOG: BACKLOG}
