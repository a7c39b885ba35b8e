"""The one row of `journal_state`: who owns the store, and which batch was the last.

A starting broker writes its token there. The first statement of every batch, the fence, increments the batch number in
the owner's row. So a batch is written once, even if it is repeated, and only by the owner, even if locks were lost.
Whoever looks at the row also sees whether the store has forgotten something, as a replica that took over may have.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy import bindparam, insert, select, update

from stompbroker.storage.failures import StoreDamaged, StoreFailing, StoreTaken, StoreWentBack
from stompbroker.storage.row_format import checksum
from stompbroker.storage.schema import journal_state
from stompbroker.storage.statements import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Dialect, Insert, Update
    from sqlalchemy.engine.interfaces import DBAPICursor

_LOOK: Final = select(
    journal_state.c.owner, journal_state.c.owner_description, journal_state.c.start_number, journal_state.c.batch
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """What a start learns about earlier starts."""

    #: Eight hexadecimal digits that never change.
    store_id: str
    #: 1 for the first start of this store.
    start_number: int
    #: Number of the last batch; 0 before the first.
    batch: int
    #: Whether the last owner closed the store; true if there was none.
    was_closed: bool = True
    #: The last owner's token; empty if there was none.
    last_owner: str = field(default="", compare=False)


def holder_of(connection: Connection) -> str | None:
    """A description of the last owner; None before the first start."""
    return connection.execute(select(journal_state.c.owner_description)).scalar()


@final
class Fence:
    """The row, as the owner sees it. `owner` is a token, new in every process, so that no earlier one passes.

    Invariants:
        the store has confirmed batch `written`, and whatever came before it
    """

    def __init__(self, where: str, dialect: Dialect) -> None:
        self.owner = secrets.token_hex(16)
        #: Set by who commits.
        self.written = 0
        self._start_number = 0
        self._where = where
        self._advance, names = text_of(
            update(journal_state)
            .values(batch=bindparam("next"))
            .where(journal_state.c.owner == bindparam("me"), journal_state.c.batch == bindparam("last")),
            dialect,
        )
        assert names == ("next", "me", "last")
        self._look, _ = text_of(_LOOK, dialect)

    def take(self, connection: Connection, description: str) -> Ownership:
        """Become the owner. The caller holds the lock and a transaction."""
        row = connection.execute(select(journal_state).with_for_update()).one_or_none()
        if row is None:
            ownership = Ownership(store_id=secrets.token_hex(4), start_number=1, batch=0)
            statement: Insert | Update = insert(journal_state).values(id=1, store_id=ownership.store_id, batch=0)
        else:
            expected = checksum((row.store_id, row.owner, row.owner_description, row.start_number))
            if row.checksum is not None and row.checksum != expected:
                raise StoreDamaged("the row that says whose store it is is not as it was written")
            ownership = Ownership(
                store_id=row.store_id,
                start_number=row.start_number + 1,
                batch=row.batch,
                was_closed=row.was_closed,
                last_owner=row.owner,
            )
            statement = update(journal_state)
        connection.execute(
            statement.values(
                owner=self.owner,
                owner_description=description,
                start_number=ownership.start_number,
                was_closed=False,
                checksum=checksum((ownership.store_id, self.owner, description, ownership.start_number)),
            )
        )
        self.written, self._start_number = ownership.batch, ownership.start_number
        return ownership

    def note_closed(self, connection: Connection) -> None:
        """Note that we have closed the store. The caller holds a transaction."""
        connection.execute(update(journal_state).values(was_closed=True).where(journal_state.c.owner == self.owner))

    def advance(self, cursor: DBAPICursor, number: int) -> None:
        """Begin batch `number`. Raises StoreTaken, or StoreFailing if the batch before it is not the last one."""
        cursor.execute(self._advance, (number, self.owner, number - 1))
        self.check_advanced(cursor, number)

    def check_advanced(self, cursor: DBAPICursor, number: int) -> None:
        """As `advance`, of a statement that has advanced the row and counts it, if the store is still ours."""
        if cursor.rowcount == 1:
            return
        cursor.execute(self._look, ())
        last = self._checked(cursor.fetchone(), self.written)
        raise StoreFailing(
            f"Batch {number} was to be written to {self._where}, but batch {last} is the last one there."
        )

    def last_batch(self, connection: Connection) -> int:
        """The number of the last batch written. Raises StoreTaken.

        On a server it waits for a transaction under way, which may be the COMMIT of a lost connection.
        """
        self.written = self._checked(connection.execute(_LOOK.with_for_update()).one_or_none(), self.written)
        return self.written

    def check(self, connection: Connection) -> None:
        """See that the store is still ours and has all that it confirmed. Raises StoreTaken or StoreWentBack.

        Another thread may be writing.
        """
        written = self.written
        self._checked(connection.execute(_LOOK).one_or_none(), written)

    def _checked(self, row: Sequence[Any] | None, written: int) -> int:
        """The batch in the row, if it is ours. `written` was confirmed before the row was read."""
        if row is None:
            raise StoreFailing(f"The row that says whose store {self._where} is has gone.")
        owner, description, start_number, batch = row
        if start_number < self._start_number or (owner == self.owner and batch < written):
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
