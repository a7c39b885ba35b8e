"""What outlives the process: SQL tables, written in batches and read in pages.

Law: the only importer of SQLAlchemy, Alembic and psycopg. Synchronous: it waits for disks and networks, so its caller
runs it in threads. It knows rows, and nothing of clients or of who decides what is kept.
"""

from stompbroker.storage.batch import (
    Batch,
    CursorRow,
    Deletion,
    ExportedBatches,
    ExportRow,
    Gathered,
    Kept,
    LedgerRow,
    MessageRun,
    RedeliveryKey,
    RedeliveryRow,
    SubscriptionRow,
    TopicRow,
)
from stompbroker.storage.errors import StoreFailing, StoreRefused, StoreTaken
from stompbroker.storage.ledger_reading import read_ledger
from stompbroker.storage.opening import current_revision, head_revision, migrate, open_store
from stompbroker.storage.ownership import Ownership
from stompbroker.storage.store import Store
from stompbroker.storage.surveys import Expired, Extent, Stretch

__all__ = [
    "Batch",
    "CursorRow",
    "Deletion",
    "Expired",
    "ExportRow",
    "ExportedBatches",
    "Extent",
    "Gathered",
    "Kept",
    "LedgerRow",
    "MessageRun",
    "Ownership",
    "RedeliveryKey",
    "RedeliveryRow",
    "Store",
    "StoreFailing",
    "StoreRefused",
    "StoreTaken",
    "Stretch",
    "SubscriptionRow",
    "TopicRow",
    "current_revision",
    "head_revision",
    "migrate",
    "open_store",
    "read_ledger",
]
