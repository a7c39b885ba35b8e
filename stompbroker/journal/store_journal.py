"""Everything that is on its way into the store.

Law: takes units synchronously and in order, says when there is something to write, hands it out as one batch, and
completes its units when the batch is written. What nobody needs stored is completed at once, unless its own connection
has something on the way. One batch at a time: the next one gathers while it is written.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.journal.forming import add_collected, add_units, add_unsaved, find_positions
from stompbroker.message import size_of_all
from stompbroker.signals import Signal
from stompbroker.storage import Batch
from stompbroker.topics import Gate, JournalStatistics, StoreState

if TYPE_CHECKING:
    from collections.abc import Generator

    from stompbroker.clock import Clock
    from stompbroker.journal.forming import Numbers, Positions
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.storage import CursorRow
    from stompbroker.topics import Registry, Subscription, Unit

__all__ = ["Formed", "StoreJournal"]

#: What a unit costs beside its messages: receipts, answers, the objects around them.
UNIT_OVERHEAD_BYTES: Final = 2048
#: What may wait to be written before publishers to stored topics are held back, and when they go on.
MAX_BACKLOG_BYTES: Final = 16 * 1024 * 1024
EASED_BACKLOG_BYTES: Final = MAX_BACKLOG_BYTES // 2
#: What is written at once. More would make the first of it wait without making the last any quicker.
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
MAX_BATCH_UNITS: Final = 1024
#: How long acknowledgements without a receipt wait for company before they are written.
LAZY_S: Final = 0.05
#: How long nothing else must have been written before what can be collected is deleted on its own.
IDLE_S: Final = 1.0
#: Publishers go on when there is this much more room than the mark at which they were stopped.
ROOM_MARGIN: Final = 1.1


@final
class Formed:
    """A batch and the units that are completed when it is written."""

    __slots__ = ("_base", "_numbers", "_positions", "_registry", "batch", "units")

    def __init__(
        self, base: Batch, units: list[Unit], positions: Positions, registry: Registry, numbers: Numbers
    ) -> None:
        #: What is written whatever becomes of the units.
        self._base = base
        self._positions = positions
        self._registry = registry
        self._numbers = numbers
        self.units = units
        self.batch = self.with_only(units)

    def with_only(self, units: list[Unit]) -> Batch:
        """What would be written with these of its units alone."""
        batch = self._base.copy()
        add_units(batch, units, self._positions, self._registry, self._numbers)
        return batch

    def without(self, culprits: list[Unit]) -> Formed:
        rest = [unit for unit in self.units if unit not in culprits]
        return Formed(self._base, rest, self._positions, self._registry, self._numbers)


@final
class StoreJournal:
    """
    Invariants:
        the backlog's bytes, those being written included, are charged to the memory budget
        every unit taken is in the backlog or being written, once, and counted by its lane and its topics
        the gate is closed exactly while the store fails, space is low, or the backlog is too long
    """

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_batch_number",
        "_begun",
        "_budget",
        "_changed",
        "_clock",
        "_engine",
        "_finished",
        "_flushing",
        "_idle",
        "_is_backlog_long",
        "_let_go_of",
        "_min_free_bytes",
        "_numbers",
        "_reason",
        "_registry",
        "_since_ns",
        "_state",
        "_stored_bytes",
        "_taken",
        "_writing_units",
        "batches",
        "gate",
    )

    can_store: Final = True

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        budget: MemoryBudget,
        numbers: Numbers,
        *,
        engine: str,
        last_batch_number: int,
        min_free_bytes: int = 0,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._budget = budget
        self._numbers = numbers
        self._batch_number = last_batch_number
        self._min_free_bytes = min_free_bytes
        #: Which kind of database it is, for people.
        self._engine = engine
        self._stored_bytes: int | None = None
        self._backlog: deque[Unit] = deque()
        #: Of the backlog, and of what is being written.
        self._backlog_bytes = 0
        #: Units in the batch that is being written.
        self._writing_units = 0
        #: Units taken and let go of, and batches begun and finished, since the start.
        self._taken = 0
        self._let_go_of = 0
        self._begun = 0
        self._finished = 0
        #: How many wait for everything to be written, so that nothing waits for company.
        self._flushing = 0
        self._is_backlog_long = False
        self._state = StoreState.OK
        self._reason: str | None = None
        self._since_ns: int | None = None
        #: Woken when there may be something to write.
        self._changed = registry.unsaved.filled
        self._idle = Signal()
        self.gate = Gate()
        #: Batches written since the start.
        self.batches = 0

    # For whoever changes topics --------------------------------------------------------------------------------------

    def next_subscription_id(self) -> int:
        return self._numbers.take()

    def submit(self, unit: Unit) -> None:
        """Take a unit, make it durable if it must be, then complete it."""
        lane = unit.lane
        is_needed = unit.needs_order or unit.created is not None or unit.removed is not None
        is_needed = is_needed or any(topic.is_stored or topic.formed_units for topic in unit.publications)
        if unit.answers:
            is_durable = any(answer.consumer.subscription.is_durable for answer in unit.answers)
            is_needed = is_needed or (is_durable and (unit.owes_receipt or unit.is_transaction))
            unit.decide()
            if not unit.is_transaction:
                unit.apply_decisions()
        if is_needed or (lane is not None and lane.units):
            self._take(unit)
        else:
            unit.complete(self._clock.now_ns())

    def _take(self, unit: Unit) -> None:
        unit.size_bytes = UNIT_OVERHEAD_BYTES + sum(map(size_of_all, unit.publications.values()))
        self._backlog.append(unit)
        self._taken += 1
        self._backlog_bytes += unit.size_bytes
        self._budget.adjust(unit.size_bytes)
        if unit.lane is not None:
            unit.lane.enter(unit)
        for topic in unit.publications:
            topic.pending_units += 1
        for answer, _ in unit.decisions:
            answer.consumer.subscription.pending_answers += 1
        if self._backlog_bytes >= MAX_BACKLOG_BYTES:
            self._is_backlog_long = True
            self._set_gate()
        self._changed.wake()

    async def wait_idle(self) -> None:
        """Until every unit submitted so far is completed, and everything that has changed by now is written."""
        last_unit = self._taken
        # What is being formed now may have passed by what has changed since; the batch after it has it.
        last_batch = self._begun + 1 if self._registry.unsaved else self._begun
        self._flushing += 1
        try:
            while self._let_go_of < last_unit or self._finished < last_batch:
                self._changed.wake()
                await self._idle.wait()
        finally:
            self._flushing -= 1
        await trio.lowlevel.checkpoint()

    # For the actor ---------------------------------------------------------------------------------------------------

    async def wait_for_work(self) -> None:
        """Until there is something to write: at once for units, after a moment for what can wait for company."""
        unsaved = self._registry.unsaved
        while not self._backlog:
            if not unsaved:
                with trio.move_on_after(IDLE_S) as waiting:
                    await self._changed.wait()
                if waiting.cancelled_caught and (unsaved.collectable or self._state is StoreState.LOW_SPACE):
                    return
            elif self._flushing or unsaved.is_pressing:
                return
            else:
                with trio.move_on_after(LAZY_S) as waiting:
                    while not (self._backlog or self._flushing or unsaved.is_pressing):
                        await self._changed.wait()
                if waiting.cancelled_caught:
                    return

    def form(self) -> Formed:
        """The next batch, of which nothing is done yet. It must be written, or its culprits taken out of it."""
        steps = self.form_in_steps()
        while True:
            try:
                next(steps)
            except StopIteration as last:
                formed: Formed = last.value
                return formed

    def form_in_steps(self) -> Generator[None, None, Formed]:
        """`form`, in short steps. Its units are chosen in the first one: what they have changed is in the batch then,
        whatever is submitted between the others. They are given their offsets in the last, all at once."""
        is_idle = not self._backlog
        units: list[Unit] = []
        size_bytes = 0
        while self._backlog and size_bytes < MAX_BATCH_BYTES and len(units) < MAX_BATCH_UNITS:
            unit = self._backlog.popleft()
            size_bytes += unit.size_bytes
            units.append(unit)
        self._writing_units = len(units)
        self._begun += 1
        base = Batch(number=self._batch_number + 1)
        yield from add_unsaved(base, self._registry)
        yield from add_collected(base, self._registry, is_idle=is_idle)
        positions: dict[Subscription, list[CursorRow]] = {}
        for unit in units:
            if unit.created is not None:
                yield from find_positions(unit.created, self._registry, positions.setdefault(unit.created, []))
        formed = Formed(base, units, positions, self._registry, self._numbers)
        for unit in units:
            for topic in unit.stored_topics:
                topic.formed_units += 1
        return formed

    def refuse(self, formed: Formed, culprits: list[Unit], reason: str) -> Formed:
        """The store cannot take these units: their clients are told, and the batch goes on without them."""
        for unit in culprits:
            self._let_go(unit)
            if unit.refused is not None:
                unit.refused(reason)
        return formed.without(culprits)

    def note_size(self, stored_bytes: int) -> None:
        self._stored_bytes = stored_bytes

    def note_written(self) -> None:
        """The batch that was formed last is in the store."""
        self._batch_number += 1
        self.batches += 1

    def note_room(self, free_bytes: int | None) -> None:
        """The store works, and there is that much room left."""
        low_mark = self._min_free_bytes * (ROOM_MARGIN if self._state is StoreState.LOW_SPACE else 1)
        if free_bytes is not None and free_bytes < low_mark:
            self._change_state(StoreState.LOW_SPACE, f"only {free_bytes} bytes are free where the database is")
        else:
            self._change_state(StoreState.OK, None)

    def note_failing(self, reason: str) -> bool:
        """The store does not take what it is given, for now. True if that is news."""
        return self._change_state(StoreState.FAILING, reason)

    def complete_one(self, unit: Unit) -> None:
        """A unit of the batch that was written becomes visible."""
        self._let_go(unit)
        unit.complete(self._clock.now_ns())

    def finish(self) -> None:
        """All units of the batch are completed."""
        self._finished += 1
        self._idle.wake()
        if self._is_backlog_long and self._backlog_bytes < EASED_BACKLOG_BYTES:
            self._is_backlog_long = False
            self._set_gate()

    def _let_go(self, unit: Unit) -> None:
        self._let_go_of += 1
        self._writing_units -= 1
        self._backlog_bytes -= unit.size_bytes
        self._budget.adjust(-unit.size_bytes)
        for topic in unit.publications:
            topic.pending_units -= 1
        for topic in unit.stored_topics:
            topic.formed_units -= 1
        for answer, _ in unit.decisions:
            answer.consumer.subscription.pending_answers -= 1
        if unit.lane is not None:
            unit.lane.leave(unit)

    # State -----------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> StoreState:
        return self._state

    @property
    def is_idle(self) -> bool:
        return not self._backlog and self._begun == self._finished

    @property
    def gathered_units(self) -> int:
        """How many wait for the next batch."""
        return len(self._backlog)

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(
            engine=self._engine,
            state=self._state,
            reason=self._reason,
            since_ns=self._since_ns,
            backlog_units=self._taken - self._let_go_of,
            backlog_bytes=self._backlog_bytes,
            batches=self.batches,
            stored_bytes=self._stored_bytes,
        )

    def _change_state(self, state: StoreState, reason: str | None) -> bool:
        is_news = state is not self._state
        if is_news:
            self._state = state
            self._since_ns = None if state is StoreState.OK else self._clock.now_ns()
        if is_news or reason != self._reason:
            self._reason = reason
            self._set_gate()
        return is_news

    def _set_gate(self) -> None:
        match self._state:
            case StoreState.FAILING:
                self.gate.close(f"the store fails ({self._reason})", waits_for_consumers=False)
            case StoreState.LOW_SPACE:
                self.gate.close(f"the store is nearly full ({self._reason})", waits_for_consumers=True)
            case StoreState.OK if self._is_backlog_long:
                self.gate.close("the store is slower than what is published", waits_for_consumers=False)
            case StoreState.OK:
                self.gate.open()

    def check_invariants(self) -> None:
        assert self.gate.is_blocked == (self._state is not StoreState.OK or self._is_backlog_long)
        assert self._taken - self._let_go_of == len(self._backlog) + self._writing_units
        if not self._writing_units:
            assert self._backlog_bytes == sum(unit.size_bytes for unit in self._backlog)
