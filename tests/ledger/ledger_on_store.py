"""A ledger on a real store, with the journal's part played by the test: it says when a batch is written.

Law: what is written is written by the store, and files by a real process, which the test may have killed in the middle
of something. A process that dies is one whose `Exports` is forgotten; the next one has what the store kept.
"""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any, final

import pyarrow.parquet as pq

from stompbroker.ledger import ExportOrder, Exports, FileWritten, Kind
from stompbroker.ledger.export_process import ExitCode, carry_out
from stompbroker.storage import Batch, LedgerRow
from tests.ledger.records import DAY, deliveries, packed, unpack_one
from tests.support.prepared_process import PYTHON, run_prepared

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    import pyarrow as pa

    from tests.storage.place import Place

STORE_ID = "1a2b3c4d"
#: Where a process can be killed, by which function it calls first then.
ENDS = {
    "before anything is read": "stompbroker.ledger.export_process.open_lake",
    "in the middle of the file": "pyarrow.parquet.ParquetWriter.write_table",
    "before the file is on disk": "os.fsync",
    "before the file has its name": "pathlib.Path.rename",
    "before it is said that the file is there": "stompbroker.ledger.export_process.FileWritten.as_line",
    "before the lake says up to when it is complete": "stompbroker.ledger.lake.Lake.note_complete",
}
_KILLED_AT = """
import os, signal, sys
from unittest import mock
from stompbroker.ledger import export_process
import pyarrow.parquet, pathlib
with mock.patch({function!r}, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)):
    sys.exit(export_process.carry_out(export_process.ExportOrder.read(sys.stdin.buffer.read())))
"""


@final
class LedgerOnStore:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.lake: Path = place.directory / "lake"
        self._start_number = 0
        self._settled = 0
        self._store = place.open()
        self.exports = self._begin()

    def restart(self) -> None:
        """As another process that finds what there is. The one before may have died at any time."""
        self._store.close()
        self._store = self.place.open()
        self.exports = self._begin()

    def close(self) -> None:
        """For others to open it, as after a broker that was stopped."""
        self._store.close()

    def _begin(self) -> Exports:
        self._start_number += 1
        self._batch = self._store.take_ownership("a test").batch
        kept = self._store.load()
        return Exports(
            kept.exports,
            kept.gathered,
            lambda: None,
            store_id=STORE_ID,
            start_number=self._start_number,
            export_bytes=64 * 1024,
        )

    def write(self, *records: pa.RecordBatch, day: int = DAY, made_at_ns: int = 1) -> None:
        """What the journal does: these records, and whatever else is to be written down."""
        rows = [
            LedgerRow(
                self.exports.next_batch_id(),
                Kind.DELIVERIES.value,
                day,
                batch.num_rows,
                made_at_ns,
                partial(packed, batch),
            )
            for batch in records
        ]
        self._batch += 1
        batch = Batch(number=self._batch, ledger=rows)
        self.exports.take(batch)
        self._store.commit(batch)
        self.exports.note_written(batch)
        self.exports.check_invariants()

    def settle(self, *counts: int, day: int = DAY) -> None:
        """So many deliveries in each of so many batches, like no others."""
        for count in counts:
            self.write(deliveries(range(self._settled, self._settled + count)), day=day)
            self._settled += count

    def order(self, **more: Any) -> ExportOrder:
        """To write what is ready."""
        fields: dict[str, Any] = {
            "database": self.place.database,
            "data": str(self.place.directory),
            "lake": str(self.lake),
            "store_id": STORE_ID,
            "exports": self.exports.ready,
            "complete_until_ns": 1_800_000_000_123_000_000,
            "exported_at_ns": 1_800_000_001_000_000_000,
            "delete_before_day": None,
        }
        return ExportOrder(**(fields | more))

    def run_process(self, order: ExportOrder, *, killed_at: str | None = None) -> subprocess.CompletedProcess[bytes]:
        program = ["-m", "stompbroker.ledger.export_process"]
        if killed_at is not None:
            program = ["-c", _KILLED_AT.format(function=killed_at)]
        return run_prepared([*PYTHON, *program], given=order.as_bytes())

    def export(self) -> list[FileWritten]:
        """One round, whole; what is deleted afterwards is up to the test."""
        self.exports.plan(1_800_000_000_000_000_000)
        self.write()
        return self.write_files()

    def write_files(self) -> list[FileWritten]:
        """As the process does it, but in this one, which takes a tenth of the time."""
        with redirect_stdout(StringIO()) as said:
            assert carry_out(self.order()) is ExitCode.DONE
        files = FileWritten.read_all(said.getvalue().encode())
        for file in files:
            self.exports.note_file(file.export)
        return files

    def finish(self) -> None:
        """Everything that is in the lake goes from the store."""
        self.write()
        while self.exports.has_leftovers:
            self.exports.delete_portion()
            self.write()

    # Looking ---------------------------------------------------------------------------------------------------------

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.lake)) for path in self.lake.rglob("*.parquet"))

    def complete_until(self) -> str:
        said: str = json.loads((self.lake / "_complete_until.json").read_text())["complete_until"]
        return said

    def in_lake(self) -> list[int]:
        """The offsets of all records there."""
        return [offset for name in self.files() for offset in self.offsets_in(name)]

    def offsets_in(self, name: str) -> list[int]:
        found: list[int] = pq.ParquetFile(self.lake / name).read().column("offset").to_pylist()
        return found

    def in_store(self, *, also_exported: bool = False) -> list[int]:
        """Those that are to be exported; what a file holds that is there does not count."""
        written = (
            ""
            if also_exported
            else (
                " WHERE NOT EXISTS (SELECT 1 FROM ledger_exports e WHERE e.is_written AND e.kind = b.kind "
                "AND e.day = b.day AND e.after_batch < b.id AND e.last_batch >= b.id)"
            )
        )
        found: list[int] = []
        for kind, payload in self.place.query(f"SELECT kind, payload FROM ledger_batches b{written} ORDER BY id"):
            found += unpack_one(Kind(kind), bytes(payload)).column("offset").to_pylist()
        return found

    @property
    def settled(self) -> list[int]:
        return list(range(self._settled))
