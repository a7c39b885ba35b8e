"""Errors of a store, and which error of a driver is which of them.

A failed write has three outcomes: taken, refused or failing; damage is a store that fails for good. A data or integrity
error is the batch's fault, everything else the store's. Texts are the driver's first line: never a statement, which
holds what clients sent, and never a password.
"""

from __future__ import annotations

import sqlite3
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.errors import MAX_SUMMARY, BrokerError, OperatorError, shorten

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Engine

#: What an operator can do about damage: if the broker does not start, and while it runs.
RESTORE: Final = "Restore it from one backup, as a whole."
REMEDY: Final = (
    "Restore the store from a backup, or skip what is lost: move the subscriptions that stop there "
    "(POST /api/v1/subscriptions/ID/move), or delete them (stompbroker subscriptions rm KEY)."
)

#: PostgreSQL's classes of errors that are the rows' fault although its driver says otherwise: 21, a key twice in one
#: statement; 54, a value too long for its index.
_REFUSING_CLASSES: Final = ("21", "54")
#: Python's errors for a value that no column takes: a lone surrogate, an integer of more than 64 bits.
_REFUSING_VALUES: Final = (UnicodeError, OverflowError, struct.error)
#: The database itself is damaged: SQLite's codes for a malformed file and for no database, its words where it has no
#: code (values and a schema that are not ours), and PostgreSQL's codes for a table and an index.
_DAMAGED_CODES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGED_TEXTS: Final = ("Could not decode to UTF-8", "JSON cannot hold BLOB values", "no such table", "no such column")
_DAMAGED_STATES: Final = ("XX001", "XX002")


class StoreLost(OperatorError):
    """The store is not ours any more, or we cannot know. Fatal; started again, a broker may wait for it."""

    may_pass = True


class StoreTaken(StoreLost):
    """Another broker owns the store now: this one must not write any more."""


class StoreWentBack(OperatorError):
    """The store has forgotten batches that it had confirmed. Fatal: what we remember is not what it has."""


class StoreHeld(OperatorError):
    """Another broker owns the store, so this one cannot take it."""

    def __init__(self, text: str, *, lasts_s: float | None = None) -> None:
        super().__init__(text)
        #: How long that one's lease lasts if nothing else is seen of it; None if its session is there.
        self.lasts_s = lasts_s


class StoreUnreachable(OperatorError):
    """The database did not do what was needed at a start. It may later."""


class StoreRefused(BrokerError):
    """This batch can never be written, because of a row in it. Nothing of it was written, and the store is fine."""


class StoreFailing(BrokerError):
    """The store does not work at the moment; the text is a sentence for log and health.

    Only `Store.recover` tells whether the batch was written.
    """


class StoreDamaged(StoreFailing):
    """Stored data is altered or lost. Trying again does not help."""


@final
class Failures:
    """Translates what a driver raises. `where` names the database for people."""

    def __init__(self, driver: Any, where: str, passwords: Collection[str] = (), *wrapping: type[Exception]) -> None:
        """`wrapping` are errors that its errors come in."""
        self.where = where
        self.errors: tuple[type[Exception], ...] = (driver.Error, *wrapping, OSError, *_REFUSING_VALUES)
        self._refusing: tuple[type[Exception], ...] = (driver.IntegrityError, driver.DataError, *_REFUSING_VALUES)
        self._passwords = passwords

    @classmethod
    def of_engine(cls, engine: Engine, where: str, passwords: Collection[str] = ()) -> Failures:
        from sqlalchemy.exc import SQLAlchemyError  # the writing process does without

        return cls(engine.dialect.loaded_dbapi, where, passwords, SQLAlchemyError)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raises StoreRefused or StoreFailing for an error of the driver in the block."""
        try:
            yield
        except self.errors as error:
            raise self._blamed(error) from None

    @contextmanager
    def translated_for_operator(self, what: str) -> Iterator[None]:
        """Raises OperatorError, which begins with `what`, for damage or an error of the driver in the block."""
        errors: tuple[type[Exception], ...] = (StoreDamaged, *self.errors)
        try:
            yield
        except errors as error:
            reason = self._reason(error)
            if isinstance(error, StoreDamaged) or _is_damage(error):
                raise OperatorError(f"{what} {self.where}, which is damaged: {reason}. {RESTORE}") from None
            raise StoreUnreachable(f"{what} {self.where}: {reason}.") from None

    def _blamed(self, error: Exception) -> StoreRefused | StoreFailing:
        if _is_damage(error):
            return StoreDamaged(self._reason(error))
        driver_error = _of_driver(error)
        state = getattr(driver_error, "sqlstate", None) or ""
        if isinstance(driver_error, self._refusing) or state.startswith(_REFUSING_CLASSES):
            return StoreRefused(f"The store refuses what it was given: {self._reason(error)}.")
        return StoreFailing(f"The store {self.where} fails: {self._reason(error)}.")

    def _reason(self, error: Exception) -> str:
        text, *_ = str(_of_driver(error)).strip().splitlines() or [type(error).__name__]
        for password in self._passwords:
            text = text.replace(password, "***")
        return shorten(text.rstrip("."), MAX_SUMMARY)


def _of_driver(error: BaseException) -> BaseException:
    original = getattr(error, "orig", None)  # what SQLAlchemy has wrapped
    return original if isinstance(original, BaseException) else error


def _is_damage(error: Exception) -> bool:
    driver_error = _of_driver(error)
    return (
        getattr(driver_error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED_CODES
        or getattr(driver_error, "sqlstate", None) in _DAMAGED_STATES
        or str(driver_error).startswith(_DAMAGED_TEXTS)
        # Writing only encodes, so this came from reading.
        or isinstance(driver_error, UnicodeDecodeError)
    )
