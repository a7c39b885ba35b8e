"""Writes a lake of made-up deliveries, of any size: for a first look, for tests, and to measure the report.

The same arguments give the same bytes; no Spark is needed. Time passes as in a broker: messages published late in a day
are settled on the next, what is settled after the last day is its backlog, and every snapshot counts what was unsettled
at that time. On the last date the shop's mail server has a bad day.

`python -m stompbroker_report.generate --lake DIR` writes one.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stompbroker_report.lake_schema import BACKLOG, DELIVERIES
from stompbroker_report.sample_readings import TOPICS, SampleReading, SampleTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Reals = NDArray[np.float64]

_SECOND_US: Final = 1_000_000
_HOUR_US: Final = 3_600 * _SECOND_US
_DAY_US: Final = 24 * _HOUR_US
#: Relative number of messages by hour: few at night, most at noon and in the evening.
_HOURS: Final = (8, 6, 5, 5, 6, 9, 16, 28, 45, 60, 70, 76, 80, 72, 66, 64, 66, 72, 82, 78, 60, 40, 24, 14)
_MOST_ATTEMPTS: Final = 5
#: Rows in a row group: the least that a Spark task has to hold.
_GROUP_ROWS: Final = 128 * 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Messages:
    """The messages of one topic on one day, by offset."""

    topic: SampleTopic
    first_offset: int
    published_us: Integers
    body_bytes: Integers


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Settled:
    """The deliveries of one reading: columns of the lake, and the times that snapshots need."""

    rows: pa.Table
    published_us: Integers
    settled_us: Integers


def generate_lake(where: Path, *, last_date: date, days: int, deliveries: int, seed: int = 1) -> int:
    """Write a lake of so many days, replacing what is there; returns the number of records.

    That is about `deliveries`: days differ a little, and unsettled messages have no record.
    """
    for table in ("deliveries", "backlog"):
        shutil.rmtree(where / table, ignore_errors=True)
    dates = [last_date - timedelta(days=days - 1 - number) for number in range(days)]
    messages_per_day = deliveries / sum(_records_per_message(topic, day) for day in dates for topic in TOPICS)
    offsets = {topic.name: 0 for topic in TOPICS}
    unsettled: dict[tuple[str, str], _Settled] = {}
    free_at: dict[tuple[str, str], int] = {}
    records = 0
    for day in dates:
        day_end_us = _microseconds(day) + _DAY_US
        parts: list[pa.Table] = []
        snapshots: list[pa.Table] = []
        for index, topic in enumerate(TOPICS):
            random = np.random.default_rng([seed, day.toordinal(), index])
            messages = _publish(random, topic, day, messages_per_day, offsets[topic.name])
            offsets[topic.name] += len(messages.published_us)
            for reading in topic.readings:
                behaving = _on_a_bad_day(reading) if day == last_date else reading
                key = (topic.name, _subscription(topic, reading, day))
                new, free_at[key] = _settle(random, messages, behaving, day, free_at.get(key, 0))
                all_known = _joined(unsettled.get(key), new)
                is_settled = all_known.settled_us < day_end_us
                parts.append(all_known.rows.filter(pa.array(is_settled)))
                if reading.is_durable:
                    snapshots.append(_snapshots(topic, reading, day, all_known))
                    unsettled[key] = _where(all_known, ~is_settled)
        rows = pa.concat_tables(parts).sort_by([("settled_at", "ascending"), ("topic", "ascending")])
        records += rows.num_rows
        _write(where / "deliveries", day, rows)
        _write(where / "backlog", day, pa.concat_tables(snapshots))
    complete_until = datetime.combine(last_date + timedelta(days=1), time(), UTC)
    (where / "_complete_until.json").write_text(json.dumps({"complete_until": complete_until.isoformat()}) + "\n")
    return records


def _records_per_message(topic: SampleTopic, day: date) -> float:
    """Expected records per message of a usual day, over all topics."""
    return topic.share * _of_usual(topic, day) * sum(1 / reading.weight for reading in topic.readings)


def _of_usual(topic: SampleTopic, day: date) -> float:
    return topic.weekend if day.weekday() >= 5 else 1.0


def _publish(
    random: np.random.Generator, topic: SampleTopic, day: date, messages_per_day: float, first_offset: int
) -> _Messages:
    usual = messages_per_day * topic.share * random.normal(1, 0.03)
    count = max(1, round(usual * _of_usual(topic, day)))
    hours = random.choice(24, size=count, p=np.array(_HOURS) / sum(_HOURS))
    within_day = hours.astype(np.int64) * _HOUR_US + random.integers(0, _HOUR_US, size=count)
    return _Messages(
        topic=topic,
        first_offset=first_offset,
        published_us=np.sort(within_day) + _microseconds(day),
        body_bytes=(topic.body_bytes * random.lognormal(0, 0.5, size=count)).astype(np.int64),
    )


def _settle(
    random: np.random.Generator, messages: _Messages, reading: SampleReading, day: date, free_at_us: int
) -> tuple[_Settled, int]:
    """The deliveries of all messages to one reading, and when the subscriber is done with the last."""
    if reading.weight > 1:
        # The ledger keeps a sample.
        kept = np.arange(0, len(messages.published_us), reading.weight)
    else:
        kept = np.arange(len(messages.published_us))
    published = messages.published_us[kept]
    count = len(kept)
    is_auto = reading.ack_mode == "auto"
    had_by = _shared_among(random, reading, count)
    tries, is_dead, is_expired = _fates(random, reading, had_by, count)

    first_sent = published + _scattered(random, 0.002, 0.8, count)
    if reading.busy_s:
        # The subscriber's speed scales with the number of messages.
        busy_us = reading.busy_s * _SECOND_US * _usual_gap(published)
        turns = np.arange(count) * busy_us
        began = np.maximum.accumulate(np.maximum(first_sent, free_at_us) - turns) + turns
        first_sent = began.astype(np.int64)
        free_at_us = int(began[-1] + busy_us)
    # Back-off: a second after the first failure, doubled after each one.
    last_sent = first_sent + (2 ** (tries - 1) - 1) * _SECOND_US
    taken = (
        np.zeros(count, dtype=np.int64) if is_auto else _scattered(random, reading.ack_s, reading.ack_scatter, count)
    )
    settled = np.where(is_expired, published + 30 * _SECOND_US, last_sent + taken)
    has_failed = (tries > 1) & ~is_expired
    reasons = pa.array(reading.reasons or ("",), pa.string()).take(
        pa.array(_choices(random, len(reading.reasons) or 1, count))
    )
    outcome = np.where(is_expired, "expired", np.where(is_dead, "dead", "sent" if is_auto else "acked"))
    offsets = messages.first_offset + kept
    columns: dict[str, Any] = {
        "message_id": _numbered(f"5a3b{TOPICS.index(messages.topic):04x}-1-", offsets),
        "topic": _repeated(messages.topic.name, count),
        "offset": offsets,
        "subscription": _repeated(_subscription(messages.topic, reading, day), count),
        "client_id": _optional(reading.client, count),
        "subscription_name": _repeated(_name(reading, day), count),
        "is_durable": _repeated(reading.is_durable, count),
        "ack_mode": _repeated(reading.ack_mode, count),
        "generation": np.zeros(count, dtype=np.int32),
        "body_bytes": messages.body_bytes[kept],
        "publisher": _repeated("shop-frontend", count),
        "published_at": _times(published),
        "first_sent_at": _times(first_sent, is_expired),
        "last_sent_at": _times(last_sent, is_expired),
        "settled_at": _times(settled),
        "attempts": np.where(is_expired, 0, tries).astype(np.int32),
        # Nearly every failure is a NACK; sometimes a connection is lost instead.
        "nacks": np.where(is_expired, 0, tries - 1 + is_dead - (has_failed & (offsets % 7 == 0))).astype(np.int32),
        "last_reason": pc.if_else(pa.array(has_failed), reasons, pa.scalar(None, pa.string())),
        "outcome": outcome,
        "weight": np.full(count, reading.weight, dtype=np.int64),
        "kind": _repeated(messages.topic.kind, count),
        "member": pa.array([member.name for member in reading.members], pa.string()).take(
            pa.array(had_by, mask=is_expired | (not reading.members))
        ),
    }
    rows = pa.table([pa.array(columns[field.name], field.type) for field in DELIVERIES], schema=DELIVERIES)
    return _Settled(rows=rows, published_us=published, settled_us=settled), free_at_us


def _shared_among(random: np.random.Generator, reading: SampleReading, count: int) -> Integers:
    """Indexes of the members that had them; of no meaning without members."""
    if not reading.members:
        return np.zeros(count, dtype=np.int64)
    return random.choice(len(reading.members), size=count, p=[member.share for member in reading.members])


def _fates(
    random: np.random.Generator, reading: SampleReading, had_by: Integers, count: int
) -> tuple[Integers, Any, Any]:
    """How often each is sent, whether it is dead-lettered, and whether it expires unsent."""
    if reading.ack_mode == "auto":
        never = np.zeros(count, dtype=np.bool_)
        return np.ones(count, dtype=np.int64), never, never
    tries = random.geometric(1 - reading.failing, size=count).astype(np.int64)
    hopeless = np.array([member.hopeless for member in reading.members] or [0.0])[had_by] + reading.hopeless
    is_dead = (random.random(count) < hopeless) | (tries > _MOST_ATTEMPTS)
    is_expired = (random.random(count) < reading.expiring) & ~is_dead
    return np.where(is_dead, _MOST_ATTEMPTS, np.minimum(tries, _MOST_ATTEMPTS)), is_dead, is_expired


def _on_a_bad_day(reading: SampleReading) -> SampleReading:
    if reading.client != "mailer":
        return reading
    return replace(reading, failing=0.3, hopeless=0.02, ack_s=1.6, busy_s=1.6)


def _usual_gap(published: Integers) -> float:
    """The real length of one second of `busy_s`, for this many messages.

    A subscriber with `busy_s` 1 is busy for 80 % of the day: it falls behind at noon and catches up in the evening.
    """
    return 0.8 * 86_400 / len(published)


def _snapshots(topic: SampleTopic, reading: SampleReading, day: date, known: _Settled) -> pa.Table:
    """A snapshot every hour, and the closing one."""
    start = _microseconds(day)
    moments = start + np.arange(25, dtype=np.int64) * _HOUR_US
    settled = np.sort(known.settled_us)
    lag = np.searchsorted(np.sort(known.published_us), moments) - np.searchsorted(settled, moments)
    # Messages are settled nearly in order, so the oldest unsettled one is about the n-th, n being the settled ones.
    oldest = np.minimum(np.searchsorted(settled, moments), len(known.published_us) - 1)
    age_s = np.maximum(0, moments - np.sort(known.published_us)[oldest]) / _SECOND_US
    waiting = np.minimum(lag, np.round(lag * reading.failing)).astype(np.int64)
    subscription = _subscription(topic, reading, day)
    columns: dict[str, Any] = {
        "taken_at": _times(moments),
        "is_closing": [*(False for _ in range(24)), True],
        "topic": _repeated(topic.name, 25),
        "subscription": _repeated(subscription, 25),
        "client_id": _optional(reading.client, 25),
        "subscription_name": _repeated(reading.name, 25),
        "lag_messages": lag,
        "lag_s": pa.array(age_s, mask=lag == 0),
        "in_flight": np.minimum(lag - waiting, 64),
        "waiting": waiting,
        "pinned_bytes": lag * topic.body_bytes,
        "kind": _repeated(topic.kind, 25),
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in BACKLOG], schema=BACKLOG)


def _subscription(topic: SampleTopic, reading: SampleReading, day: date) -> str:
    if topic.kind == "queue":
        return f"/queue/{topic.name}"
    if reading.members:
        return f"group:{reading.name} @ {topic.name}"
    return f"{reading.client}/{_name(reading, day)}"


def _name(reading: SampleReading, day: date) -> str:
    """Transient subscriptions get a new name with each connection, here once a day."""
    return reading.name if reading.is_durable else f"{reading.name}-{day.toordinal() % 1000}"


def _joined(before: _Settled | None, new: _Settled) -> _Settled:
    if before is None:
        return new
    return _Settled(
        rows=pa.concat_tables([before.rows, new.rows]),
        published_us=np.concatenate([before.published_us, new.published_us]),
        settled_us=np.concatenate([before.settled_us, new.settled_us]),
    )


def _where(known: _Settled, kept: Any) -> _Settled:
    return _Settled(
        rows=known.rows.filter(pa.array(kept)), published_us=known.published_us[kept], settled_us=known.settled_us[kept]
    )


def _scattered(random: np.random.Generator, median_s: float, scatter: float, count: int) -> Integers:
    return (median_s * _SECOND_US * random.lognormal(0, scatter, size=count)).astype(np.int64)


def _choices(random: np.random.Generator, number: int, count: int) -> Integers:
    """Indexes; each one is half as frequent as the one before."""
    return np.minimum(random.geometric(0.5, size=count) - 1, number - 1).astype(np.int64)


def _numbered(prefix: str, numbers: Integers) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def _repeated(value: object, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)


def _optional(text: str | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _times(microseconds: Integers, is_missing: Any = None) -> pa.Array:
    return pa.array(microseconds, pa.int64(), mask=is_missing).cast(pa.timestamp("us", tz="UTC"))


def _microseconds(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp()) * _SECOND_US


def _write(table: Path, day: date, rows: pa.Table) -> None:
    folder = table / f"dt={day}"
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "sample.parquet", compression="zstd", row_group_size=_GROUP_ROWS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the lake that the arguments ask for, and print its size."""
    parser = argparse.ArgumentParser(
        prog="python -m stompbroker_report.generate", description="Write a lake of made-up deliveries."
    )
    parser.add_argument("--lake", type=Path, required=True, help="directory to write; tables in it are replaced")
    parser.add_argument("--date", type=date.fromisoformat, required=True, help="the last date, YYYY-MM-DD")
    parser.add_argument("--days", type=int, default=8, help="how many, the last one included (default %(default)s)")
    parser.add_argument("--deliveries", type=int, default=200_000, help="on all days (default about %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default %(default)s)")
    asked = parser.parse_args(arguments)
    records = generate_lake(
        asked.lake, last_date=asked.date, days=asked.days, deliveries=asked.deliveries, seed=asked.seed
    )
    print(f"{asked.lake}: {records:,} records on {asked.days} days")


if __name__ == "__main__":
    main()
