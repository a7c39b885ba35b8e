"""The journal of a broker with a store.

Law: takes units synchronously and in order, forms one batch at a time, and completes its units when it is written. A
unit with nothing to store is completed at once, unless its connection has units on the way.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.changes import Appended, Created, JournalStatistics, StoreState
from stompbroker.clock import NANOSECONDS
from stompbroker.journal.backlog import Backlog
from stompbroker.journal.batch_builder import Formed
from stompbroker.journal.changes import (
    FAILURES_BESIDE,
    FAILURES_IDLE,
    MAX_DELETED,
    Base,
    add_collected,
    add_deleted_since,
    add_moved_since,
    add_unsaved,
    find_positions,
)
from stompbroker.journal.company import Company
from stompbroker.journal.health import Health, WriteGauge
from stompbroker.message import size_of_all
from stompbroker.signals import Signal
from stompbroker.storage import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from stompbroker.changes import Outcomes, Unit
    from stompbroker.clock import Clock
    from stompbroker.delivery import Registry, Subscription, Untold
    from stompbroker.ledger.exports import Exports
    from stompbroker.memory_budget import MemoryBudget

#: Coalescing delay: how long acknowledgements without a receipt wait for other changes before they are written.
LAZY_S: Final = 0.05
LAZY_NS: Final = int(LAZY_S * NANOSECONDS)
#: After this long without other work, settled messages are deleted in batches of their own; and the pause between two
#: such batches.
IDLE_S: Final = 1.0
TIDY_S: Final = 0.02
#: Beside other work messages are deleted in portions, with a pause after each. Portions of a hundred cost the
#: write-ahead log twice as much a message as those of a thousand, which empty whole pages. A portion is twice what was
#: written since the last one, if that is more: the store must not grow while everybody keeps up.
PORTION: Final = 1_000
PORTION_PAUSE_S: Final = 0.04
_is_stored: Final = attrgetter("is_stored")


@final
class StoreJournal:
    """
    Invariants:
        every unit submitted is completed or refused, once
    """

    can_store: Final = True

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        budget: MemoryBudget,
        start_number: int,
        *,
        engine: str,
        last_batch_number: int,
        min_free_bytes: int = 0,
        exports: Exports | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        #: Numbers of topics and durable subscriptions that no other ever had in this store: the upper half says at
        #: which start of it, the lower half counts.
        self._numbers = count((start_number << 32) + 1)
        #: None without a ledger.
        self._exports = exports
        self._batch_number = last_batch_number
        #: The kind of database, for people.
        self._engine = engine
        self.writing = WriteGauge(clock)
        #: Batches begun and finished since the start.
        self._begun = 0
        self._finished = 0
        #: How many callers wait for everything to be written: while there are any, nothing is delayed.
        self._flushing = 0
        #: Whether the last batch had units, and the coalescing delay has not passed since.
        self._was_busy = False
        #: Whether the last batch only deleted.
        self._is_tidying = False
        #: When changes beside units were last taken, and whether the last batch left them out.
        self._changes_taken_at_ns = 0
        self._has_left_out = False
        #: When the next portion may be deleted beside other work, and how many messages were written since the last.
        self._next_portion_at_ns = 0
        self._written_since_deletion = 0
        #: Woken when there may be something to write.
        self._changed = registry.unsaved.filled
        self._idle = Signal()
        self.health = Health(clock, min_free_bytes)
        self.gate = self.health.gate
        self.backlog = Backlog(budget, self.health)
        self.company = Company(self.backlog)
        #: Tells publishers what became of their messages; set by the composition root, since it submits units here.
        self.outcomes: Outcomes | None = None
        #: Batches written since the start.
        self.batches = 0

    @property
    def pending_units(self) -> int:
        return self.backlog.pending

    @property
    def is_overfull(self) -> bool:
        return self.backlog.is_overfull

    # For those who change topics -------------------------------------------------------------------------------------

    def next_subscription_id(self) -> int:
        return next(self._numbers)

    def submit(self, unit: Unit) -> None:
        lane = unit.lane
        is_needed = unit.needs_order or any(map(_is_stored, unit.effects))
        if unit.answers:
            answered = {answer.consumer.subscription for answer in unit.answers}
            if any(subscription.is_durable for subscription in answered):
                if unit.owes_receipt:
                    unit.answered = answered
                is_needed = is_needed or unit.owes_receipt or unit.is_transaction
            unit.decide()
            if not unit.is_transaction:
                unit.apply_decisions(self._clock.now_ns())
        if is_needed or (lane is not None and lane.units):
            if unit.decisions:
                unit.claim(self._clock.now_ns())
            self.backlog.take(unit)
            self._changed.wake()
        else:
            unit.complete(self._clock.now_ns())

    async def wait_idle(self) -> None:
        last_unit = self.backlog.taken
        # The batch that is being formed may have missed recent changes; the one after it has them.
        last_batch = self._begun + 1 if self._has_changes else self._begun
        self._flushing += 1
        try:
            while self.backlog.let_go_of < last_unit or self._finished < last_batch:
                if self.is_idle and not self._has_changes:
                    break  # the batch that was being formed had all of them
                self._changed.wake()
                await self._idle.wait()
        finally:
            self._flushing -= 1
        await trio.lowlevel.checkpoint()

    # For the actor ---------------------------------------------------------------------------------------------------

    async def wait_for_work(self) -> None:
        """Until there is something to write: at once for units, after the coalescing delay for other changes."""
        unsaved = self._registry.unsaved
        while not self.backlog.is_ready and not self._has_exports:
            if not unsaved:
                if self._flushing and self._registry.records:
                    return
                if self._was_busy and not self._is_tidying:
                    if await self._wait_for_more():
                        return
                    continue
                with trio.move_on_after(TIDY_S if self._is_tidying else IDLE_S) as waiting:
                    await self._changed.wait()
                if waiting.cancelled_caught:
                    if unsaved.collectable or self._registry.records or self.health.state is StoreState.LOW_SPACE:
                        return
                    self._is_tidying = False
            elif self._flushing or unsaved.is_pressing:
                return
            else:
                with trio.move_on_after(self._remaining_delay_s) as waiting:
                    while not (self.backlog.is_ready or self._flushing or unsaved.is_pressing or self._has_exports):
                        await self._changed.wait()
                if waiting.cancelled_caught:
                    return

    async def _wait_for_more(self) -> bool:
        """For a unit or the coalescing delay; true if that has passed and something has changed.

        Acknowledgements of what was just delivered come in this time, and need not wake the journal.
        """
        unsaved = self._registry.unsaved
        unsaved.is_looked_at = True
        try:
            with trio.move_on_after(LAZY_S) as waiting:
                await self._changed.wait()
        finally:
            unsaved.is_looked_at = False
        if waiting.cancelled_caught:
            self._was_busy = False
        return waiting.cancelled_caught and bool(unsaved)

    @property
    def _remaining_delay_s(self) -> float:
        """Remaining coalescing delay. Changes that batches have left out have waited already."""
        waited_ns = self._clock.now_ns() - self._changes_taken_at_ns
        return max(0, LAZY_NS - waited_ns) / NANOSECONDS if self._has_left_out else LAZY_S

    @property
    def _has_changes(self) -> bool:
        """Whether there is something to write beside units."""
        return bool(self._registry.unsaved or self._registry.records or self._has_exports)

    @property
    def _has_exports(self) -> bool:
        """Whether there is something to write about files of the lake."""
        return self._exports is not None and self._exports.has_changes

    def form_in_steps(self) -> Generator[None, None, Formed]:
        """Form the next batch, which must be written, if only without units that the store refuses.

        In short steps, between which others run. Units are chosen in the first step, so that what they have changed is
        in the batch; they are given their offsets in the last, all at once.
        """
        is_idle = not self.backlog.is_ready
        self._was_busy = not is_idle
        units = self.backlog.hand_out()
        self.company.note(units)
        began_at_ns = self.writing.begin()
        self._begun += 1
        base = Base(Batch(number=self._batch_number + 1))
        self._has_left_out = self._can_changes_wait(units, began_at_ns)
        takes_changes = not self._has_left_out
        if takes_changes:
            self._changes_taken_at_ns = began_at_ns
            most_failures = FAILURES_IDLE if is_idle else FAILURES_BESIDE
            yield from add_unsaved(base, self._registry, most_failures=most_failures, is_owed=self._what_is_owed(units))
        effects = [effect for unit in units for effect in unit.effects]
        self._written_since_deletion += sum(len(each.messages) for each in effects if isinstance(each, Appended))
        now_ns = self._clock.now_ns()
        # What a cursor allows to be deleted goes with it or after it, never before.
        if takes_changes and (is_idle or now_ns >= self._next_portion_at_ns):
            yield from self._add_deletions(base.batch, now_ns, is_idle=is_idle)
        self._is_tidying = is_idle and bool(base.batch.deletions)
        positions: dict[Subscription, Batch] = {}
        for effect in effects:
            if isinstance(effect, Created):
                found = positions[effect.subscription] = Batch(number=base.batch.number)
                yield from find_positions(effect.subscription, self._registry, found)
        # Taken late: another topic of the same name may be in this very batch.
        topics, subscriptions = self._registry.unsaved.take_removed()
        base.batch.removed_topics += topics
        base.batch.removed_subscriptions += subscriptions
        add_moved_since(base, units)
        add_deleted_since(base, self._registry)
        if self._registry.telling.is_in_units and self.outcomes is not None:
            for unit in units:
                self.outcomes.go_with(unit, positions, has_room=not self.health.is_out_of_room)
            # Offsets are given in the order in which units are completed.
            effects = [effect for unit in units for effect in unit.effects]
        for unit in self._tell(base.take_untold(), positions):
            units.append(unit)
            effects += unit.effects
        for effect in effects:
            effect.reserve()
        if takes_changes and self._registry.records is not None:
            base.accounts += self._registry.records.take()
        if self._exports is not None:
            self._exports.take(base.batch)
        if takes_changes and self._registry.unsaved:
            # Something has changed between two steps, or was too much for this batch: it goes with the next one.
            self._changes_taken_at_ns = 0
        return Formed(
            base=base,
            units=units,
            positions=positions,
            registry=self._registry,
            numbers=self._numbers,
            now_ns=now_ns,
            next_ledger_id=self._next_ledger_id,
            tell=partial(self._tell, created=positions),
        )

    def _tell(self, untold: list[Untold], created: Collection[Subscription]) -> list[Unit]:
        """What publishers are told of settlements beside units is a unit of its own, which the batch may lose."""
        if not untold or self.outcomes is None:
            return []
        self._registry.budget.adjust(-size_of_all([each.message for each in untold]))
        unit = self.outcomes.unit(untold, created, has_room=not self.health.is_out_of_room)
        self.backlog.join(unit)
        return [unit]

    def _add_deletions(self, base: Batch, now_ns: int, *, is_idle: bool) -> Generator[None, None, None]:
        most = MAX_DELETED if is_idle else max(PORTION, 2 * self._written_since_deletion)
        yield from add_collected(base, self._registry, now_ns, most=most, is_idle=is_idle)
        if base.deletions:
            self._written_since_deletion = 0
            self._next_portion_at_ns = now_ns + int(PORTION_PAUSE_S * NANOSECONDS)

    def _can_changes_wait(self, units: list[Unit], now_ns: int) -> bool:
        """Whether a batch of these leaves out what has changed beside them.

        Publish-only batches omit cursor rows: they would double the pages written for a message that comes alone.
        Twenty answers together cost hardly more than one.
        """
        unsaved = self._registry.unsaved
        return (
            bool(units and unsaved)
            and not (self._flushing or unsaved.is_pressing)
            and now_ns < self._changes_taken_at_ns + LAZY_NS
            and all(unit.only_publishes for unit in units)
        )

    def _next_ledger_id(self) -> int:
        assert self._exports is not None, "there are records only where there is a ledger"
        return self._exports.next_batch_id()

    def _what_is_owed(self, units: list[Unit]) -> Callable[[Subscription], bool]:
        """Whether all answers for a subscription must be in the batch of these units: they owe a receipt for one of
        them, or for everything before."""
        answered = {subscription for unit in units for subscription in unit.answered}
        is_all_owed = any(unit.needs_order for unit in units)
        return lambda subscription: is_all_owed or self._flushing > 0 or subscription in answered

    def refuse(self, formed: Formed, culprits: set[Unit], reason: str) -> None:
        """The store cannot take these units: their clients are told, and the batch goes on without them, and without
        what its mute ones tell publishers."""
        # Nobody has seen the offsets yet, so the others get new ones, after the refusals: a topic that only a refused
        # subscription matched is not stored any more.
        for unit in formed.units:
            for effect in unit.effects:
                effect.release()
        for unit in formed.units:
            if unit in culprits:
                self.backlog.let_go(unit)
                unit.refuse(self._clock.now_ns(), reason)
            elif unit in formed.mute:
                unit.lose_outcomes(reason)
        formed.leave_out(culprits)

    def note_written(self, formed: Formed) -> None:
        """The batch is in the store."""
        self.writing.end(formed.batch)
        self._batch_number += 1
        self.batches += 1
        if self._exports is not None:
            self._exports.note_written(formed.batch)
        formed.adopt()

    def complete_one(self, unit: Unit) -> None:
        """A unit of the batch that was written becomes visible."""
        self.backlog.let_go(unit)
        unit.complete(self._clock.now_ns())

    def finish(self) -> None:
        """All units of the batch are completed."""
        self._finished += 1
        self._idle.wake()
        self.backlog.note_finished()

    @property
    def is_idle(self) -> bool:
        return not self.backlog and self._begun == self._finished

    def statistics(self) -> JournalStatistics:
        state, reason, since_ns = self.health.shown()
        return JournalStatistics(
            engine=self._engine,
            state=state,
            reason=reason,
            since_ns=since_ns,
            damages=self.health.damages,
            check=self.health.check,
            backlog_units=self.pending_units,
            backlog_bytes=self.backlog.size_bytes,
            batches=self.batches,
            stored_bytes=self.writing.stored_bytes,
        )

    def check_invariants(self) -> None:
        self.health.check_invariants()
        self.backlog.check_invariants()
