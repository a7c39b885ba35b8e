"""The ledger: how its way to the lake is, and having it brought there.

Law: looks at rounds and at what waits for them; asks for a round and waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from stompbroker.clock import iso_time
from stompbroker.control.request import ControlError, Unavailable
from stompbroker.ledger import RoundFailed

if TYPE_CHECKING:
    from stompbroker.control.request import Methods
    from stompbroker.ledger import Exports, Rounds

__all__ = ["LedgerMethods", "LedgerParts"]


@final
@dataclass(frozen=True, slots=True)
class LedgerParts:
    """What waits for the lake, and how it gets there."""

    exports: Exports
    rounds: Rounds
    #: Where it is.
    lake: str


@final
class LedgerMethods:
    def __init__(self, ledger: LedgerParts | None) -> None:
        self._ledger = ledger
        self.methods: Methods = {
            "export_ledger": (self._export, frozenset()),
        }

    async def _export(self) -> dict[str, Any]:
        """Everything that is settled by now is in the lake when this is answered."""
        if self._ledger is None:
            raise ControlError("this broker keeps no ledger: it has no store, or is set to ledger = false")
        try:
            result = await self._ledger.rounds.export_now()
        except RoundFailed as failure:
            raise Unavailable(str(failure)) from failure
        return {
            "lake": self._ledger.lake,
            "files": list(result.files),
            "records": result.records,
            "complete_until": iso_time(result.complete_until_ns),
        }

    def describe(self) -> dict[str, Any] | None:
        """None: this broker keeps no ledger."""
        if self._ledger is None:
            return None
        rounds, waiting = self._ledger.rounds.statistics(), self._ledger.exports.waiting()
        return {
            "lake": self._ledger.lake,
            "state": "ok" if rounds.failure is None else "failing",
            "reason": rounds.failure,
            "since": _iso_time(rounds.failing_since_ns),
            "waiting_records": waiting.records,
            "waiting_bytes": waiting.payload_bytes,
            "waiting_since": _iso_time(waiting.oldest_ns),
            "last_export_at": _iso_time(rounds.last_done_ns),
            "complete_until": _iso_time(rounds.complete_until_ns),
        }

    def warning(self) -> str | None:
        """For those who may not be told where the lake is; None if there is nothing to say."""
        if self._ledger is None:
            return None
        since = _iso_time(self._ledger.rounds.statistics().failing_since_ns)
        return None if since is None else f"the lake cannot be written since {since}; the ledger waits in the store"


def _iso_time(at_ns: int | None) -> str | None:
    return None if at_ns is None else iso_time(at_ns)
