"""Deliveries per second with several publishers, or several topics.

As in `throughput`: from the first byte of the first publisher to the last message at the last subscriber, or the last
receipt and acknowledgement. Every topic gets the same number of messages; each subscriber gets every one exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.broker_watch import BrokerWatch
from benchmarks.measuring.flow import Part, run_flow
from benchmarks.measuring.throughput import DESTINATION, measurement_of, raise_if_not_exactly_once
from benchmarks.roles import publishers, topic_subscribers
from benchmarks.roles.publishers import PublishersAssignment
from benchmarks.roles.topic_subscribers import TopicSubscribersAssignment

if TYPE_CHECKING:
    from benchmarks.measurement import Measurement
    from benchmarks.scenarios import Crowd
    from benchmarks.target import Target

#: Topic names have one length, so that frames do, too.
_TOPIC_DIGITS: Final = 6


def measure(scenario: Crowd, target: Target, stall_s: float) -> Measurement:
    topics = topics_of(scenario)
    publishing = PublishersAssignment(
        address=target.address,
        destinations=published_by_each(scenario, topics),
        body_bytes=scenario.body_bytes,
        duration_s=scenario.duration_s,
        receipt_window=scenario.receipt_window,
        is_stored=scenario.is_durable,
        stall_s=stall_s,
    )
    subscribing = TopicSubscribersAssignment(
        address=target.address,
        destinations=subscribed_by_each(scenario, topics),
        acknowledges=scenario.is_durable,
        is_durable=scenario.is_durable,
        stall_s=stall_s,
    )

    def owed(messages: int) -> int:
        return messages * scenario.topics_per_connection // scenario.topics

    flow = run_flow(
        Part(publishers.run, publishing), Part(topic_subscribers.run, subscribing), BrokerWatch(target), owed=owed
    )
    raise_if_not_exactly_once(owed(flow.published.messages), flow.subscribed, body_bytes=scenario.body_bytes)
    return measurement_of(scenario.name, flow, flow.subscribed)


def topics_of(scenario: Crowd) -> list[str]:
    """A single topic is the one that other scenarios use, so that its durable subscriber stays the same."""
    if scenario.topics == 1:
        return [DESTINATION]
    return [f"{DESTINATION}.{number:0{_TOPIC_DIGITS}d}" for number in range(scenario.topics)]


def published_by_each(scenario: Crowd, topics: list[str]) -> tuple[tuple[str, ...], ...]:
    if scenario.publishers == 1:
        return (tuple(topics),)
    if len(topics) == 1:
        return ((topics[0],),) * scenario.publishers
    assert scenario.publishers == len(topics), "either one of the two, or as many of both"
    return tuple((topic,) for topic in topics)


def subscribed_by_each(scenario: Crowd, topics: list[str]) -> tuple[tuple[str, ...], ...]:
    shared = scenario.topics_per_connection
    assert len(topics) % shared == 0, "every connection has the same number of topics"
    connections = [tuple(topics[first : first + shared]) for first in range(0, len(topics), shared)]
    return tuple(connections) * scenario.subscribers_per_topic
