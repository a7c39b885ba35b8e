"""The journal of a broker with a store: from units to batches, and from what is kept back to topics.

Law: knows what must be written and in which order, and neither SQL nor threads; the journal actor carries batches to
the store. Synchronous, except for waiting.
"""

from stompbroker.journal.formed import Formed
from stompbroker.journal.health import Health
from stompbroker.journal.restoring import restore
from stompbroker.journal.rows import Numbers
from stompbroker.journal.store_journal import StoreJournal

__all__ = ["Formed", "Health", "Numbers", "StoreJournal", "restore"]
