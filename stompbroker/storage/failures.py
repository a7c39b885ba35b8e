"""What can go wrong with a store, by what the journal does next, and which error of a driver is which of them.

Law: a failed write has three outcomes: taken, refused or failing. Damage is a store that fails for good. A data or
integrity error is the batch's fault, everything else the store's. Texts are the driver's first line: never a statement,
which holds what clients sent, and never a password.
"""

from __future__ import annotations

import sqlite3
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from stompbroker.errors import MAX_SUMMARY, BrokerError, OperatorError, shorten

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["REMEDY", "RESTORE", "Failures", "StoreDamaged", "StoreFailing", "StoreRefused", "StoreTaken"]

#: What somebody can do about damage: where the broker does not start, and where it runs.
RESTORE: Final = "Restore it from one backup, as a whole."
REMEDY: Final = (
    "Restore the store from a backup, or skip what is lost: move the subscriptions that stop there "
    "(POST /api/v1/subscriptions/ID/move), or delete them (stompbroker subscriptions rm KEY)."
)

#: PostgreSQL's classes of errors that lie in the rows but that its driver counts among others: 21, one key twice in one
#: statement; 54, a value too long for its index.
_REFUSING_CLASSES: Final = ("21", "54")
#: What Python itself says to a value that no column takes: a lone surrogate, an integer of more than 64 bits.
_REFUSING_VALUES: Final = (UnicodeError, OverflowError, struct.error)
#: What says that the database itself is damaged: SQLite's codes for a malformed file and for one that is none, and its
#: words, where it has no code, for values and a schema that are not ours; PostgreSQL's codes for a table and an index.
_DAMAGED_CODES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGED_TEXTS: Final = (
    "Could not decode to UTF-8",
    "JSON cannot hold BLOB values",
    "no such table",
    "no such column",
)
_DAMAGED_STATES: Final = ("XX001", "XX002")


class StoreTaken(OperatorError):
    """Somebody else owns the store now. Fatal: nothing this broker still has to write may be written."""


class StoreRefused(BrokerError):
    """This batch cannot be written, today or ever: a row of it is at fault. Nothing of it was written, and the store is
    as good as before."""


class StoreFailing(BrokerError):
    """The store does not work at the moment; the text is a sentence for log and health.

    Whether the batch was written is not known before `Store.recover` says so.
    """


class StoreDamaged(StoreFailing):
    """What is read is not what was written, or is not there any more. To try again does not help."""


@final
class Failures:
    """Translates what a driver raises. `driver` is its module, as PEP 249 describes it."""

    __slots__ = ("_errors", "_passwords", "_refusing", "_where")

    def __init__(self, driver: Any, where: str, passwords: Collection[str] = ()) -> None:
        self._errors: tuple[type[Exception], ...] = (driver.Error, SQLAlchemyError, OSError, *_REFUSING_VALUES)
        self._refusing: tuple[type[Exception], ...] = (driver.IntegrityError, driver.DataError, *_REFUSING_VALUES)
        self._where = where
        self._passwords = passwords

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raises StoreRefused or StoreFailing for an error of the driver in the block."""
        try:
            yield
        except self._errors as error:
            raise self._blamed(error) from None

    @contextmanager
    def translated_for_operator(self, what: str) -> Iterator[None]:
        """Raises OperatorError, with `what` as the beginning of its text, for an error of the driver in the block."""
        try:
            yield
        except self._errors as error:
            if _is_damage(error):
                raise OperatorError(
                    f"{what} {self._where}, which is damaged: {self._reason(error)}. {RESTORE}"
                ) from None
            raise OperatorError(f"{what} {self._where}: {self._reason(error)}.") from None
        except StoreDamaged as damage:
            raise OperatorError(f"{what} {self._where}, which is damaged: {damage}. {RESTORE}") from None

    def _blamed(self, error: Exception) -> StoreRefused | StoreFailing:
        driver_error = _of_driver(error)
        if _is_damage(error):
            return StoreDamaged(self._reason(error))
        state = getattr(driver_error, "sqlstate", None) or ""
        if isinstance(driver_error, self._refusing) or state.startswith(_REFUSING_CLASSES):
            return StoreRefused(f"The store refuses what it was given: {self._reason(error)}.")
        return StoreFailing(f"The store {self._where} fails: {self._reason(error)}.")

    def _reason(self, error: Exception) -> str:
        lines = str(_of_driver(error)).strip().splitlines() or [type(error).__name__]
        text = lines[0]
        for password in self._passwords:
            text = text.replace(password, "***")
        return shorten(text.rstrip("."), MAX_SUMMARY)


def _of_driver(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _is_damage(error: Exception) -> bool:
    driver_error = _of_driver(error)
    return (
        getattr(driver_error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED_CODES
        or getattr(driver_error, "sqlstate", None) in _DAMAGED_STATES
        or str(driver_error).startswith(_DAMAGED_TEXTS)
        # What we write is encoded, so this is something that was read.
        or isinstance(driver_error, UnicodeDecodeError)
    )
