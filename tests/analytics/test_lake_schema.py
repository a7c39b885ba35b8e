"""The one place where broker and report meet: both must say the same."""

from __future__ import annotations

import pytest

from stompbroker.ledger import Kind
from stompbroker.ledger import schema as ledger
from stompbroker.ledger.records import Outcome
from stompbroker_report import lake_schema
from stompbroker_report.schemas import LAKE, MARTS


@pytest.mark.parametrize("kind", Kind)
def test_report_reads_what_the_broker_writes(kind: Kind) -> None:
    assert lake_schema.TABLES[kind.value].equals(ledger.SCHEMAS[kind], check_metadata=True)


def test_report_knows_every_outcome() -> None:
    assert tuple(outcome.value for outcome in Outcome) == lake_schema.OUTCOMES


@pytest.mark.parametrize("table", lake_schema.TABLES)
def test_spark_has_the_columns_of_the_lake_and_the_date(table: str) -> None:
    assert LAKE[table].names == [*lake_schema.TABLES[table].names, "dt"]
    assert {field.dataType.typeName() for field in LAKE[table] if field.name.endswith("_at")} == {"timestamp"}


def test_every_mart_begins_with_its_date() -> None:
    assert {mart.names[0] for mart in MARTS.values()} == {"dt"}
