"""What of the ledger is in the database, and the files of the lake that are made of it.

Law: synchronous, and knows neither files nor SQL. What it decides is written down by the journal with its next batch
(`take`), and holds from then on (`note_written`): a file is planned before it is begun, under a name that stays, and
its batches are deleted only after it was written down that the file is there. So a process that dies between any two
of these steps is followed by one that repeats the file as it was, or goes on deleting.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.clock import NANOSECONDS
from stompbroker.signals import Signal
from stompbroker.storage import ExportedBatches, ExportRow, LedgerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stompbroker.ledger.lake import Kind
    from stompbroker.storage import Batch, Gathered

__all__ = ["Exports", "Waiting", "day_of"]

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
class Portion:
    """Neighbouring batches of one kind and day."""

    __slots__ = ("batches", "last_batch", "oldest_ns", "payload_bytes", "records")

    def __init__(self, last_batch: int, records: int, payload_bytes: int, oldest_ns: int, *, batches: int) -> None:
        self.last_batch = last_batch
        self.records = records
        self.payload_bytes = payload_bytes
        #: When the first of them was made.
        self.oldest_ns = oldest_ns
        self.batches = batches


@final
class Export:
    __slots__ = ("is_taken", "payload_bytes", "portions", "row", "state")

    def __init__(self, row: ExportRow, state: State, portions: Iterable[Portion]) -> None:
        self.row = row
        self.state = state
        #: Whether a batch that is being written has what is to be written down of it.
        self.is_taken = False
        #: What is still to be deleted, in order.
        self.portions: deque[Portion] = deque()
        #: Of all its batches, those that are deleted by now included.
        self.payload_bytes = 0
        for portion in portions:
            self.add(portion)

    def add(self, portion: Portion) -> None:
        self.portions.append(portion)
        self.payload_bytes += portion.payload_bytes

    @property
    def is_in_lake(self) -> bool:
        return self.state in (State.WRITTEN, State.LEFT)


class _Pile:
    """What has gathered of one kind and day, and is in no export yet; never empty."""

    __slots__ = ("payload_bytes", "portions", "records")

    def __init__(self) -> None:
        self.portions: deque[Portion] = deque()
        self.payload_bytes = 0
        self.records = 0

    def add(self, portion: Portion) -> None:
        self.portions.append(portion)
        self.payload_bytes += portion.payload_bytes
        self.records += portion.records

    def gather(self, row: LedgerRow, payload_bytes: int) -> None:
        last = self.portions[-1] if self.portions else None
        if last is None or last.payload_bytes >= PORTION_BYTES or last.batches >= PORTION_BATCHES:
            self.add(Portion(row.id, row.records, payload_bytes, row.made_at_ns, batches=1))
            return
        last.last_batch = max(last.last_batch, row.id)
        last.records += row.records
        last.payload_bytes += payload_bytes
        last.oldest_ns = min(last.oldest_ns, row.made_at_ns)
        last.batches += 1
        self.payload_bytes += payload_bytes
        self.records += row.records


@final
class Gathering:
    """What has gathered in the database and is in no export yet, by day and kind."""

    __slots__ = ("filled", "full_bytes", "piles")

    def __init__(self, full_bytes: int) -> None:
        #: What is enough for a file.
        self.full_bytes = full_bytes
        self.piles: dict[tuple[int, str], _Pile] = {}
        #: Woken when enough has gathered for a file.
        self.filled = Signal()

    def add(self, day: int, kind: str, portion: Portion) -> None:
        self.piles.setdefault((day, kind), _Pile()).add(portion)

    def gather(self, row: LedgerRow) -> None:
        pile = self.piles.setdefault((row.day, row.kind), _Pile())
        was_full = pile.payload_bytes >= self.full_bytes
        pile.gather(row, len(row.payload()))
        if pile.payload_bytes >= self.full_bytes and not was_full:
            self.filled.wake()

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest record was made."""
        return min((pile.portions[0].oldest_ns for pile in self.piles.values()), default=None)

    @property
    def first_day(self) -> int | None:
        return min((day for day, _ in self.piles), default=None)

    @property
    def is_full(self) -> bool:
        """Whether there is enough for a file."""
        return any(pile.payload_bytes >= self.full_bytes for pile in self.piles.values())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What is in the database and in no file of the lake yet."""

    records: int
    payload_bytes: int
    #: When the oldest of it was made; None if there is nothing.
    oldest_ns: int | None


class _New(NamedTuple):
    """Records that are not in the database yet."""

    kind: str
    day: int
    records: int
    made_at_ns: int
    payload: Callable[[], bytes]


@final
class Exports:
    """
    Invariants:
        every batch in the database is in one portion, of what has gathered or of one export
        of one kind and day, the batches of an export lie behind those of all earlier ones
        no two names are the same, whichever process of this store made them
    """

    __slots__ = (
        "_exports",
        "_is_portion_taken",
        "_is_portion_wanted",
        "_last_batch",
        "_last_export",
        "_name_part",
        "_new",
        "_wake_journal",
        "gathering",
        "progressed",
    )

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
        """`exports` and `gathered` are what the store had kept; `wake_journal` is called when there is something to
        write down. A file holds about `export_bytes` of payload."""
        self._wake_journal = wake_journal
        self._name_part = f"{store_id}-{start_number}"
        self._new: list[_New] = []
        self.gathering = Gathering(export_bytes)
        self._exports: dict[int, Export] = {}
        #: Whether some of what is left over shall go, until it is gone; and whether the batch that is being written has
        #: it.
        self._is_portion_wanted = False
        self._is_portion_taken = False
        #: Woken whenever something was written down.
        self.progressed = Signal()
        for row in exports:
            self._exports[row.id] = Export(row, State.LEFT if row.is_written else State.READY, ())
        for found in gathered:
            portion = Portion(
                found.last_batch, found.records, found.payload_bytes, found.oldest_made_at_ns, batches=PORTION_BATCHES
            )
            if found.export:
                self._exports[found.export].add(portion)
            else:
                self.gathering.add(found.day, found.kind, portion)
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
            or (self._is_portion_wanted and not self._is_portion_taken and self.has_leftovers)
            or any(
                export.state in (State.PLANNED, State.WRITTEN) and not export.is_taken
                for export in self._exports.values()
            )
        )

    def take(self, batch: Batch) -> None:
        """Add what is to be written down. Called once for each batch, which is written, or the broker ends."""
        for new in self._new:
            batch.ledger.append(LedgerRow(self.next_batch_id(), *new))
        self._new = []
        for export in self._exports.values():
            if export.state in (State.PLANNED, State.WRITTEN):
                batch.exports.append(export.row._replace(is_written=export.state is State.WRITTEN))
                export.is_taken = True
        if self._is_portion_wanted:
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
            self.gathering.gather(row)
        for written in batch.exports:
            export = self._exports[written.id]
            export.row, export.state = written, State.LEFT if written.is_written else State.READY
            export.is_taken = False
        for portion in batch.exported:
            for export in self._exports.values():
                if export.portions and export.portions[0].last_batch == portion.last_batch:
                    export.portions.popleft()
        for finished in batch.finished_exports:
            del self._exports[finished.id]
        if batch.exported or batch.finished_exports:
            self._is_portion_wanted = self._is_portion_taken = False
        self.progressed.wake()

    # For records that do not come from the journal -------------------------------------------------------------------

    def add(self, kind: Kind, day: int, records: int, made_at_ns: int, payload: Callable[[], bytes]) -> None:
        """Records that belong to no unit; they go with the next batch."""
        self._new.append(_New(kind.value, day, records, made_at_ns, payload))
        self._wake_journal()

    # For the exporter ------------------------------------------------------------------------------------------------

    def waiting(self) -> Waiting:
        planned = [export for export in self._exports.values() if not export.is_in_lake]
        ages = [export.portions[0].oldest_ns for export in planned if export.portions]
        if self.gathering.oldest_ns is not None:
            ages.append(self.gathering.oldest_ns)
        piles = self.gathering.piles.values()
        return Waiting(
            records=sum(pile.records for pile in piles) + sum(export.row.records for export in planned),
            payload_bytes=sum(pile.payload_bytes for pile in piles) + sum(export.payload_bytes for export in planned),
            oldest_ns=min(ages, default=None),
        )

    def plan(self, now_ns: int) -> None:
        """Everything that has gathered goes into files."""
        for (day, kind), pile in sorted(self.gathering.piles.items(), key=itemgetter(0)):
            while pile.portions:
                self._plan_one(kind, day, pile.portions, now_ns)
        self.gathering.piles.clear()
        self._wake_journal()

    def _plan_one(self, kind: str, day: int, portions: deque[Portion], now_ns: int) -> None:
        taken: list[Portion] = []
        payload_bytes = 0
        while portions and payload_bytes < self.gathering.full_bytes:
            taken.append(portions.popleft())
            payload_bytes += taken[-1].payload_bytes
        self._last_export += 1
        planned_at = datetime.fromtimestamp(now_ns // NANOSECONDS, UTC).strftime("%Y%m%dT%H%M%SZ")
        row = ExportRow(
            id=self._last_export,
            kind=kind,
            day=day,
            # The start says that no other process has made this name, and the time that it was not made before the
            # database was put back from a copy.
            name=f"{kind}-{self._name_part}-{self._last_export}-{planned_at}.parquet",
            after_batch=max(
                (e.row.last_batch for e in self._exports.values() if (e.row.kind, e.row.day) == (kind, day)), default=0
            ),
            last_batch=taken[-1].last_batch,
            records=sum(portion.records for portion in taken),
            planned_at_ns=now_ns,
        )
        self._exports[row.id] = Export(row, State.PLANNED, taken)

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
        return all(export.state in (State.READY, State.LEFT) for export in self._exports.values())

    @property
    def has_leftovers(self) -> bool:
        """Whether there are batches that a file holds as well."""
        return any(export.state is State.LEFT for export in self._exports.values())

    def delete_portion(self) -> None:
        """Some of what is left over goes with the next batch."""
        self._is_portion_wanted = True
        self._wake_journal()

    @property
    def is_deleting(self) -> bool:
        """Whether the portion that was asked for is not yet gone."""
        return self._is_portion_wanted

    def check_invariants(self) -> None:
        ends: dict[tuple[str, int], int] = {}
        for export in self._exports.values():
            row = export.row
            assert ends.get((row.kind, row.day), 0) <= row.after_batch < row.last_batch <= self._last_batch
            ends[row.kind, row.day] = row.last_batch
            last_batches = [portion.last_batch for portion in export.portions]
            assert last_batches == sorted(set(last_batches))
            assert last_batches[-1:] in ([], [row.last_batch])
        for (day, kind), pile in self.gathering.piles.items():
            assert pile.payload_bytes == sum(portion.payload_bytes for portion in pile.portions)
            assert pile.records == sum(portion.records for portion in pile.portions)
            last_batches = [portion.last_batch for portion in pile.portions]
            assert last_batches == sorted(set(last_batches))
            assert last_batches
            assert last_batches[0] > ends.get((kind, day), 0)
