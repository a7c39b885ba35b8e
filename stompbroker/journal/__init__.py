"""The journal of a broker with a store: from units to batches, and from what is kept back to topics.

Law: knows what must be written and in which order, and neither SQL nor threads; the journal actor carries batches to
the store. Synchronous, except for waiting.
"""

from stompbroker.journal.forming import Numbers
from stompbroker.journal.restoring import restore
from stompbroker.journal.store_journal import Formed, StoreJournal

__all__ = ["Formed", "Numbers", "StoreJournal", "restore"]
