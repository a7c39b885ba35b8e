"""The lease of a store on a server: how long its owner may go on without another word from the database.

The row's end is by the database's clock; whether we still trust in it, by a clock of our own. It is counted from before
each renewal was sent and ends early, so an owner has stopped before anybody else can begin. The row is a table of its
own: a batch holds the row of `journal_state` until its COMMIT, and a renewal must not wait for that.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from sqlalchemy import func, select, text, update

from stompbroker.storage.schema import journal_state, leases

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: After these parts of the lease, counted from before the last renewal was sent, the owner stops, and is ended by
#: force. The rest is for what a computer is late with, and for clocks that do not run alike.
STOP_PART: Final = 0.8
END_PART: Final = 0.9
#: A renewal is due after this part of the lease, so that three may fail.
RENEWAL_PART: Final = 0.25

#: Counts while the machine sleeps, too. On macOS the monotonic clock does.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime_s() -> float:
    """Seconds since some moment, those included in which the machine slept."""
    return time.clock_gettime(_CLOCK)


@final
class Lease:
    """How long its owner may trust in it. Written by the thread that renews it, read by the event loop.

    Invariants:
        stops_at_s <= ends_at_s < when the row's lease runs out, as long as both clocks count seconds
        neither ever moves back
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._asked_at_s = -math.inf

    @property
    def stops_at_s(self) -> float:
        """From when on we serve nobody."""
        return self._asked_at_s + STOP_PART * self.lease_s

    @property
    def ends_at_s(self) -> float:
        """From when on nothing of us may run, by `boottime_s`."""
        return self._asked_at_s + END_PART * self.lease_s

    @property
    def renewal_s(self) -> float:
        """How often it is to be renewed."""
        return RENEWAL_PART * self.lease_s

    def rest_s(self) -> float:
        """For how long we may still serve."""
        return self.stops_at_s - boottime_s()

    def note_renewed(self, asked_at_s: float) -> None:
        """`asked_at_s` is by `boottime_s`, before the database was asked."""
        self._asked_at_s = max(self._asked_at_s, asked_at_s)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How it stands with the owner of a store, as its row says at this moment."""

    #: Its token; empty if there is none, or if it has no lease and has let go of its lock.
    owner: str = ""
    description: str = ""
    #: Whether the owner has a lease, or has had one. Those of older releases have none; the lock alone speaks for them.
    is_leased: bool = False
    #: For how long the lease lasts, by the database's clock; 0 or less: it is over. None: it was given back.
    lasts_s: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the owner has no lease any more."""
        return self.is_leased and (self.lasts_s is None or self.lasts_s <= 0)

    @property
    def how_it_ended(self) -> str:
        if not self.is_leased:
            return "it has let go of its lock"
        if self.lasts_s is None:
            return "it has given its lease back"
        return f"its lease has run out {-self.lasts_s:.1f} s ago"


_LASTS_S: Final = func.extract("epoch", leases.c.until - func.clock_timestamp()).label("lasts_s")
_LOOK: Final = select(
    journal_state.c.owner, journal_state.c.owner_description, leases.c.owner.label("lessee"), leases.c.until, _LASTS_S
).select_from(journal_state.outerjoin(leases, leases.c.owner == journal_state.c.owner))


def look(connection: Connection) -> Standing:
    row = connection.execute(_LOOK).one_or_none()
    if row is None:
        return Standing()
    return Standing(
        owner=row.owner,
        description=row.owner_description,
        is_leased=row.lessee is not None,
        lasts_s=None if row.lasts_s is None else float(row.lasts_s),
    )


def hold_row(connection: Connection) -> None:
    """Keep renewals and other successors out until the caller's transaction ends."""
    from sqlalchemy.dialects.postgresql import insert

    connection.execute(insert(leases).values(id=1, owner="").on_conflict_do_nothing())
    connection.execute(select(leases.c.id).with_for_update())


def begin(connection: Connection, owner: str, lease_s: float) -> None:
    """The caller holds the row, and has just become the owner."""
    connection.execute(update(leases).values(owner=owner, until=_end_after(lease_s)))


def renew(connection: Connection, owner: str, lease_s: float) -> bool:
    """Whether there still is a lease of ours."""
    statement = update(leases).values(until=_end_after(lease_s)).where(leases.c.owner == owner)
    return connection.execute(statement).rowcount == 1


def give_back(connection: Connection, owner: str) -> None:
    connection.execute(update(leases).values(until=None).where(leases.c.owner == owner))


def _end_after(lease_s: float) -> object:
    # Not now(), which is when the transaction began: it may have waited for the row.
    return func.clock_timestamp() + timedelta(seconds=lease_s)


#: The sessions of an owner whose lease is over: the one with the lock, and what holds the row of `journal_state`.
_END_SESSIONS: Final = text(
    """
    SELECT pg_terminate_backend(pid) FROM (
      SELECT DISTINCT pid FROM pg_locks
      WHERE granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND pid NOT IN (pg_backend_pid(), :successor)
        AND (locktype = 'advisory' AND objsubid = 2
            AND classid::bigint = :key AND objid = hashtext(current_schema())::oid
          OR locktype = 'relation' AND relation = 'journal_state'::regclass
            AND mode IN ('RowShareLock', 'RowExclusiveLock'))
    ) AS theirs
    """
)


def end_sessions(connection: Connection, *, lock_key: int, successor: int) -> None:
    """End the lost owner's sessions, which the server may not miss for long. `successor` is ours that holds the row; if
    another one of ours has the lock, it is that of `connection`."""
    connection.execute(_END_SESSIONS, {"key": lock_key, "successor": successor})
