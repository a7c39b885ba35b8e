"""Metrics for Prometheus.

Law: read from the broker's own counters when somebody scrapes; nothing of it is on the hot path. Cardinality is
bounded: the busiest MAX_NAMED topics and subscriptions by name, and the rest as `other`. Counters are gathered in short
steps, and so is the text written: with ten thousand topics and subscriptions both take long, and a thread would make
the event loop wait for the interpreter at each of its system calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import add, sub
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from stompbroker import __version__
from stompbroker.changes import StoreState
from stompbroker.clock import NANOSECONDS
from stompbroker.control import COUNTERS, Best, counters_of, stored_messages
from stompbroker.journal import StoreJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from stompbroker.control import BrokerParts, Control, Looking, Sample
    from stompbroker.delivery import Subscription, Topic
    from stompbroker.histogram import Histogram

__all__ = ["render_metrics"]

#: Topics, and subscriptions, with a label of their own.
MAX_NAMED: Final = 100
OTHER: Final = "other"
#: Rows read between two looks at the time.
STEP_ROWS: Final = 20

Item = TypeVar("Item")
Row = tuple[int, ...]


async def render_metrics(control: Control) -> tuple[bytes, str]:
    """The text, and its content type."""
    parts, sample = control.parts, await control.sampler.recent()
    families = [
        *_broker(parts, sample, control.sampler.lag_s),
        *_ledger(parts),
        *await _topics(list(parts.registry.topics.values()), control.looking),
        *await _subscriptions(list(parts.registry.subscriptions), control.looking),
        *_histograms(parts),
    ]
    pieces: list[bytes] = []
    async with control.looking.by_and_by() as look:
        for family in families:
            pieces.append(_as_text(family))
            if look.is_over:
                await look.pause()
    return b"".join(pieces), CONTENT_TYPE_LATEST


def _as_text(family: Metric) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gathered(family))
    return generate_latest(registry)


@final
class _Gathered(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return [self._family]


def _broker(parts: BrokerParts, sample: Sample, lag_s: float) -> Iterator[Metric]:
    info = GaugeMetricFamily("stompbroker_info", "Always 1.", labels=["version"])
    info.add_metric([__version__], 1)
    yield info
    for name, says in (
        ("published", "Messages taken from publishers."),
        ("published_bytes", "Bytes of their bodies."),
        ("bytes_in", "Bytes received from clients."),
        ("bytes_out", "Bytes sent to clients."),
        ("connections_opened", "Connections since the start."),
    ):
        yield CounterMetricFamily(f"stompbroker_{name}", says, sample.totals[name])
    for name in COUNTERS:
        says = f"Deliveries of all subscriptions: {name}."
        yield CounterMetricFamily(f"stompbroker_deliveries_{name}", says, sample.totals[name])
    registry, store = parts.registry, parts.journal.statistics()
    for name, says, value in (
        ("connections", "Clients connected.", len(parts.sessions)),
        ("topics", "Topics.", len(registry.topics)),
        ("subscriptions", "Subscriptions.", len(registry.subscriptions)),
        ("durable_subscriptions", "Durable subscriptions.", len(registry.durable)),
        ("blocked_topics", "Topics whose publishers are held back.", len(registry.blocked)),
        ("memory_used_bytes", "Memory kept for clients.", registry.budget.used_bytes),
        ("memory_limit_bytes", "What that may be.", registry.budget.limit_bytes),
        ("event_loop_lag_seconds", "How late the event loop last was.", lag_s),
        ("longest_stretch_seconds", "Longest time without a checkpoint since the start.", parts.stretches.longest_s),
        ("store_backlog_bytes", "What waits to be stored.", store.backlog_bytes),
        ("store_backlog_units", "Units that wait to be stored.", store.backlog_units),
        ("store_bytes", "Size of the database, as last measured.", store.stored_bytes or 0),
    ):
        yield GaugeMetricFamily(f"stompbroker_{name}", says, value)
    states = GaugeMetricFamily("stompbroker_store_state", "1 for the state the store is in.", labels=["state"])
    for state in StoreState:
        states.add_metric([state.value], float(state is store.state))
    yield states
    yield CounterMetricFamily("stompbroker_store_batches", "Batches written.", store.batches)
    yield CounterMetricFamily("stompbroker_store_damages", "Damages of the store that were met.", store.damages)


def _ledger(parts: BrokerParts) -> Iterator[Metric]:
    """Nothing without a ledger."""
    if parts.ledger is None:
        return
    rounds, waiting = parts.ledger.rounds.statistics(), parts.ledger.exports.waiting()
    waiting_s = 0.0 if waiting.oldest_ns is None else max(0, parts.clock.now_ns() - waiting.oldest_ns) / NANOSECONDS
    for name, says, value in (
        ("export_failing", "1 if the last export to the lake did not work.", float(rounds.failure is not None)),
        ("waiting_records", "Records in the store that are not in the lake yet.", waiting.records),
        ("waiting_bytes", "Their bytes in the store.", waiting.payload_bytes),
        ("waiting_seconds", "Age of the oldest of them.", waiting_s),
    ):
        yield GaugeMetricFamily(f"stompbroker_ledger_{name}", says, value)
    if rounds.last_done_ns is not None:
        says = "When an export last worked, in seconds since the epoch; not there before the first."
        yield GaugeMetricFamily(
            "stompbroker_ledger_last_export_timestamp_seconds", says, rounds.last_done_ns / NANOSECONDS
        )
    yield CounterMetricFamily("stompbroker_ledger_exports", "Exports that worked.", rounds.done)
    yield CounterMetricFamily("stompbroker_ledger_export_failures", "Exports that did not.", rounds.failed)


async def _topics(topics: list[Topic], looking: Looking) -> list[Metric]:
    labels = ["topic", "kind"]
    families: list[CounterMetricFamily | GaugeMetricFamily] = [
        CounterMetricFamily("stompbroker_topic_published", "Messages published.", labels=labels),
        GaugeMetricFamily("stompbroker_topic_kept_messages", "Messages kept in memory.", labels=labels),
        GaugeMetricFamily("stompbroker_topic_kept_bytes", "Their bytes.", labels=labels),
        GaugeMetricFamily("stompbroker_topic_stored_messages", "Messages in the store.", labels=labels),
    ]

    def row(topic: Topic) -> Row:
        return topic.published, topic.log.message_count, topic.log.size_bytes, stored_messages(topic)

    # A topic may be called so, and would be mistaken for the rest where only this label is looked at.
    busiest = await _busiest(topics, row, looking, score=lambda topic, row: -1 if topic.name == OTHER else row[0])
    for topic, values in busiest.named:
        _add(families, [topic.name, topic.destination.kind.value], values)
    if busiest.rest is not None:
        _add(families, [OTHER, OTHER], busiest.rest)
    return [*families]


async def _subscriptions(subscriptions: list[Subscription], looking: Looking) -> list[Metric]:
    labels = ["subscription", "destination"]
    gauges = {
        "backlog": "Messages it has still to get.",
        "in_flight": "Messages it has not answered.",
        "waiting": "Messages that failed and are not due yet.",
    }
    families: list[CounterMetricFamily | GaugeMetricFamily] = [
        GaugeMetricFamily(f"stompbroker_subscription_{name}", says, labels=labels) for name, says in gauges.items()
    ]
    families += [
        CounterMetricFamily(f"stompbroker_subscription_{name}", f"Deliveries: {name}.", labels=labels)
        for name in COUNTERS
    ]

    def row(subscription: Subscription) -> Row:
        consumer = subscription.consumer
        in_flight = 0 if consumer is None else consumer.in_flight
        return subscription.backlog, in_flight, subscription.waiting, *counters_of(subscription.counters)

    busiest = await _busiest(
        subscriptions,
        row,
        looking,
        score=lambda subscription, _: subscription.counters.delivered + subscription.waiting,
    )
    for subscription, values in busiest.named:
        _add(families, [f"{subscription.key}#{subscription.public_id}", subscription.destination], values)
    if busiest.rest is not None:
        _add(families, [OTHER, OTHER], busiest.rest)
    return [*families]


def _histograms(parts: BrokerParts) -> Iterator[Metric]:
    times = parts.registry.times
    yield _histogram("stompbroker_delivery_seconds", "From publication to delivery.", times.to_delivery)
    yield _histogram("stompbroker_ack_seconds", "From delivery to acknowledgement.", times.to_acknowledgement)
    journal = parts.journal
    if isinstance(journal, StoreJournal):
        yield _histogram(
            "stompbroker_commit_seconds", "How long the store took for a batch.", journal.writing.commit_times
        )
        yield _histogram("stompbroker_batch_messages", "Messages in a batch.", journal.writing.batch_sizes)


@final
@dataclass(frozen=True, slots=True)
class _Busiest(Generic[Item]):
    named: list[tuple[Item, Row]]
    #: The sums over all others; None if there are none.
    rest: Row | None


async def _busiest(
    items: list[Item], row: Callable[[Item], Row], looking: Looking, *, score: Callable[[Item, Row], int]
) -> _Busiest[Item]:
    """The MAX_NAMED of the highest score, but of no negative one; of those with the same the first ones."""
    # Score, place among all from the end, values.
    best: Best[tuple[int, int, Row]] = Best(MAX_NAMED, is_descending=True)
    sums: Row = ()
    async with looking.by_and_by() as look:
        for index, item in enumerate(items):
            values = row(item)
            scored = score(item, values)
            if scored >= 0:
                best.put((scored, -index, values))
            if any(values) or not sums:
                sums = tuple(map(add, sums, values)) if sums else values
            if index % STEP_ROWS == 0 and look.is_over:
                await look.pause()
    named = [(items[-place], values) for _, place, values in best.take()]
    for _, values in named:
        sums = tuple(map(sub, sums, values))
    return _Busiest(named, sums if len(named) < len(items) else None)


def _add(families: Sequence[CounterMetricFamily | GaugeMetricFamily], labels: list[str], values: Row) -> None:
    for family, value in zip(families, values, strict=True):
        family.add_metric(labels, value)


def _histogram(name: str, says: str, histogram: Histogram) -> HistogramMetricFamily:
    buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in histogram.cumulative()]
    return HistogramMetricFamily(name, says, buckets=buckets, sum_value=histogram.total)
