"""Records on their way through the database, as bytes.

Law: a version, the unpacked size, a checksum, and a draft, which the exporting process makes columns of. Older releases
also wrote record batches of Arrow without their schema: those stay readable, and their version says how many columns
there were. Who only packs needs no pyarrow, which takes 0.2 s to import and 37 MiB.
"""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final
from zlib import crc32

from stompbroker.clock import NANOSECONDS
from stompbroker.errors import BrokerError
from stompbroker.ledger.drafts import BacklogCopy, FairCopy
from stompbroker.ledger.lake import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from stompbroker.ledger.records import Behind

_MICROSECOND_NS: Final = 1000
_HEAD: Final = struct.Struct("<BII")
#: The versions of drafts. Short ones are not compressed: that takes 25 µs, a tenth of what a durable message that comes
#: alone costs. Those of older releases were compressed with zstd, for which Python needs pyarrow.
OLD_DRAFT: Final = 2
SHORT_DRAFT: Final = 3
DRAFT: Final = 6
COMPRESSED_BYTES: Final = 1024
_DRAFTS: Final = (OLD_DRAFT, SHORT_DRAFT, DRAFT)
#: How many columns each version of record batches has of each kind; new columns came last.
COLUMNS: Final = {
    1: {Kind.DELIVERIES: 20, Kind.BACKLOG: 11},
    4: {Kind.DELIVERIES: 21, Kind.BACKLOG: 12},
    5: {Kind.DELIVERIES: 22, Kind.BACKLOG: 12},
}
#: The quickest level makes 6 bytes of a message's 84, in 0.1 to 0.3 µs; zstd made 3 of them in the same time.
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

    __slots__ = ("_bytes", "_draft")

    def __init__(self, draft: Callable[[], bytes]) -> None:
        self._draft: Callable[[], bytes] | None = draft
        self._bytes = b""

    def __call__(self) -> bytes:
        if self._draft is not None:
            self._bytes = pack(self._draft())
            self._draft = None  # with all that it holds
        return self._bytes


def backlog(found: Sequence[Behind], taken_at_ns: int, *, is_closing: bool) -> bytes:
    """How far behind subscriptions are at one moment, as a draft: the rows, as JSON."""

    def age_s(published_ns: int | None) -> float | None:
        # A clock that was set back must not make negative ages.
        return None if published_ns is None else max(0, taken_at_ns - published_ns) / NANOSECONDS

    at_that_moment = {"taken_at": taken_at_ns // _MICROSECOND_NS, "is_closing": is_closing}
    rows = [{**one._asdict(), **at_that_moment, "lag_s": age_s(one.oldest_published_ns)} for one in found]
    return json.dumps(rows).encode()


def pack(draft: bytes) -> bytes:
    if len(draft) < COMPRESSED_BYTES:
        return _HEAD.pack(SHORT_DRAFT, len(draft), crc32(draft)) + draft
    compressed = zlib.compress(draft, _LEVEL)
    return _HEAD.pack(DRAFT, len(draft), crc32(compressed)) + compressed


def unpack(kind: Kind, batches: Iterable[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
    """The records of batches (id and payload), in order, of today's schema; those of drafts in larger record batches.

    Raises BrokenPayload, which names the batch.
    """
    copy = FairCopy() if kind is Kind.DELIVERIES else BacklogCopy()
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
                copy.add(message)
                copied.append(id)
            else:
                records = _records(kind, version, message)
        if version not in _DRAFTS or len(copy) >= COPIED_RECORDS:
            yield from take()
        if version not in _DRAFTS:
            yield records
    yield from take()


def _opened(payload: bytes) -> tuple[int, bytes]:
    """The version, and what was packed."""
    if len(payload) < _HEAD.size:
        raise BrokenPayload(f"only {len(payload)} bytes")
    version, size_bytes, checksum = _HEAD.unpack_from(payload)
    packed = payload[_HEAD.size :]
    if version not in COLUMNS and version not in _DRAFTS:
        raise BrokenPayload(f"of version {version}, of which this release knows nothing")
    if size_bytes > MAX_UNPACKED_BYTES:
        raise BrokenPayload(f"{size_bytes} bytes unpacked, more than anybody packs")
    if crc32(packed) != checksum:
        raise BrokenPayload("its checksum is another")
    if version == SHORT_DRAFT:
        return version, packed
    return version, _inflated(packed, size_bytes) if version == DRAFT else _decompressed(packed, size_bytes)


def _inflated(packed: bytes, size_bytes: int) -> bytes:
    """Raises ValueError."""
    inflating = zlib.decompressobj()
    try:
        # One byte more than there may be, to see that there are no more; and no more memory than that.
        found = inflating.decompress(packed, size_bytes + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(found) != size_bytes or not inflating.eof:
        raise ValueError(f"not the {size_bytes} bytes that were packed")
    return found


def _decompressed(packed: bytes, size_bytes: int) -> bytes:
    import pyarrow as pa

    found: bytes = pa.Codec("zstd").decompress(packed, size_bytes, asbytes=True)
    return found


def _records(kind: Kind, version: int, message: bytes) -> pa.RecordBatch:
    import pyarrow as pa

    from stompbroker.ledger.schema import SCHEMAS

    schema = SCHEMAS[kind]
    known = pa.schema(list(schema)[: COLUMNS[version][kind]])
    records = pa.ipc.read_record_batch(pa.py_buffer(message), known)
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
