"""Metrics for Prometheus, read from the broker's own counters at each scrape.

Law: cardinality is bounded: the busiest MAX_NAMED topics and subscriptions have names, the rest is `other`. Counters
are read and text is written in short steps; a thread would make the event loop wait for the interpreter lock.
"""

from __future__ import annotations

from operator import add, sub
from typing import TYPE_CHECKING, Final, TypeVar, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from stompbroker import __version__
from stompbroker.bridges import CrossingState
from stompbroker.changes import StoreState
from stompbroker.clock import NANOSECONDS
from stompbroker.control import TopN, stored_messages
from stompbroker.delivery import COUNTER_NAMES
from stompbroker.journal import StoreJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from stompbroker.bridges import Crossing
    from stompbroker.control import BrokerParts, Control, Looking, Sample
    from stompbroker.counting import Histogram

#: Topics, and subscriptions, with a label of their own.
MAX_NAMED: Final = 100
OTHER: Final = "other"
#: Rows read between two looks at the time.
STEP_ROWS: Final = 20
Item = TypeVar("Item")
Row = tuple[int, ...]
Family = CounterMetricFamily | GaugeMetricFamily


async def render_metrics(control: Control) -> tuple[bytes, str]:
    families = [
        *_broker(control, await control.sampler.recent()),
        *_ledger(control),
        *_bridges(control),
        *await _topics(control),
        *await _subscriptions(control),
        *_histograms(control),
    ]
    pieces: list[bytes] = []
    async with control.looking.by_and_by() as look:
        for family in families:
            pieces.append(generate_latest(_Gathered(family)))
            await look.pause_if_over()
    return b"".join(pieces), CONTENT_TYPE_LATEST


@final
class _Gathered(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return [self._family]


def _broker(parts: BrokerParts, sample: Sample) -> Iterator[Metric]:
    info = GaugeMetricFamily("stompbroker_info", "Always 1.", labels=["version"])
    info.add_metric([__version__], 1)
    yield info
    for name, says in (
        ("published", "Messages taken from publishers."),
        ("published_bytes", "Bytes of their bodies."),
        ("bytes_in", "Bytes received from clients."),
        ("bytes_out", "Bytes sent to clients."),
        ("connections_opened", "Connections since the start."),
        ("outcomes_told", "Publishers told what became of a message."),
        ("outcomes_lost", "The same, where they could not be told."),
    ):
        yield CounterMetricFamily(f"stompbroker_{name}", says, sample.totals[name])
    for name in COUNTER_NAMES:
        says = f"Deliveries of all subscriptions: {name}."
        yield CounterMetricFamily(f"stompbroker_deliveries_{name}", says, sample.totals[name])
    registry, store = parts.registry, parts.journal.statistics()
    for name, says, value in (
        ("connections", "Clients connected.", len(parts.sessions)),
        ("topics", "Topics, queues among them.", len(registry.topics)),
        ("queues", "Queues.", sample.queues),
        ("subscriptions", "Subscriptions.", len(registry.subscriptions)),
        ("durable_subscriptions", "Durable subscriptions.", len(registry.durable)),
        ("blocked_topics", "Topics whose publishers are held back.", len(registry.blocked)),
        ("last_values", "Topics that have a last value.", len(registry.last_values)),
        ("last_values_bytes", "Memory of these values.", registry.last_values.size_bytes),
        ("last_values_limit_bytes", "What that may be.", registry.last_values.max_bytes),
        ("memory_used_bytes", "Memory kept for clients.", registry.budget.used_bytes),
        ("memory_limit_bytes", "What that may be.", registry.budget.limit_bytes),
        ("event_loop_lag_seconds", "How late the event loop last was.", parts.sampler.lag_s),
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


def _bridges(parts: BrokerParts) -> Iterator[Metric]:
    """As many as the settings have."""
    labels = ["bridge", "direction"]
    gauges: dict[str, tuple[str, Callable[[Crossing], float]]] = {
        "connected": ("1 while it is connected.", lambda one: float(one.state is CrossingState.CONNECTED)),
        "in_flight": ("Messages on their way.", lambda one: one.in_flight),
    }
    counters = {
        "received": "Messages taken from where they come from.",
        "sent": "Messages confirmed as new where they go.",
        "duplicates": "Messages that were there already.",
        "circles": "Messages dropped, since they had been there.",
        "refused": "Messages refused where they go.",
        "connections": "Connections made.",
    }
    if not parts.crossings:
        return
    for name, (says, find) in gauges.items():
        gauge = GaugeMetricFamily(f"stompbroker_bridge_{name}", says, labels=labels)
        for each in parts.crossings:
            gauge.add_metric([each.plan.name, each.direction.value], find(each))
        yield gauge
    for name, says in counters.items():
        counter = CounterMetricFamily(f"stompbroker_bridge_{name}", says, labels=labels)
        for each in parts.crossings:
            counter.add_metric([each.plan.name, each.direction.value], getattr(each, name))
        yield counter


async def _topics(parts: BrokerParts) -> Sequence[Metric]:
    labels = ["topic", "kind"]
    families: list[Family] = [
        CounterMetricFamily("stompbroker_topic_published", "Messages published.", labels=labels),
        GaugeMetricFamily("stompbroker_topic_kept_messages", "Messages kept in memory.", labels=labels),
        GaugeMetricFamily("stompbroker_topic_kept_bytes", "Their bytes.", labels=labels),
        GaugeMetricFamily("stompbroker_topic_stored_messages", "Messages in the store.", labels=labels),
    ]
    return await _add_busiest(
        families,
        list(parts.registry.topics.values()),
        parts.looking,
        row=lambda topic: (topic.published, topic.log.message_count, topic.log.size_bytes, stored_messages(topic)),
        # A topic called "other" would be mistaken for the rest.
        score=lambda topic, row: -1 if topic.name == OTHER else row[0],
        labels=lambda topic: [topic.name, topic.destination.kind.value],
    )


async def _subscriptions(parts: BrokerParts) -> Sequence[Metric]:
    labels = ["subscription", "destination", "kind"]
    gauges = {
        "members": "Consumers attached to it; of a group or queue there may be several.",
        "backlog": "Messages it has still to get.",
        "in_flight": "Messages it has not answered.",
        "waiting": "Messages that failed and are not due yet.",
        "held_up": "Messages behind another one of their key.",
    }
    families: list[Family] = [
        GaugeMetricFamily(f"stompbroker_subscription_{name}", says, labels=labels) for name, says in gauges.items()
    ]
    families += [
        CounterMetricFamily(f"stompbroker_subscription_{name}", f"Deliveries: {name}.", labels=labels)
        for name in COUNTER_NAMES
    ]
    return await _add_busiest(
        families,
        list(parts.registry.subscriptions),
        parts.looking,
        row=lambda one: (
            len(one.consumers),
            one.backlog,
            one.in_flight,
            one.waiting,
            one.held_up,
            *one.counters.values(),
        ),
        score=lambda one, _: one.counters.delivered + one.waiting,
        labels=lambda one: [f"{one.key}#{one.public_id}", one.destination, one.pattern.kind.value],
    )


def _histograms(parts: BrokerParts) -> Iterator[Metric]:
    times, journal = parts.registry.times, parts.journal
    yield _histogram("delivery_seconds", "From publication to delivery.", times.to_delivery)
    yield _histogram("ack_seconds", "From delivery to acknowledgement.", times.to_acknowledgement)
    if isinstance(journal, StoreJournal):
        yield _histogram("commit_seconds", "How long the store took for a batch.", journal.writing.commit_times)
        yield _histogram("batch_messages", "Messages in a batch.", journal.writing.batch_sizes)


async def _add_busiest(
    families: Sequence[Family],
    items: list[Item],
    looking: Looking,
    *,
    row: Callable[[Item], Row],
    score: Callable[[Item, Row], int],
    labels: Callable[[Item], list[str]],
) -> Sequence[Family]:
    """Add a row for each of the MAX_NAMED items of the highest score, the earlier ones first, and one with the sums
    over the rest. An item with a negative score is never named."""
    # Score, minus the index, values.
    busiest: TopN[tuple[int, int, Row]] = TopN(MAX_NAMED, is_descending=True)
    sums: Row = (0,) * len(families)
    async with looking.by_and_by() as look:
        for index, item in enumerate(items):
            values = row(item)
            scored = score(item, values)
            if scored >= 0:
                busiest.put((scored, -index, values))
            if any(values):
                sums = tuple(map(add, sums, values))
            if index % STEP_ROWS == 0:
                await look.pause_if_over()
    rows = [(labels(items[-place]), values) for _, place, values in busiest.take()]
    if len(rows) < len(items):
        for _, values in rows:
            sums = tuple(map(sub, sums, values))
        rows.append(([OTHER] * len(labels(items[0])), sums))
    for labelled, values in rows:
        for family, value in zip(families, values, strict=True):
            family.add_metric(labelled, value)
    return families


def _histogram(name: str, says: str, histogram: Histogram) -> HistogramMetricFamily:
    buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in histogram.cumulative()]
    return HistogramMetricFamily(f"stompbroker_{name}", says, buckets=buckets, sum_value=histogram.total)
