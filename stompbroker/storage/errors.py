"""What can go wrong with a store, by what the journal does next.

Law: three outcomes of a failed write, and no other reaches the journal; damage is a store that fails
for good. Which error of which driver is which of them is said in `failures.py`.
"""

from __future__ import annotations

from typing import Final

from stompbroker.errors import BrokerError, OperatorError

__all__ = ["REMEDY", "RESTORE", "StoreDamaged", "StoreFailing", "StoreRefused", "StoreTaken"]

#: What somebody can do about damage: where the broker does not start, and where it runs.
RESTORE: Final = "Restore it from one backup, as a whole."
REMEDY: Final = (
    "Restore the store from a backup, or skip what is lost: move the subscriptions that stop there "
    "(POST /api/v1/subscriptions/ID/move), or delete them (stompbroker subscriptions rm KEY)."
)


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
