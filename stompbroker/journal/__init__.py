"""The journal of a broker with a store: from units to batches, and at start from rows back to topics.

Law: knows what must be written and in which order, and no SQL. Only the store writer knows threads and the writing
process. Synchronous, except for waiting.
"""

from stompbroker.journal.batch_builder import Formed
from stompbroker.journal.health import Health
from stompbroker.journal.owning import OpenedStore, own_store
from stompbroker.journal.rows import restore, restore_producers
from stompbroker.journal.store_journal import StoreJournal
from stompbroker.journal.store_writer import StoreWriter, Written

__all__ = [
    "Formed",
    "Health",
    "OpenedStore",
    "StoreJournal",
    "StoreWriter",
    "Written",
    "own_store",
    "restore",
    "restore_producers",
]
