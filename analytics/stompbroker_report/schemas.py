"""The columns of every table that Spark reads or writes here.

Names and types, no expressions. `dt` is the date in the folder's name, UTC. In the marts the name tells the unit: `_s`
seconds, `_bytes`, `_rate` 0 to 1, `_at` an instant, `hour_utc` 0 to 23 (24 is the end of a day). Numbers of deliveries
are weighted: a record that stands for several counts as several.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from stompbroker_report.lake_schema import OUTCOMES, TABLES

_STRING: Final = StringType()
_LONG: Final = LongType()
_INTEGER: Final = IntegerType()
_BOOLEAN: Final = BooleanType()
_DOUBLE: Final = DoubleType()
_TIME: Final = TimestampType()
_DATE: Final = DateType()


def _table(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


#: The tables of the lake for Spark; explicit, so that a file with other types is an error and a missing newer column is
#: null.
LAKE: Final = {
    name: _table(**{column.name: column.dataType for column in from_arrow_schema(schema)}, dt=_DATE)
    for name, schema in TABLES.items()
}

#: Fewest and most attempts; None: no upper bound.
ATTEMPTS_BUCKETS: Final[tuple[tuple[int, int | None], ...]] = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 9), (10, None))


def attempts_column(attempts_from: int, attempts_to: int | None) -> str:
    """The name of a bucket's column."""
    if attempts_to is None:
        return f"attempts_{attempts_from}_and_more"
    return f"attempts_{attempts_from}" if attempts_from == attempts_to else f"attempts_{attempts_from}_to_{attempts_to}"


#: Each has five columns: `<name>_deliveries`, `_p50_s`, `_p95_s`, `_p99_s` and `_max_s`.
DURATIONS: Final = ("time_to_first_delivery", "time_to_ack")

_DURATION_COLUMNS: Final[dict[str, DataType]] = {
    f"{name}_{column}": kind
    for name in DURATIONS
    for column, kind in {
        "deliveries": _LONG,
        "p50_s": _DOUBLE,
        "p95_s": _DOUBLE,
        "p99_s": _DOUBLE,
        "max_s": _DOUBLE,
    }.items()
}
_OUTCOME_COLUMNS: Final[dict[str, DataType]] = {f"outcome_{word}": _LONG for word in (*OUTCOMES, "unknown")}
_FIGURES: Final[dict[str, DataType]] = {
    "deliveries": _LONG,
    "records": _LONG,
    "weighted_records": _LONG,
    "weighted_deliveries": _LONG,
    **_OUTCOME_COLUMNS,
    "sent_deliveries": _LONG,
    "redelivered": _LONG,
    "redelivery_rate": _DOUBLE,
    "nacks": _LONG,
    "attempts": _LONG,
    **{attempts_column(*bucket): _LONG for bucket in ATTEMPTS_BUCKETS},
    "body_bytes": _LONG,
    **_DURATION_COLUMNS,
}
_SNAPSHOT: Final[dict[str, DataType]] = {
    "lag_messages": _LONG,
    "lag_s": _DOUBLE,
    "in_flight": _LONG,
    "waiting": _LONG,
    "pinned_bytes": _LONG,
}

#: By name; each is in `marts/<name>/dt=YYYY-MM-DD/`.
MARTS: Final = {
    "days": _table(dt=_DATE, duplicate_records=_LONG, **_FIGURES),
    "topics": _table(dt=_DATE, topic=_STRING, subscriptions=_LONG, **_FIGURES),
    "subscriptions": _table(dt=_DATE, subscription=_STRING, is_durable=_BOOLEAN, topics=_LONG, **_FIGURES),
    "readings": _table(dt=_DATE, topic=_STRING, subscription=_STRING, is_durable=_BOOLEAN, **_FIGURES),
    # Of groups and queues. `place` 1 had most of its group; what begins with `group_` is the same in all of its rows.
    "members": _table(
        dt=_DATE,
        subscription=_STRING,
        member=_STRING,
        place=_INTEGER,
        deliveries=_LONG,
        share_rate=_DOUBLE,
        **_OUTCOME_COLUMNS,
        failed=_LONG,
        redelivered=_LONG,
        nacks=_LONG,
        body_bytes=_LONG,
        group_members=_LONG,
        group_deliveries=_LONG,
        group_failed=_LONG,
        group_least_share_rate=_DOUBLE,
        group_without_member=_LONG,
    ),
    "hours": _table(
        dt=_DATE,
        hour_utc=_INTEGER,
        deliveries=_LONG,
        **_OUTCOME_COLUMNS,
        redelivered=_LONG,
        nacks=_LONG,
        body_bytes=_LONG,
        **_DURATION_COLUMNS,
    ),
    "topic_hours": _table(
        dt=_DATE,
        topic=_STRING,
        hour_utc=_INTEGER,
        deliveries=_LONG,
        **_OUTCOME_COLUMNS,
        redelivered=_LONG,
        nacks=_LONG,
        body_bytes=_LONG,
    ),
    "reading_reasons": _table(
        dt=_DATE, topic=_STRING, subscription=_STRING, reason=_STRING, deliveries=_LONG, nacks=_LONG, dead=_LONG
    ),
    # `topic` and `subscription` name the reading that had the reason most often.
    "reasons": _table(
        dt=_DATE,
        reason=_STRING,
        deliveries=_LONG,
        nacks=_LONG,
        dead=_LONG,
        readings=_LONG,
        topic=_STRING,
        subscription=_STRING,
    ),
    "dead_letters": _table(
        dt=_DATE,
        topic=_STRING,
        subscription=_STRING,
        reason=_STRING,
        deliveries=_LONG,
        first_at=_TIME,
        last_at=_TIME,
    ),
    # The last few of a date, one row each.
    "latest_dead_letters": _table(
        dt=_DATE,
        message_id=_STRING,
        topic=_STRING,
        subscription=_STRING,
        offset=_LONG,
        attempts=_INTEGER,
        reason=_STRING,
        published_at=_TIME,
        settled_at=_TIME,
    ),
    "reading_backlog": _table(
        dt=_DATE,
        topic=_STRING,
        subscription=_STRING,
        hour_utc=_INTEGER,
        taken_at=_TIME,
        is_closing=_BOOLEAN,
        **_SNAPSHOT,
    ),
    # `peak_lag_messages` is the subscription's highest of the day.
    "backlog": _table(dt=_DATE, subscription=_STRING, hour_utc=_INTEGER, peak_lag_messages=_LONG, **_SNAPSHOT),
    "backlog_hours": _table(dt=_DATE, hour_utc=_INTEGER, taken_at=_TIME, is_closing=_BOOLEAN, **_SNAPSHOT),
    "unsettled": _table(
        dt=_DATE, topic=_STRING, subscription=_STRING, taken_at=_TIME, is_closing=_BOOLEAN, **_SNAPSHOT
    ),
    "changes": _table(
        dt=_DATE,
        scope=_STRING,
        name=_STRING,
        measure=_STRING,
        direction=_STRING,
        value=_DOUBLE,
        median=_DOUBLE,
        lowest=_DOUBLE,
        highest=_DOUBLE,
        previous=ArrayType(_DOUBLE),
        score=_DOUBLE,
    ),
}
