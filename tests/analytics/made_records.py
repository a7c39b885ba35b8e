"""Records of the ledger, made by hand: what the steps are tested with.

Law: rows alone, and the frames made of them. Every function makes something that a broker could have written, and
takes what a test wants otherwise.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from stompbroker_report.lake_schema import TABLES
from stompbroker_report.schemas import MARTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

DATE = date(2026, 11, 15)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def delivery(**otherwise: object) -> Row:
    """Published at noon, sent 2 ms later, acknowledged 10 ms after that."""
    row: Row = {
        "message_id": "m-1",
        "topic": "orders",
        "offset": 0,
        "subscription": "billing/orders",
        "client_id": "billing",
        "subscription_name": "orders",
        "is_durable": True,
        "ack_mode": "client-individual",
        "generation": 0,
        "body_bytes": 100,
        "publisher": "shop",
        "published_at": NOON,
        "first_sent_at": NOON + timedelta(milliseconds=2),
        "last_sent_at": NOON + timedelta(milliseconds=2),
        "settled_at": NOON + timedelta(milliseconds=12),
        "attempts": 1,
        "nacks": 0,
        "last_reason": None,
        "outcome": "acked",
        "weight": 1,
        "kind": "topic",
        "member": None,
        "dt": DATE,
    }
    return _replaced(row, otherwise)


def snapshot(**otherwise: object) -> Row:
    """Nothing is left, at noon."""
    row: Row = {
        "taken_at": NOON,
        "is_closing": False,
        "topic": "orders",
        "subscription": "billing/orders",
        "client_id": "billing",
        "subscription_name": "orders",
        "lag_messages": 0,
        "lag_s": None,
        "in_flight": 0,
        "waiting": 0,
        "pinned_bytes": 0,
        "kind": "topic",
        "dt": DATE,
    }
    return _replaced(row, otherwise)


def _replaced(row: Row, otherwise: Row) -> Row:
    assert otherwise.keys() <= row.keys(), otherwise.keys() - row.keys()
    return row | otherwise


def lake_frame(spark: SparkSession, table: str, made: Sequence[Row]) -> DataFrame:
    """As `Lake.read` gives it."""
    schema = TABLES[table].append(pa.field("dt", pa.date32()))
    return spark.createDataFrame(pa.Table.from_pylist(list(made), schema=schema))


def mart_frame(spark: SparkSession, mart: str, made: Sequence[Row]) -> DataFrame:
    """As a step gives it; what a row does not say is null."""
    return spark.createDataFrame([tuple(row.get(name) for name in MARTS[mart].names) for row in made], MARTS[mart])


def rows(frame: DataFrame, *columns: str) -> list[Row]:
    """What is in a frame, in any order; of these columns, or all."""
    found: list[Row] = (frame.select(*columns) if columns else frame).toArrow().to_pylist()
    return found


def write_lake(where: Path, table: str, made: Collection[Row]) -> None:
    """One file per date, as a broker writes it."""
    for day in {row["dt"] for row in made}:
        folder = where / table / f"dt={day}"
        folder.mkdir(parents=True, exist_ok=True)
        of_day = [{name: value for name, value in row.items() if name != "dt"} for row in made if row["dt"] == day]
        pq.write_table(pa.Table.from_pylist(of_day, schema=TABLES[table]), folder / "export-1.parquet")
