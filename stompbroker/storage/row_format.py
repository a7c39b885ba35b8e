"""What a row holds besides plain values: a checksum, and the settled ranges of a cursor.

A checksum covers the values before it as Python prints them, so that a changed type counts too. Hot path: those of
`messages` cover packed numbers and begin with a value per origin, which takes 1.3 µs instead of 3.3.

Settled ranges are pairs of little-endian 64-bit integers, start and stop. Variable-length differences would be smaller,
but C does this packing: 0.6 against 1.5 ms for ten thousand ranges, more than a subscription can have.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from stompbroker.storage.failures import StoreDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_packed: Final = struct.Struct("<qqqqq").pack
#: Stands for a message that does not expire.
_NEVER: Final = -1


def checksum(values: tuple[Any, ...], blob: bytes = b"") -> int:
    return crc32(blob, crc32(repr(values).encode()))


def with_checksum(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row, checksum(tuple(row)))


def checked(table: str, rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Rows of a table without their checksums, which come last. Raises StoreDamaged at the first one that is not as it
    was written."""
    for *values, found in rows:
        row = tuple(values)
        if found is not None and found != checksum(row):
            raise StoreDamaged(f"a row of the table {table} is not as it was written (its key is {row[0]!r})")
        yield row


def origin_checksum(
    publisher: str, only_for: int | None, group_key: str | None = None, outcome_to: str | None = None
) -> int:
    """The beginning of the checksums of all messages that have this in common. The last two, which were added later,
    count only if one is there."""
    if group_key is None and outcome_to is None:
        return checksum((publisher, only_for))
    return checksum((publisher, only_for, group_key, outcome_to))


def message_checksum(
    origin: int,
    topic_id: int,
    offset: int,
    published_at_ns: int,
    body_bytes: int,
    expires_at_ns: int | None,
    tail: bytes,
) -> int:
    """`origin` is the result of `origin_checksum`."""
    expires = _NEVER if expires_at_ns is None else expires_at_ns
    return crc32(tail, crc32(_packed(topic_id, offset, published_at_ns, body_bytes, expires), origin))


def value_checksum(row: tuple[Any, ...]) -> int:
    """Of a row of `last_values`, whose last value is the tail."""
    return checksum(tuple(row[:-1]), row[-1])


def pack_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    return struct.pack(f"<{2 * len(ranges)}q", *chain.from_iterable(ranges)) if ranges else b""


def unpack_ranges(blob: bytes) -> tuple[tuple[int, int], ...]:
    return tuple(struct.iter_unpack("<qq", blob))
