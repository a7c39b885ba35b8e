"""A journal's batch in one go, for tests that are their own actor."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.journal import Formed, StoreJournal
    from stompbroker.storage import Batch


def form(journal: StoreJournal) -> Formed:
    steps = journal.form_in_steps()
    while True:
        try:
            next(steps)
        except StopIteration as last:
            formed: Formed = last.value
            return formed


def write_batch(journal: StoreJournal, commit: Callable[[Batch], None]) -> None:
    """As the actor does, from forming to the last completion."""
    formed = form(journal)
    commit(formed.batch)
    journal.note_written(formed)
    for unit in formed.units:
        journal.complete_one(unit)
    journal.finish()
