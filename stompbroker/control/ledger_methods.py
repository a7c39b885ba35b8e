"""The ledger: having it brought to the lake.

Law: asks for a round and waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from stompbroker.clock import iso_time
from stompbroker.control.errors import ControlError, Unavailable
from stompbroker.ledger import RoundFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stompbroker.ledger import Rounds

__all__ = ["LedgerMethods"]


@final
class LedgerMethods:
    def __init__(self, rounds: Rounds | None, lake: str) -> None:
        self._rounds = rounds
        self._lake = lake
        self.methods: Mapping[str, tuple[Callable[..., Awaitable[Any]], frozenset[str]]] = {
            "export_ledger": (self._export, frozenset()),
        }

    async def _export(self) -> dict[str, Any]:
        """Everything that is settled by now is in the lake when this is answered."""
        if self._rounds is None:
            raise ControlError("this broker keeps no ledger: it has no store, or is set to ledger = false")
        try:
            result = await self._rounds.export_now()
        except RoundFailed as failure:
            raise Unavailable(str(failure)) from failure
        return {
            "lake": self._lake,
            "files": list(result.files),
            "records": result.records,
            "complete_until": iso_time(result.complete_until_ns),
        }
