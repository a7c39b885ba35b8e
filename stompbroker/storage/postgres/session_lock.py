"""The lock that keeps a second broker off a PostgreSQL database.

Law: an advisory lock of a session of its own, so it goes with the session, however that ends. It is for telling people
in time; what makes a second writer harmless is the fence in `journal_state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from sqlalchemy import func, select, text
from sqlalchemy.exc import SQLAlchemyError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["SessionLock"]

#: "STMP". The lock's second number is made of the schema, since each schema of a database can be a store of its own.
_KEY: Final = 0x53544D50

_SCHEMA: Final = func.hashtext(func.current_schema())

#: Others' sessions show their times only to those with the right to see them.
_HOLDER: Final = text(
    """
    SELECT activity.pid, activity.client_addr,
      to_char(activity.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
    FROM pg_locks AS held JOIN pg_stat_activity AS activity USING (pid)
    WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 2
      AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND held.classid::bigint = :key AND held.objid = hashtext(current_schema())::oid
    """
)


@final
class SessionLock:
    """Held from the first `acquire` that succeeds until `release`, or until the session is lost."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: Connection | None = None

    def acquire(self) -> bool:
        """Take it, or make sure that it is still held; false if another session holds it."""
        if self._session is not None:
            if self._still_lives(self._session):
                return True
            self.release()
        session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            is_ours = bool(session.execute(select(func.pg_try_advisory_lock(_KEY, _SCHEMA))).scalar_one())
        except BaseException:
            session.invalidate()
            session.close()
            raise
        if is_ours:
            self._session = session
        else:
            session.close()
        return is_ours

    def holder(self, connection: Connection) -> str:
        row = connection.execute(_HOLDER, {"key": _KEY}).one_or_none()
        if row is None:
            return "it has just let go"
        since = f" since {row[2]} UTC" if row[2] else ""
        return f"database session {row[0]}, from {row[1] or 'this machine'}{since}"

    def release(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.invalidate()  # closes it, rather than asking a server that may be gone to unlock
            session.close()

    def _still_lives(self, session: Connection) -> bool:
        try:
            session.exec_driver_sql("SELECT 1")
        except SQLAlchemyError:
            return False
        return True
