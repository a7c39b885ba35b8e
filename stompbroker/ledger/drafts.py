"""Drafts: settled deliveries as the database has them, and the records made of them later.

Law: a draft holds the runs that were settled, and of each message what cannot be found again: its id, when it was
published, how long its body is and who published it. Only the exporting process makes columns of it, and needs Arrow.

Hot path, in the writing thread: a few calls per batch, 0.5 µs a message. Making Arrow's columns there took 4.6 µs
beside a busy loop, a quarter of the durable throughput (scenario `durable-without-ledger` of the benchmarks).
"""

from __future__ import annotations

import json
import struct
from array import array
from collections import defaultdict
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.ledger.records import Party, Settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from stompbroker.ledger.records import Account
    from stompbroker.message import Message

#: What is kept of a tail: its first line, which is the message id, and whatever follows. Message ids are shorter.
_HEAD_BYTES: Final = 64
_ID_START: Final = len(b"message-id:")
_MICROSECOND_NS: Final = 1000
#: The length of the JSON part, and the number of messages.
_LENGTHS: Final = struct.Struct("<II")

#: Made once: `json.dumps` would make an encoder for each call.
_as_json: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

_head_of: Final = itemgetter(slice(0, _HEAD_BYTES))
_tail_of: Final = attrgetter("tail")
_body_bytes_of: Final = attrgetter("body_bytes")
_origin_of: Final = attrgetter("origin")
_published_at_of: Final = attrgetter("published_at_ns")


def draft(accounts: Sequence[Account]) -> bytes:
    runs = [(number, run) for number, account in enumerate(accounts) for run in account.settled]
    messages: list[Message] = list(chain.from_iterable(run.messages for _, run in runs))
    origins = list(map(_origin_of, messages))
    numbers = {origin: number for number, origin in enumerate(dict.fromkeys(origins))}
    common = _as_json(
        {
            "parties": [account.party for account in accounts],
            "runs": [
                (number, run.outcome.value, *run[1:3], len(run.messages), *run[4 : None if run.member else -1])
                for number, run in runs
            ],
            "publishers": [origin.publisher for origin in numbers],
        }
    ).encode()
    return b"".join(
        (
            _LENGTHS.pack(len(common), len(messages)),
            common,
            *_heads(messages),
            array("q", list(map(_published_at_of, messages))).tobytes(),
            array("q", list(map(_body_bytes_of, messages))).tobytes(),
            array("i", list(map(numbers.__getitem__, origins)) if len(numbers) > 1 else [0] * len(messages)).tobytes(),
        )
    )


def _heads(messages: list[Message]) -> list[bytes]:
    heads = list(map(_head_of, map(_tail_of, messages)))
    if min(map(len, heads), default=_HEAD_BYTES) < _HEAD_BYTES:
        return [head.ljust(_HEAD_BYTES, b"\n") for head in heads]
    return heads


@final
class FairCopy:
    """Drafts as records: a row for each message, and one for each run of messages that are not known any more.

    Rows of many drafts gather in plain lists before Arrow's columns are made of them: those cost as much for five rows
    as for hundreds, and most drafts are short.
    """

    __slots__ = ("_columns",)

    def __init__(self) -> None:
        self._columns: defaultdict[str, list[Any]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._columns["offset"])

    def add(self, written: bytes) -> None:
        """Raises ValueError, LookupError or struct.error if this is no draft."""
        common_bytes, count = _LENGTHS.unpack_from(written)
        position = _LENGTHS.size
        common = json.loads(written[position : position + common_bytes])
        position += common_bytes
        heads = written[position : position + count * _HEAD_BYTES]
        starts = range(0, count * _HEAD_BYTES, _HEAD_BYTES)
        numbers = array("q", written[position + len(heads) : position + len(heads) + 16 * count])
        publishers = array("i", written[position + len(heads) + 16 * count :])
        known: dict[str, list[Any]] = {
            "message_id": [heads[start + _ID_START : heads.index(b"\n", start)] for start in starts],
            "published_at": [at_ns // _MICROSECOND_NS for at_ns in numbers[:count]],
            "body_bytes": numbers[count:].tolist(),
            "publisher": [common["publishers"][number] for number in publishers],
        }
        columns = self._columns
        parties = [Party(*party) for party in common["parties"]]
        taken = 0
        for number, outcome, first, length, messages, *rest in common["runs"]:
            run = Settled(outcome, first, length, (), *rest)
            rows = messages or 1
            for name, values in known.items():
                columns[name].extend(values[taken : taken + messages] if messages else [None])
            taken += messages
            columns["offset"].extend(range(first, first + messages) if messages else [first])
            in_common = parties[number]._asdict() | {
                "first_sent_at": _time(run.first_sent_ns),
                "last_sent_at": _time(run.last_sent_ns),
                "settled_at": _time(run.settled_at_ns),
                "attempts": run.attempts,
                "nacks": run.nacks,
                "last_reason": run.reason or None,
                "outcome": run.outcome,
                "weight": run.weight * (1 if messages else length),
                "member": run.member,
            }
            for name, value in in_common.items():
                columns[name].extend(repeat(value, rows))

    def take(self) -> pa.RecordBatch:
        """Take out all rows. Raises pyarrow.ArrowException if something was no draft."""
        import pyarrow as pa

        from stompbroker.ledger.schema import DELIVERIES

        columns, self._columns = self._columns, defaultdict(list)
        arrays = [pa.array(columns[field.name], type=field.type) for field in DELIVERIES]
        return pa.RecordBatch.from_arrays(arrays, schema=DELIVERIES)


@final
class BacklogCopy:
    """Drafts of the backlog as records; each is the rows as JSON."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, written: bytes) -> None:
        """Raises ValueError if this is no draft."""
        rows = json.loads(written)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("no rows of a backlog")
        self._rows += rows

    def take(self) -> pa.RecordBatch:
        """Take out all rows. Raises pyarrow.ArrowException or ValueError if something was no draft."""
        import pyarrow as pa

        from stompbroker.ledger.schema import BACKLOG

        rows, self._rows = self._rows, []
        return pa.RecordBatch.from_pylist(rows, schema=BACKLOG)


def _time(at_ns: int) -> int | None:
    return at_ns // _MICROSECOND_NS if at_ns else None
