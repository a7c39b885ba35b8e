"""The journal of a broker with a store: from units to batches, and at start from rows back to topics.

Law: knows what must be written and in which order, and no SQL. Only the store writer knows threads and the writing
process. Synchronous, except for waiting.
"""

from stompbroker.journal.batch_builder import Formed
from stompbroker.journal.health import Health
from stompbroker.journal.opening import OpenedStore, own_store
from stompbroker.journal.restoring import restore
from stompbroker.journal.rows import Numbers
from stompbroker.journal.store_journal import StoreJournal
from stompbroker.journal.store_writer import StoreWriter, Written

__all__ = [
    "Formed",
    "Health",
    "Numbers",
    "OpenedStore",
    "StoreJournal",
    "StoreWriter",
    "Written",
    "own_store",
    "restore",
]
