"""Records come out of the database as they went in, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from stompbroker.ledger import Kind, Payload
from stompbroker.ledger import payload as packing
from stompbroker.ledger.payload import BrokenPayload, pack
from stompbroker.ledger.schema import BACKLOG, DELIVERIES, SCHEMAS
from tests.ledger.records import backlog_draft, backlog_records, compressed, deliveries, packed, unpack_one

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("count", [0, 1, 2, 500, 5000])
def test_records_are_the_same_again(count: int) -> None:
    records = deliveries(range(count))

    assert unpack_one(Kind.DELIVERIES, packed(records)) == records
    assert unpack_one(Kind.BACKLOG, packed(backlog_records(count))) == backlog_records(count)
    assert unpack_one(Kind.BACKLOG, pack(backlog_draft(count))) == backlog_records(count)


def test_a_record_takes_little_room() -> None:
    assert len(pack(backlog_draft(500))) / 500 < 3


def test_what_the_last_version_had_is_what_the_schema_begins_with() -> None:
    assert packing.COLUMNS[5] == {Kind.DELIVERIES: len(DELIVERIES), Kind.BACKLOG: len(BACKLOG)}


def test_drafts_of_older_releases_stay_readable() -> None:
    payload = compressed(packing.OLD_DRAFT, backlog_draft(100))

    assert unpack_one(Kind.BACKLOG, payload) == backlog_records(100)


def test_records_of_an_earlier_schema_have_nothing_in_later_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = packed(deliveries(range(3)))
    later = pa.schema([*DELIVERIES, pa.field("colour", pa.string())])
    monkeypatch.setitem(SCHEMAS, Kind.DELIVERIES, later)

    found = unpack_one(Kind.DELIVERIES, payload)

    assert found.schema == later
    assert found.column("colour").to_pylist() == [None, None, None]
    assert found.column("offset").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(("version", "lacking"), [(1, ["kind", "member"]), (4, ["member"])])
def test_records_of_older_releases_have_nothing_in_the_columns_they_lack(version: int, lacking: list[str]) -> None:
    before = deliveries(range(3)).select([name for name in DELIVERIES.names if name not in lacking])

    found = unpack_one(Kind.DELIVERIES, packed(before, version=version))

    assert [found.column(name).to_pylist() for name in lacking] == [[None, None, None]] * len(lacking)
    assert found.select(before.schema.names) == before


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda payload: b"", "only 0 bytes"),
    "a part of its head": (lambda payload: payload[:8], "only 8 bytes"),
    "a later version": (lambda payload: b"\x63" + payload[1:], "of version 99, of which this release knows nothing"),
    "its beginning": (lambda payload: payload[:-1], "its checksum is another"),
    "one other bit": (
        lambda payload: payload[:200] + bytes([payload[200] ^ 1]) + payload[201:],
        "its checksum is another",
    ),
    "too large": (lambda payload: payload[:1] + b"\xff" * 4 + payload[5:], "more than anybody packs"),
    "too small": (lambda payload: payload[:1] + b"\x01\0\0\0" + payload[5:], "."),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("is_draft", [False, True], ids=["records", "draft"])
def test_what_is_not_what_was_packed_is_not_taken_for_it(damage: str, is_draft: bool) -> None:
    payload = pack(backlog_draft(3000)) if is_draft else packed(backlog_records(3000))
    damaged, reason = DAMAGES[damage]

    with pytest.raises(BrokenPayload, match=reason):
        unpack_one(Kind.BACKLOG, damaged(payload))


@pytest.mark.parametrize("written", [b"{}", b"[1]", b'[{"lag_messages": "many"}]', b"nothing"])
def test_what_is_no_backlog_is_not_taken_for_one(written: bytes) -> None:
    with pytest.raises(BrokenPayload):
        unpack_one(Kind.BACKLOG, pack(written))


def test_records_of_another_kind_are_not_taken_for_deliveries() -> None:
    for payload in (packed(backlog_records(3)), pack(backlog_draft(3)), pack(backlog_draft(300))):
        with pytest.raises(BrokenPayload):
            unpack_one(Kind.DELIVERIES, payload)


def test_a_payload_is_made_once() -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"a draft"

    payload = Payload(make)
    assert made == []

    assert payload() == payload()

    assert made == [1]


def test_who_only_packs_does_without_arrow() -> None:
    program = """
import sys, stompbroker.broker
from stompbroker.ledger import Behind, Payload, backlog
behind = Behind("orders", "billing", None, "billing", 3, None, 0, 0, None, "topic")
assert len(Payload(lambda: backlog([behind] * 50, 0, is_closing=False))()) < 1000
assert not [name for name in sys.modules if "pyarrow" in name]
"""

    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
