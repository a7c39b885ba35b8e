"""Metrics for Prometheus.

Law: read from the broker's own counters when somebody scrapes; nothing of it is on the hot path. Cardinality is
bounded: the busiest MAX_NAMED topics and subscriptions by name, and the rest as `other`.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from stompbroker import __version__
from stompbroker.topics import StoreState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from stompbroker.control import Control
    from stompbroker.histogram import Histogram
    from stompbroker.topics import Subscription, Topic

__all__ = ["render_metrics"]

#: Topics, and subscriptions, with a label of their own.
MAX_NAMED: Final = 100
OTHER: Final = "other"
_SUBSCRIPTION_COUNTERS: Final = (
    "delivered",
    "redelivered",
    "acked",
    "nacked",
    "overdue",
    "dead",
    "discarded",
    "expired",
    "dropped",
    "late",
)


async def render_metrics(control: Control) -> tuple[bytes, str]:
    """The text, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(control))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collected(Collector):
    def __init__(self, control: Control) -> None:
        self._control = control

    def collect(self) -> Iterable[Metric]:
        yield from self._broker()
        yield from self._topics()
        yield from self._subscriptions()
        yield from self._histograms()

    def _broker(self) -> Iterator[Metric]:
        seen = self._control.seen
        info = GaugeMetricFamily("stompbroker_info", "Always 1.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        sample = seen.sampler.latest
        for name, says in (
            ("published", "Messages taken from publishers."),
            ("published_bytes", "Bytes of their bodies."),
            ("bytes_in", "Bytes received from clients."),
            ("bytes_out", "Bytes sent to clients."),
            ("connections_opened", "Connections since the start."),
        ):
            yield CounterMetricFamily(f"stompbroker_{name}", says, sample.totals.get(name, 0))
        for name in _SUBSCRIPTION_COUNTERS:
            says = f"Deliveries of all subscriptions: {name}."
            yield CounterMetricFamily(f"stompbroker_deliveries_{name}", says, sample.totals.get(name, 0))
        registry, store = seen.registry, seen.journal.statistics()
        for name, says, value in (
            ("connections", "Clients connected.", len(seen.sessions)),
            ("topics", "Topics.", len(registry.topics)),
            ("subscriptions", "Subscriptions.", len(registry.subscriptions)),
            ("durable_subscriptions", "Durable subscriptions.", len(registry.durable)),
            ("blocked_topics", "Topics whose publishers are held back.", len(registry.blocked)),
            ("memory_used_bytes", "Memory kept for clients.", registry.budget.used_bytes),
            ("memory_limit_bytes", "What that may be.", registry.budget.limit_bytes),
            ("event_loop_lag_seconds", "How late the event loop last was.", seen.sampler.lag_s),
            ("longest_stretch_seconds", "Longest time without a checkpoint since the start.", seen.stretches.longest_s),
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

    def _topics(self) -> Iterator[Metric]:
        published = CounterMetricFamily("stompbroker_topic_published", "Messages published.", labels=["topic"])
        kept = GaugeMetricFamily("stompbroker_topic_kept_messages", "Messages kept in memory.", labels=["topic"])
        kept_bytes = GaugeMetricFamily("stompbroker_topic_kept_bytes", "Their bytes.", labels=["topic"])
        stored = GaugeMetricFamily("stompbroker_topic_stored_messages", "Messages in the store.", labels=["topic"])
        families = published, kept, kept_bytes, stored
        rest = [0, 0, 0, 0]
        topics = list(self._control.seen.registry.topics.values())
        named: set[Topic] = set(heapq.nlargest(MAX_NAMED, topics, key=lambda topic: topic.published))
        for topic in topics:
            values = topic.published, topic.log.message_count, topic.log.size_bytes, topic.stored_messages
            if topic in named:
                _add(families, topic.name, values)
            else:
                rest = [before + value for before, value in zip(rest, values, strict=True)]
        if len(topics) > len(named):
            _add(families, OTHER, rest)
        yield from families

    def _subscriptions(self) -> Iterator[Metric]:
        labels = ["subscription", "destination"]
        gauges = {
            "backlog": "Messages it has still to get.",
            "in_flight": "Messages it has not answered.",
            "waiting": "Messages that failed and are not due yet.",
        }
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
            name: GaugeMetricFamily(f"stompbroker_subscription_{name}", says, labels=labels)
            for name, says in gauges.items()
        }
        families |= {
            name: CounterMetricFamily(f"stompbroker_subscription_{name}", f"Deliveries: {name}.", labels=labels)
            for name in _SUBSCRIPTION_COUNTERS
        }
        everyone = list(self._control.seen.registry.subscriptions)
        named = set(heapq.nlargest(MAX_NAMED, everyone, key=lambda one: one.counters.delivered + one.waiting))
        rest = dict.fromkeys(families, 0)
        for subscription in everyone:
            for name, value in _values(subscription).items():
                if subscription in named:
                    label = f"{subscription.key}#{subscription.public_id}"
                    families[name].add_metric([label, subscription.destination], value)
                else:
                    rest[name] += value
        if len(everyone) > len(named):
            for name, family in families.items():
                family.add_metric([OTHER, OTHER], rest[name])
        yield from families.values()

    def _histograms(self) -> Iterator[Metric]:
        seen = self._control.seen
        times = seen.registry.times
        yield _histogram("stompbroker_delivery_seconds", "From publication to delivery.", times.to_delivery)
        yield _histogram("stompbroker_ack_seconds", "From delivery to acknowledgement.", times.to_acknowledgement)
        if seen.commit_times is not None and seen.batch_sizes is not None:
            yield _histogram("stompbroker_commit_seconds", "How long the store took for a batch.", seen.commit_times)
            yield _histogram("stompbroker_batch_messages", "Messages in a batch.", seen.batch_sizes)


def _add(families: Sequence[CounterMetricFamily | GaugeMetricFamily], label: str, values: Sequence[int]) -> None:
    for family, value in zip(families, values, strict=True):
        family.add_metric([label], value)


def _values(subscription: Subscription) -> dict[str, int]:
    consumer = subscription.consumer
    return {
        "backlog": subscription.backlog,
        "in_flight": 0 if consumer is None else consumer.in_flight,
        "waiting": subscription.waiting,
        **{name: getattr(subscription.counters, name) for name in _SUBSCRIPTION_COUNTERS},
    }


def _histogram(name: str, says: str, histogram: Histogram) -> HistogramMetricFamily:
    buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in histogram.cumulative()]
    return HistogramMetricFamily(name, says, buckets=buckets, sum_value=histogram.total)
