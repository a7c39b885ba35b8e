"""The durable store: SQL tables, written in batches and read in pages.

The only importer of SQLAlchemy, Alembic and psycopg. Knows rows, not clients or who decides what is kept. Synchronous:
its callers use threads, or the process that writes to an embedded file (`sqlite/writing_process.py`). Start reading
with `batch.py` (what is written), `schema.py` (where it goes) and `store.py` (in which order things happen).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stompbroker.storage.batch import (
        Batch,
        CursorRow,
        Deletion,
        ExportedBatches,
        ExportRow,
        Gap,
        Gathered,
        Kept,
        LastValueRow,
        LedgerRow,
        MessageRun,
        ProducerKey,
        ProducerRow,
        RedeliveryKey,
        RedeliveryRow,
        SubscriptionRow,
        TopicRow,
    )
    from stompbroker.storage.failures import (
        REMEDY,
        StoreDamaged,
        StoreFailing,
        StoreHeld,
        StoreLost,
        StoreRefused,
        StoreTaken,
        StoreUnreachable,
        StoreWentBack,
    )
    from stompbroker.storage.lease import Lease, Standing, boottime_s
    from stompbroker.storage.opening import (
        MARKER_NAME,
        migrate,
        note_owner,
        open_store,
        read_ledger,
        recall_owner,
        recognise,
    )
    from stompbroker.storage.ownership import Ownership
    from stompbroker.storage.sqlite.writing_process import (
        HEAD,
        WritingProcess,
        answered,
        forked_writing_process,
        question,
    )
    from stompbroker.storage.store import Store
    from stompbroker.storage.surveys import Expired, Extent, Stretch

__all__ = [
    "HEAD",
    "MARKER_NAME",
    "REMEDY",
    "Batch",
    "CursorRow",
    "Deletion",
    "Expired",
    "ExportRow",
    "ExportedBatches",
    "Extent",
    "Gap",
    "Gathered",
    "Kept",
    "LastValueRow",
    "Lease",
    "LedgerRow",
    "MessageRun",
    "Ownership",
    "ProducerKey",
    "ProducerRow",
    "RedeliveryKey",
    "RedeliveryRow",
    "Standing",
    "Store",
    "StoreDamaged",
    "StoreFailing",
    "StoreHeld",
    "StoreLost",
    "StoreRefused",
    "StoreTaken",
    "StoreUnreachable",
    "StoreWentBack",
    "Stretch",
    "SubscriptionRow",
    "TopicRow",
    "WritingProcess",
    "answered",
    "boottime_s",
    "forked_writing_process",
    "migrate",
    "note_owner",
    "open_store",
    "question",
    "read_ledger",
    "recall_owner",
    "recognise",
]

#: Where the names above are. A module is imported when somebody asks for a name of it: the writing process needs few,
#: and commands that only read settings none.
_PLACES: Final = {
    "batch": (
        "Batch CursorRow Deletion ExportedBatches ExportRow Gap Gathered Kept LastValueRow LedgerRow "
        "MessageRun ProducerKey ProducerRow RedeliveryKey RedeliveryRow SubscriptionRow TopicRow"
    ),
    "failures": (
        "REMEDY StoreDamaged StoreFailing StoreHeld StoreLost StoreRefused StoreTaken StoreUnreachable StoreWentBack"
    ),
    "lease": "Lease Standing boottime_s",
    "opening": "MARKER_NAME migrate note_owner open_store read_ledger recall_owner recognise",
    "ownership": "Ownership",
    "sqlite.writing_process": "HEAD WritingProcess answered forked_writing_process question",
    "store": "Store",
    "surveys": "Expired Extent Stretch",
}
_MODULES: Final = {name: module for module, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
