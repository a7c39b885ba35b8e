"""How far behind subscriptions are at one moment, as records. pyarrow is imported when the first one is packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.clock import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_MICROSECOND_NS: Final = 1000


class Behind(NamedTuple):
    """What one durable subscription has not settled of one topic."""

    topic: str
    subscription: str
    client_id: str | None
    subscription_name: str
    lag_messages: int
    #: When the oldest of them was published; None if there is none, or that is not known.
    oldest_published_ns: int | None
    in_flight: int
    waiting: int
    #: What the store keeps for it; None if that is not known.
    pinned_bytes: int | None
    #: Of the topic: topic or queue.
    kind: str


def backlog(found: Sequence[Behind], taken_at_ns: int, *, is_closing: bool) -> pa.RecordBatch:
    import pyarrow as pa

    from stompbroker.ledger.schema import BACKLOG

    rows = [
        {
            **one._asdict(),
            "taken_at": taken_at_ns // _MICROSECOND_NS,
            "is_closing": is_closing,
            "lag_s": _age_s(one.oldest_published_ns, taken_at_ns),
        }
        for one in found
    ]
    return pa.RecordBatch.from_pylist(rows, schema=BACKLOG)


def _age_s(published_ns: int | None, now_ns: int) -> float | None:
    # A clock that was set back must not make negative ages.
    return None if published_ns is None else max(0, now_ns - published_ns) / NANOSECONDS
