"""What became of every delivery: from settled deliveries to Parquet files that anybody can read.

Law: columns in memory → one Arrow batch, in the transaction that settles them → files of the lake. It knows records,
and nothing of clients, topics or frames. pyarrow, which takes a tenth of a second to load, is imported with the first
record, or by the process that writes the lake; so nothing here imports `schema` at its top, but for those two.
"""

from stompbroker.ledger.backlog import Behind, backlog
from stompbroker.ledger.export_orders import ExportOrder, FileWritten
from stompbroker.ledger.exports import Exports, Waiting, day_of
from stompbroker.ledger.kinds import Kind
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
