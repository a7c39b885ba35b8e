"""The fence: the one row of `journal_state`, as its owner sees it.

A starting broker writes its token there (`ownership.py`). The first statement of every batch, the fence, increments the
batch number in the owner's row. So a batch is written once, even if it is repeated, and only by the owner, even if
locks were lost. Whoever looks at the row also sees whether the store has forgotten something, as a replica that took
over may have.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, final

from stompbroker.storage.failures import StoreFailing, StoreTaken, StoreWentBack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.engine.interfaces import DBAPICursor


class FenceTexts(NamedTuple):
    """Its statements, with their parameters in this order."""

    #: The next batch, the owner's token, the batch before.
    advance: str
    look: str
    #: Waits, on a server, for a transaction under way.
    look_and_hold: str
    #: True, and the owner's token.
    note_closed: str


@final
class Fence:
    """`owner` is a token, new in every process, so that no earlier one passes.

    Invariants:
        the store has confirmed batch `written`, and whatever came before it
    """

    def __init__(self, where: str, texts: FenceTexts) -> None:
        self.texts = texts
        self.owner = secrets.token_hex(16)
        #: Set by who commits.
        self.written = 0
        #: Set by who takes the store.
        self.start_number = 0
        self._where = where

    def note_closed(self, cursor: DBAPICursor) -> None:
        """Note that we have closed the store. The caller holds a transaction."""
        cursor.execute(self.texts.note_closed, (True, self.owner))

    def advance(self, cursor: DBAPICursor, number: int) -> None:
        """Begin batch `number`. Raises StoreTaken, or StoreFailing if the batch before it is not the last one."""
        cursor.execute(self.texts.advance, (number, self.owner, number - 1))
        self.check_advanced(cursor, number)

    def check_advanced(self, cursor: DBAPICursor, number: int) -> None:
        """As `advance`, of a statement that has advanced the row and counts it, if the store is still ours."""
        if cursor.rowcount == 1:
            return
        cursor.execute(self.texts.look, ())
        last = self._checked(cursor.fetchone(), self.written)
        raise StoreFailing(
            f"Batch {number} was to be written to {self._where}, but batch {last} is the last one there."
        )

    def last_batch(self, cursor: DBAPICursor) -> int:
        """The number of the last batch written. Raises StoreTaken.

        On a server it waits for a transaction under way, which may be the COMMIT of a lost connection.
        """
        cursor.execute(self.texts.look_and_hold, ())
        self.written = self._checked(cursor.fetchone(), self.written)
        return self.written

    def check(self, ask: Callable[[str], Sequence[Any] | None]) -> None:
        """See that the store is still ours and has all that it confirmed; `ask` returns the row that a statement finds.
        Raises StoreTaken or StoreWentBack.

        Another thread may be writing.
        """
        written = self.written
        self._checked(ask(self.texts.look), written)

    def _checked(self, row: Sequence[Any] | None, written: int) -> int:
        """The batch in the row, if it is ours. `written` was confirmed before the row was read."""
        if row is None:
            raise StoreFailing(f"The row that says whose store {self._where} is has gone.")
        owner, description, start_number, batch = row
        if start_number < self.start_number or (owner == self.owner and batch < written):
            raise StoreWentBack(
                f"The store {self._where} has forgotten what it had confirmed: its last batch is {batch}, and this "
                f"broker has written {written}. A replica that lacked commits has taken over, or a backup was "
                "restored while the broker ran. Make sure that this is the database you want, then start again."
            )
        if owner != self.owner:
            raise StoreTaken(
                f"Another broker has taken the store {self._where}: {description}. This one must not write "
                "to it any more. Give each broker a store of its own."
            )
        last_batch: int = batch
        return last_batch
