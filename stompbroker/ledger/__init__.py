"""What became of every delivery: from settled deliveries to Parquet files that anybody can read.

Law: settled deliveries become drafts, in the transaction that settles them; the exporting process makes columns and
Parquet files of these. It knows records, and nothing of clients, topics or frames. pyarrow takes a tenth of a second to
load, so only `export_process` imports `schema` at its top.
"""

from stompbroker.ledger.backlog import Behind, backlog
from stompbroker.ledger.export_orders import ExportOrder, FileWritten
from stompbroker.ledger.exports import Exports, Waiting, day_of
from stompbroker.ledger.lake import Kind
from stompbroker.ledger.payload import Payload
from stompbroker.ledger.rounds import RoundFailed, RoundResult, Rounds, RoundStatistics

__all__ = [
    "Behind",
    "ExportOrder",
    "Exports",
    "FileWritten",
    "Kind",
    "Payload",
    "RoundFailed",
    "RoundResult",
    "RoundStatistics",
    "Rounds",
    "Waiting",
    "backlog",
    "day_of",
]
