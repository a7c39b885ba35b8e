"""A generator that could not have gone faster is said to be the limit, however many publishers it plays."""

from __future__ import annotations

import pytest

from benchmarks.comparison.standings import standing_of
from benchmarks.measurement import FigureKey, ProcessorShare
from benchmarks.measuring.flow import Flow
from benchmarks.measuring.throughput import measurement_of
from benchmarks.roles.publisher import PublisherReport
from benchmarks.roles.subscriber import SubscriberReport
from benchmarks.summary import LimitedBy
from tests.benchmarks.comparison.made_results import outcome, results_of


@pytest.mark.parametrize(
    ("publishers_s", "subscribers_s", "limit"),
    [(1.9, 0.5, LimitedBy.GENERATOR), (0.5, 1.9, LimitedBy.GENERATOR), (0.5, 0.5, LimitedBy.BROKER)],
)
def test_either_side_of_a_crowd_can_be_the_limit(publishers_s: float, subscribers_s: float, limit: LimitedBy) -> None:
    subscribed = SubscriberReport(
        received=(100,) * 100, byte_count=10**6, finished_at=12.0, processor_s=subscribers_s, busy_s=2.0
    )
    flow = Flow(
        published=PublisherReport(messages=1000, started_at=10.0, finished_at=12.0, processor_s=publishers_s),
        subscribed=subscribed,
        broker_processor_s=1.9,
        machine=ProcessorShare("machine", 1.5),
        broker=ProcessorShare("broker", 0.95),
    )

    results = results_of(outcome("stompbroker", 1, measurement_of("crowd", flow, subscribed)))

    standing = standing_of("stompbroker", FigureKey("crowd", "deliveries"), results)
    assert standing is not None
    assert standing.limited_by is limit
