"""A journal's batch in one go, for tests that are their own actor."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompbroker.journal import Formed, StoreJournal


def form(journal: StoreJournal) -> Formed:
    steps = journal.form_in_steps()
    while True:
        try:
            next(steps)
        except StopIteration as last:
            formed: Formed = last.value
            return formed
