"""What outlives the process: SQL tables, written in batches and read in pages.

Law: the only importer of SQLAlchemy, Alembic and psycopg. Synchronous: it waits for disks and networks, so its caller
runs it in threads, or has an embedded file written to by a process of its own (`sqlite/writing_process.py`). It knows
rows, and nothing of clients or of who decides what is kept.

A reader starts with `batch.py` (what is written), `schema.py` (where it goes) and `store.py` (in which order things
happen); `sqlite/` and `postgres/` hold what only one engine needs.
"""

from stompbroker.storage.batch import (
    Batch,
    CursorRow,
    Deletion,
    ExportedBatches,
    ExportRow,
    Gap,
    Gathered,
    Kept,
    LedgerRow,
    MessageRun,
    RedeliveryKey,
    RedeliveryRow,
    SubscriptionRow,
    TopicRow,
)
from stompbroker.storage.failures import REMEDY, StoreDamaged, StoreFailing, StoreRefused, StoreTaken
from stompbroker.storage.ledger_reading import read_ledger
from stompbroker.storage.opening import current_revision, head_revision, migrate, open_store, recognise
from stompbroker.storage.ownership import Ownership
from stompbroker.storage.sqlite import (
    HEAD,
    Encoded,
    Question,
    WritingProcess,
    answered,
    encode,
    forked_writing_process,
    question,
)
from stompbroker.storage.store import Store
from stompbroker.storage.surveys import Expired, Extent, Stretch

__all__ = [
    "HEAD",
    "REMEDY",
    "Batch",
    "CursorRow",
    "Deletion",
    "Encoded",
    "Expired",
    "ExportRow",
    "ExportedBatches",
    "Extent",
    "Gap",
    "Gathered",
    "Kept",
    "LedgerRow",
    "MessageRun",
    "Ownership",
    "Question",
    "RedeliveryKey",
    "RedeliveryRow",
    "Store",
    "StoreDamaged",
    "StoreFailing",
    "StoreRefused",
    "StoreTaken",
    "Stretch",
    "SubscriptionRow",
    "TopicRow",
    "WritingProcess",
    "answered",
    "current_revision",
    "encode",
    "forked_writing_process",
    "head_revision",
    "migrate",
    "open_store",
    "question",
    "read_ledger",
    "recognise",
]
