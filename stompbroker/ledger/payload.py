"""Records on their way through the database, as bytes.

Law: a version, the unpacked size, a checksum, and one compressed record batch without its schema, or a draft. Every
version stays readable; it says how many columns there were. pyarrow is imported with the first record.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final
from zlib import crc32

from stompbroker.clock import NANOSECONDS
from stompbroker.errors import BrokerError
from stompbroker.ledger.drafts import FairCopy
from stompbroker.ledger.lake import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from stompbroker.ledger.records import Behind

_MICROSECOND_NS: Final = 1000
_HEAD: Final = struct.Struct("<BII")
#: The versions of drafts. Short ones are not compressed: that takes 25 µs, a tenth of what a durable message that comes
#: alone costs.
DRAFT: Final = 2
SHORT_DRAFT: Final = 3
COMPRESSED_BYTES: Final = 1024
_DRAFTS: Final = (DRAFT, SHORT_DRAFT)
#: How many columns each version has of each kind; new columns come last.
COLUMNS: Final = {
    1: {Kind.DELIVERIES: 20, Kind.BACKLOG: 11},
    4: {Kind.DELIVERIES: 21, Kind.BACKLOG: 12},
    5: {Kind.DELIVERIES: 22, Kind.BACKLOG: 12},
}
VERSION: Final = 5
#: The quickest level compresses to a third; higher ones gain little for a few hundred records.
_LEVEL: Final = 1
#: More is a broken size: this is 200 bytes each for a million records.
MAX_UNPACKED_BYTES: Final = 256 * 1024 * 1024
#: Rows of drafts that gather before columns are made of them, about 400 bytes each. More is no quicker.
COPIED_RECORDS: Final = 16 * 1024


class BrokenPayload(BrokerError):
    """These bytes are not what was packed."""


@final
class Payload:
    """Records that are packed by the first call, in whichever thread that is; later calls return the same bytes."""

    __slots__ = ("_bytes", "_make")

    def __init__(self, make: Callable[[], pa.RecordBatch | bytes]) -> None:
        self._make: Callable[[], pa.RecordBatch | bytes] | None = make
        self._bytes = b""

    def __call__(self) -> bytes:
        if self._make is not None:
            made = self._make()
            self._bytes = pack_draft(made) if isinstance(made, bytes) else pack(made)
            self._make = None  # with all that it holds
        return self._bytes


def backlog(found: Sequence[Behind], taken_at_ns: int, *, is_closing: bool) -> pa.RecordBatch:
    """How far behind subscriptions are at one moment, as records."""
    import pyarrow as pa

    from stompbroker.ledger.schema import BACKLOG

    def age_s(published_ns: int | None) -> float | None:
        # A clock that was set back must not make negative ages.
        return None if published_ns is None else max(0, taken_at_ns - published_ns) / NANOSECONDS

    at_that_moment = {"taken_at": taken_at_ns // _MICROSECOND_NS, "is_closing": is_closing}
    rows = [{**one._asdict(), **at_that_moment, "lag_s": age_s(one.oldest_published_ns)} for one in found]
    return pa.RecordBatch.from_pylist(rows, schema=BACKLOG)


def pack(records: pa.RecordBatch) -> bytes:
    return _packed(VERSION, records.serialize())


def pack_draft(draft: bytes) -> bytes:
    if len(draft) < COMPRESSED_BYTES:
        return _HEAD.pack(SHORT_DRAFT, len(draft), crc32(draft)) + draft
    return _packed(DRAFT, draft)


def _packed(version: int, message: pa.Buffer | bytes) -> bytes:
    import pyarrow as pa

    compressed: bytes = pa.Codec("zstd", _LEVEL).compress(message, asbytes=True)
    return _HEAD.pack(version, len(message), crc32(compressed)) + compressed


def unpack(kind: Kind, batches: Iterable[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
    """The records of batches (id and payload), in order, of today's schema; those of drafts in larger record batches.

    Raises BrokenPayload, which names the batch.
    """
    copy = FairCopy()
    copied: list[int] = []

    def take() -> Iterator[pa.RecordBatch]:
        if copied:
            with _naming(f"batch {copied[0]}" if len(copied) == 1 else f"one of batches {copied[0]} to {copied[-1]}"):
                records = copy.take()
            copied.clear()
            yield records

    for id, payload in batches:
        with _naming(f"batch {id}"):
            version, message = _opened(payload)
            if version in _DRAFTS:
                copy.add(message.to_pybytes())
                copied.append(id)
            else:
                records = _records(kind, version, message)
        if version not in _DRAFTS or len(copy) >= COPIED_RECORDS:
            yield from take()
        if version not in _DRAFTS:
            yield records
    yield from take()


def _opened(payload: bytes) -> tuple[int, pa.Buffer]:
    """The version, and what was packed."""
    import pyarrow as pa

    if len(payload) < _HEAD.size:
        raise BrokenPayload(f"only {len(payload)} bytes")
    version, size_bytes, checksum = _HEAD.unpack_from(payload)
    compressed = memoryview(payload)[_HEAD.size :]
    if version not in COLUMNS and version not in _DRAFTS:
        raise BrokenPayload(f"of version {version}, of which this release knows nothing")
    if size_bytes > MAX_UNPACKED_BYTES:
        raise BrokenPayload(f"{size_bytes} bytes unpacked, more than anybody packs")
    if crc32(compressed) != checksum:
        raise BrokenPayload("its checksum is another")
    if version == SHORT_DRAFT:
        return version, pa.py_buffer(compressed)
    return version, pa.Codec("zstd").decompress(compressed, size_bytes)


def _records(kind: Kind, version: int, message: pa.Buffer) -> pa.RecordBatch:
    import pyarrow as pa

    from stompbroker.ledger.schema import SCHEMAS

    schema = SCHEMAS[kind]
    known = pa.schema(list(schema)[: COLUMNS[version][kind]])
    records = pa.ipc.read_record_batch(message, known)
    records.validate(full=True)
    missing = [pa.nulls(records.num_rows, field.type) for field in list(schema)[len(known) :]]
    return pa.RecordBatch.from_arrays([*records.columns, *missing], schema=schema)


@contextmanager
def _naming(batch: str) -> Iterator[None]:
    """Raises BrokenPayload, which names the batch, for any error that broken bytes cause in the block."""
    import pyarrow as pa

    try:
        yield
    except (BrokenPayload, pa.ArrowException, OSError, ValueError, LookupError, struct.error) as error:
        reason = str(error).splitlines()[0]
        raise BrokenPayload(f"{batch} of the ledger cannot be read: {reason}") from error
