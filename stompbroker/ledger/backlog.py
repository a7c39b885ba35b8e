"""How far behind subscriptions are at one moment, as records.

Law: values in, columns out. pyarrow is imported when the first one is packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.clock import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["Behind", "backlog"]

_MICROSECOND_NS: Final = 1000


class Behind(NamedTuple):
    """What one durable subscription has not settled of one topic."""

    topic: str
    subscription: str
    client_id: str | None
    subscription_name: str
    lag_messages: int
    #: When the oldest of them was published; none if there is none, or that is not known.
    oldest_published_ns: int | None
    in_flight: int
    waiting: int
    #: What the store keeps for it; none if that is not known.
    pinned_bytes: int | None
    #: Of the topic: topic or queue.
    kind: str


def backlog(found: Sequence[Behind], taken_at_ns: int, *, is_closing: bool) -> pa.RecordBatch:
    import pyarrow as pa

    from stompbroker.ledger.schema import BACKLOG

    columns = {
        "taken_at": [taken_at_ns // _MICROSECOND_NS] * len(found),
        "is_closing": [is_closing] * len(found),
        "topic": [one.topic for one in found],
        "subscription": [one.subscription for one in found],
        "client_id": [one.client_id for one in found],
        "subscription_name": [one.subscription_name for one in found],
        "lag_messages": [one.lag_messages for one in found],
        "lag_s": [_age_s(one.oldest_published_ns, taken_at_ns) for one in found],
        "in_flight": [one.in_flight for one in found],
        "waiting": [one.waiting for one in found],
        "pinned_bytes": [one.pinned_bytes for one in found],
        "kind": [one.kind for one in found],
    }
    arrays = [pa.array(columns[field.name], type=field.type) for field in BACKLOG]
    return pa.RecordBatch.from_arrays(arrays, schema=BACKLOG)


def _age_s(published_ns: int | None, now_ns: int) -> float | None:
    # A clock that was set back must not make ages of less than nothing.
    return None if published_ns is None else max(0, now_ns - published_ns) / NANOSECONDS
