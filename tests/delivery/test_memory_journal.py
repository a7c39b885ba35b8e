"""The journal of a broker without a store passes the contract, and completes at once."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stompbroker.changes import MemoryJournal, Unit
from stompbroker.clock import Clock
from tests.journal_contract import JournalContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stompbroker.changes import Journal


class TestMemoryJournal(JournalContract):
    @asynccontextmanager
    async def journal(self) -> AsyncIterator[Journal]:
        yield MemoryJournal(Clock())

    async def test_a_unit_is_complete_when_submit_returns(self) -> None:
        completed: list[bool] = []

        MemoryJournal(Clock()).submit(Unit(then=lambda: completed.append(True)))

        assert completed == [True]
