"""What can go wrong with a store, by what the journal does next.

Law: three outcomes of a failed write, and no other reaches the journal. Which error of which driver is which of them is
said in `failures.py`.
"""

from __future__ import annotations

from stompbroker.errors import BrokerError, OperatorError

__all__ = ["StoreFailing", "StoreRefused", "StoreTaken"]


class StoreTaken(OperatorError):
    """Somebody else owns the store now. Fatal: nothing this broker still has to write may be written."""


class StoreRefused(BrokerError):
    """This batch cannot be written, today or ever: a row of it is at fault. Nothing of it was written, and the store is
    as good as before."""


class StoreFailing(BrokerError):
    """The store does not work at the moment; the text is a sentence for log and health.

    Whether the batch was written is not known before `Store.recover` says so.
    """
