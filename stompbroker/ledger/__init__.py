"""What became of every delivery: from settled deliveries to Parquet files.

Law: deliveries become drafts in the transaction that settles them; the exporting process makes Parquet files of these.
Knows records, and nothing of clients or topics. Only the exporting process imports pyarrow: never the broker.
"""

from stompbroker.ledger.exports import Exports, Waiting, day_of
from stompbroker.ledger.lake import ExportOrder, FileWritten, Kind
from stompbroker.ledger.payload import Payload, backlog
from stompbroker.ledger.records import Behind
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
