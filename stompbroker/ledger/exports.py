"""Which records of the ledger are in the database, and which files of the lake are made of them.

Law: synchronous, and knows neither files nor SQL. The journal writes each decision with its next batch (`take`); it
holds from then on (`note_written`). A file is planned, with its final name, before it is begun, and its batches are
deleted only after the file was noted as written. So after a kill the next broker repeats the same file, or goes on
deleting.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS
from stompbroker.signals import Signal
from stompbroker.storage import ExportedBatches, ExportRow, LedgerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.ledger.lake import Kind
    from stompbroker.storage import Batch, Gathered

#: Batches that are deleted at once: so many bytes, or so many of them, take 1 to 2 ms.
PORTION_BYTES: Final = 512 * 1024
PORTION_BATCHES: Final = 1000

_DAY_NS: Final = 86_400 * NANOSECONDS


def day_of(at_ns: int) -> int:
    """Days since the epoch, in UTC."""
    return at_ns // _DAY_NS


@final
class State(Enum):
    PLANNED = "to be written down before its file is begun"
    READY = "written down; its file is to be written"
    WRITTEN = "its file is there, which is to be written down"
    LEFT = "written down; its batches are to be deleted"


@final
@dataclass(slots=True)
class Portion:
    """Neighbouring batches of one kind and day."""

    last_batch: int
    records: int
    payload_bytes: int
    #: When the first record was made.
    oldest_ns: int
    batches: int


@final
@dataclass(slots=True)
class Export:
    row: ExportRow
    state: State
    #: What is still to be deleted, in order.
    portions: deque[Portion] = field(default_factory=deque)
    #: Whether the batch that is being written has its new state.
    is_taken: bool = False

    @property
    def is_to_be_noted(self) -> bool:
        return self.state in (State.PLANNED, State.WRITTEN)


@final
@dataclass(slots=True)
class _Pile:
    """What has gathered of one kind and day, and is in no export yet; never empty."""

    portions: deque[Portion] = field(default_factory=deque)
    payload_bytes: int = 0

    def add(self, new: Portion) -> None:
        self.payload_bytes += new.payload_bytes
        last = self.portions[-1] if self.portions else None
        if last is None or last.payload_bytes >= PORTION_BYTES or last.batches >= PORTION_BATCHES:
            self.portions.append(new)
            return
        last.last_batch = max(last.last_batch, new.last_batch)
        last.records += new.records
        last.payload_bytes += new.payload_bytes
        last.oldest_ns = min(last.oldest_ns, new.oldest_ns)
        last.batches += new.batches


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What is in the database and in no file of the lake yet."""

    records: int
    payload_bytes: int
    #: When the oldest of it was made; None if there is nothing.
    oldest_ns: int | None


@final
class Exports:
    """
    Invariants:
        every batch in the database is in one portion, of what has gathered or of one export
        of one kind and day, the batches of an export lie behind those of all earlier ones
        no two names are the same, whichever process of this store made them
    """

    def __init__(
        self,
        exports: Sequence[ExportRow],
        gathered: Sequence[Gathered],
        wake_journal: Callable[[], None],
        *,
        store_id: str,
        start_number: int,
        export_bytes: int,
    ) -> None:
        """`exports` and `gathered` are what the store had kept. A file holds about `export_bytes` of payload."""
        self._wake_journal = wake_journal
        self._name_part = f"{store_id}-{start_number}"
        #: Records that are not in the database yet, without their numbers.
        self._new: list[LedgerRow] = []
        #: What is in no export yet, by day and kind; how much is enough for a file; and woken when there is so much.
        self._piles: dict[tuple[int, str], _Pile] = {}
        self.full_bytes = export_bytes
        self.filled = Signal()
        self._exports: dict[int, Export] = {}
        #: Whether a portion was asked to be deleted and is not yet gone; and whether the batch on its way deletes it.
        self.is_deleting = False
        self._is_portion_taken = False
        #: Woken whenever something was written down.
        self.progressed = Signal()
        for row in exports:
            self._exports[row.id] = Export(row, State.LEFT if row.is_written else State.READY)
        for found in gathered:
            portion = Portion(
                found.last_batch, found.records, found.payload_bytes, found.oldest_made_at_ns, batches=PORTION_BATCHES
            )
            if found.export:
                self._exports[found.export].portions.append(portion)
            else:
                self._gather(found.day, found.kind, portion)
        ends = [row.last_batch for row in exports] + [found.last_batch for found in gathered]
        self._last_batch = max(ends, default=0)
        self._last_export = max((row.id for row in exports), default=0)

    # For the journal -------------------------------------------------------------------------------------------------

    def next_batch_id(self) -> int:
        self._last_batch += 1
        return self._last_batch

    @property
    def has_changes(self) -> bool:
        """Whether there is something to write down that no batch has yet."""
        return bool(
            self._new
            or (self.is_deleting and not self._is_portion_taken and self.has_leftovers)
            or any(export.is_to_be_noted and not export.is_taken for export in self._exports.values())
        )

    def take(self, batch: Batch) -> None:
        """Add what is to be written down. Called once for each batch, which is written, or the broker ends."""
        batch.ledger += [row._replace(id=self.next_batch_id()) for row in self._new]
        self._new = []
        for export in self._exports.values():
            if export.is_to_be_noted:
                batch.exports.append(export.row._replace(is_written=export.state is State.WRITTEN))
                export.is_taken = True
        if self.is_deleting:
            self._add_portion(batch)

    def _add_portion(self, batch: Batch) -> None:
        export = next((export for export in self._exports.values() if export.state is State.LEFT), None)
        if export is None:
            return
        self._is_portion_taken = True
        row = export.row
        if len(export.portions) > 1:
            batch.exported.append(ExportedBatches(row.kind, row.day, row.after_batch, export.portions[0].last_batch))
        else:
            batch.finished_exports.append(row)

    def note_written(self, batch: Batch) -> None:
        """The batch is in the store."""
        for row in batch.ledger:
            self._gather(row.day, row.kind, Portion(row.id, row.records, len(row.payload()), row.made_at_ns, batches=1))
        for written in batch.exports:
            export = self._exports[written.id]
            export.row, export.state = written, State.LEFT if written.is_written else State.READY
            export.is_taken = False
        for deleted in batch.exported:
            for export in self._exports.values():
                if export.portions and export.portions[0].last_batch == deleted.last_batch:
                    export.portions.popleft()
        for finished in batch.finished_exports:
            del self._exports[finished.id]
        if batch.exported or batch.finished_exports:
            self.is_deleting = self._is_portion_taken = False
        self.progressed.wake()

    def _gather(self, day: int, kind: str, portion: Portion) -> None:
        pile = self._piles.setdefault((day, kind), _Pile())
        was_full = pile.payload_bytes >= self.full_bytes
        pile.add(portion)
        if pile.payload_bytes >= self.full_bytes and not was_full:
            self.filled.wake()

    # For records that do not come from the journal -------------------------------------------------------------------

    def add(self, kind: Kind, day: int, records: int, made_at_ns: int, payload: Callable[[], bytes]) -> None:
        """Records that belong to no unit; they go with the next batch."""
        self._new.append(LedgerRow(0, kind.value, day, records, made_at_ns, payload))
        self._wake_journal()

    # For the exporter ------------------------------------------------------------------------------------------------

    @property
    def oldest(self) -> tuple[int, int] | None:
        """Of records that are in no export: when the oldest was made, and the first day."""
        made_at_ns = [pile.portions[0].oldest_ns for pile in self._piles.values()]
        return (min(made_at_ns), min(day for day, _ in self._piles)) if made_at_ns else None

    @property
    def is_full(self) -> bool:
        """Whether there is enough for a file."""
        return any(pile.payload_bytes >= self.full_bytes for pile in self._piles.values())

    def waiting(self) -> Waiting:
        planned = [export.portions for export in self._exports.values() if export.state in (State.PLANNED, State.READY)]
        portions = list(chain(*planned, *(pile.portions for pile in self._piles.values())))
        return Waiting(
            records=sum(portion.records for portion in portions),
            payload_bytes=sum(portion.payload_bytes for portion in portions),
            oldest_ns=min((portion.oldest_ns for portion in portions), default=None),
        )

    def plan(self, now_ns: int) -> None:
        """Everything that has gathered goes into files."""
        for (day, kind), pile in sorted(self._piles.items(), key=itemgetter(0)):
            while pile.portions:
                self._plan_one(kind, day, pile.portions, now_ns)
        self._piles.clear()
        self._wake_journal()

    def _plan_one(self, kind: str, day: int, portions: deque[Portion], now_ns: int) -> None:
        taken: list[Portion] = []
        payload_bytes = 0
        while portions and payload_bytes < self.full_bytes:
            taken.append(portions.popleft())
            payload_bytes += taken[-1].payload_bytes
        self._last_export += 1
        planned_at = datetime.fromtimestamp(now_ns // NANOSECONDS, UTC).strftime("%Y%m%dT%H%M%SZ")
        row = ExportRow(
            id=self._last_export,
            kind=kind,
            day=day,
            # Unique: the number of the start among processes, the time after a database was restored from a copy.
            name=f"{kind}-{self._name_part}-{self._last_export}-{planned_at}.parquet",
            after_batch=max(
                (e.row.last_batch for e in self._exports.values() if (e.row.kind, e.row.day) == (kind, day)), default=0
            ),
            last_batch=taken[-1].last_batch,
            records=sum(portion.records for portion in taken),
            planned_at_ns=now_ns,
        )
        self._exports[row.id] = Export(row, State.PLANNED, deque(taken))

    @property
    def ready(self) -> list[ExportRow]:
        """Those whose files are to be written now."""
        return [export.row for export in self._exports.values() if export.state is State.READY]

    def note_file(self, id: int) -> None:
        """The file is there, whole, and on disk."""
        export = self._exports[id]
        assert export.state is State.READY
        export.state = State.WRITTEN
        self._wake_journal()

    @property
    def is_written_down(self) -> bool:
        """Whether all that was planned, and every file there is, is known to the store."""
        return not any(export.is_to_be_noted for export in self._exports.values())

    @property
    def has_leftovers(self) -> bool:
        """Whether there are batches that a file holds as well."""
        return any(export.state is State.LEFT for export in self._exports.values())

    def delete_portion(self) -> None:
        """Some of what is left over goes with the next batch."""
        self.is_deleting = True
        self._wake_journal()

    def check_invariants(self) -> None:
        ends: dict[tuple[str, int], int] = {}
        for export in self._exports.values():
            row = export.row
            assert ends.get((row.kind, row.day), 0) <= row.after_batch < row.last_batch <= self._last_batch
            ends[row.kind, row.day] = row.last_batch
            last_batches = [portion.last_batch for portion in export.portions]
            assert last_batches == sorted(set(last_batches))
            assert last_batches[-1:] in ([], [row.last_batch])
        for (day, kind), pile in self._piles.items():
            assert pile.payload_bytes == sum(portion.payload_bytes for portion in pile.portions)
            last_batches = [portion.last_batch for portion in pile.portions]
            assert last_batches == sorted(set(last_batches))
            assert last_batches
            assert last_batches[0] > ends.get((kind, day), 0)
