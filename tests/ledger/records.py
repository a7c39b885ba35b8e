"""Records for tests: each is told from all others by its offset.

Law: knows the columns, and gives every one of them a value.
"""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa

from stompbroker.ledger.payload import unpack
from stompbroker.ledger.schema import BACKLOG, DELIVERIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.ledger import Kind

TIME = datetime(2026, 11, 16, 12, 30, 0, 123456, tzinfo=UTC)


def day_number(day: date) -> int:
    return (day - date(1970, 1, 1)).days


#: The day of TIME, as the store has it.
DAY = day_number(TIME.date())


def unpack_one(kind: Kind, payload: bytes) -> pa.RecordBatch:
    (records,) = unpack(kind, [(0, payload)])
    return records


def packed(records: pa.RecordBatch, *, version: int = 5) -> bytes:
    """As older releases packed records, and drafts of 1 KiB and more."""
    return compressed(version, records.serialize())


def compressed(version: int, packed: pa.Buffer | bytes) -> bytes:
    body: bytes = pa.Codec("zstd", 1).compress(packed, asbytes=True)
    return struct.pack("<BII", version, len(packed), crc32(body)) + body


def backlog_draft(count: int) -> bytes:
    rows = backlog_records(count).to_pylist()
    taken_at = int(TIME.timestamp() * 1_000_000)
    return json.dumps([row | {"taken_at": taken_at} for row in rows]).encode()


def deliveries(offsets: Iterable[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([_delivery(offset) for offset in offsets], schema=DELIVERIES)


def backlog_records(count: int) -> pa.RecordBatch:
    row = {
        "taken_at": TIME,
        "is_closing": False,
        "topic": "orders",
        "subscription": "billing/invoices",
        "client_id": None,
        "subscription_name": "invoices",
        "lag_messages": 3,
        "lag_s": 1.5,
        "in_flight": 2,
        "waiting": 1,
        "pinned_bytes": None,
        "kind": "topic",
    }
    return pa.RecordBatch.from_pylist([row] * count, schema=BACKLOG)


def _delivery(offset: int) -> dict[str, Any]:
    return {
        "message_id": None if offset % 7 == 0 else f"1a2b3c4d-1-{offset}",
        "topic": f"orders.{offset % 3}",
        "offset": offset,
        "subscription": "billing/invoices",
        "client_id": "billing",
        "subscription_name": "invoices",
        "is_durable": True,
        "ack_mode": "client-individual",
        "generation": offset % 2,
        "body_bytes": offset * 10,
        "publisher": "клиент",
        "published_at": TIME + timedelta(microseconds=offset),
        "first_sent_at": None if offset % 5 == 0 else TIME,
        "last_sent_at": None if offset % 5 == 0 else TIME,
        "settled_at": TIME + timedelta(seconds=1),
        "attempts": 1,
        "nacks": 0,
        "last_reason": "☃" if offset % 4 == 0 else None,
        "outcome": "acked",
        "weight": 1,
        "kind": "topic",
        "member": "worker-1" if offset % 3 == 0 else None,
    }
