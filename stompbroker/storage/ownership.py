"""The one row of `journal_state`: who owns the store, how one becomes its owner, and the texts of its fence."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from sqlalchemy import bindparam, insert, select, update

from stompbroker.storage.failures import StoreDamaged
from stompbroker.storage.fence import FenceTexts
from stompbroker.storage.row_format import checksum
from stompbroker.storage.schema import journal_state
from stompbroker.storage.statements import text_of

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect, Insert, Update

    from stompbroker.storage.fence import Fence

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


def fence_texts(dialect: Dialect) -> FenceTexts:
    ours = update(journal_state).where(journal_state.c.owner == bindparam("me"))
    advance, names = text_of(
        ours.values(batch=bindparam("next")).where(journal_state.c.batch == bindparam("last")), dialect
    )
    assert names == ("next", "me", "last")
    note_closed, names = text_of(ours.values(was_closed=bindparam("is_closed")), dialect)
    assert names == ("is_closed", "me")
    return FenceTexts(advance, text_of(_LOOK, dialect)[0], text_of(_LOOK.with_for_update(), dialect)[0], note_closed)


def take(fence: Fence, connection: Connection, description: str) -> Ownership:
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
            owner=fence.owner,
            owner_description=description,
            start_number=ownership.start_number,
            was_closed=False,
            checksum=checksum((ownership.store_id, fence.owner, description, ownership.start_number)),
        )
    )
    fence.written, fence.start_number = ownership.batch, ownership.start_number
    return ownership
