"""Deliveries per second with one publisher that never waits.

The clock runs from the publisher's first byte to the last message at the last subscriber or, with acknowledgements and
receipts, to the last of those. Each subscriber gets every message exactly once; of a queue, all of them together do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from benchmarks.broken import Broken
from benchmarks.broker_watch import BrokerWatch
from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.measuring.flow import Flow, Part, run_flow
from benchmarks.roles.publisher import PublisherAssignment
from benchmarks.roles.subscriber import SubscriberAssignment, SubscriberReport
from benchmarks.scenarios import REFERENCE, Throughput

if TYPE_CHECKING:
    from benchmarks.target import Target

DESTINATION = "/topic/benchmark"
QUEUE = "/queue/benchmark"
DELIVERIES = "deliveries"
COST = "broker per delivery"
BODIES = "bodies"
#: Bodies from this size on are shown in MiB a second, too.
_LARGE_BYTES: Final = 64 * 1024
_MEBIBYTE: Final = 1024 * 1024


def measure(scenario: Throughput, target: Target, stall_s: float, watch: BrokerWatch | None = None) -> Measurement:
    destination = QUEUE if scenario.is_queue else DESTINATION
    publishing = PublisherAssignment(
        address=target.address,
        destination=destination,
        body_bytes=scenario.body_bytes,
        duration_s=scenario.duration_s,
        most_messages=scenario.most_messages,
        receipt_window=scenario.receipt_window,
        is_stored=scenario.is_durable or scenario.is_queue,
        is_numbered=scenario.is_numbered,
        stall_s=stall_s,
    )
    subscribing = SubscriberAssignment(
        address=target.address,
        destination=destination,
        connections=scenario.subscribers,
        acknowledges=scenario.acknowledges,
        is_durable=scenario.is_durable,
        is_shared=scenario.is_queue,
        stall_s=stall_s,
    )
    flow = run_flow(
        Part(target.roles.publish, publishing), Part(target.roles.subscribe, subscribing), watch or BrokerWatch(target)
    )
    subscribed = flow.subscribed
    if scenario.is_queue:
        subscribed = replace(subscribed, received=(sum(subscribed.received),))
    raise_if_not_exactly_once(flow.published.messages, subscribed, body_bytes=scenario.body_bytes)
    reference = None if scenario.name == REFERENCE else FigureKey(scenario.reference, DELIVERIES)
    return with_bodies(measurement_of(scenario.name, flow, subscribed, reference), scenario.body_bytes)


def measurement_of(
    scenario: str, flow: Flow[Any], subscribed: SubscriberReport, reference: FigureKey | None = None
) -> Measurement:
    """The throughput of a flow; `subscribed` is the report of the receiving side."""
    published = flow.published
    deliveries = sum(subscribed.received)
    elapsed_s = max(published.finished_at, subscribed.finished_at) - published.started_at
    return Measurement(
        scenario=scenario,
        figures=(
            Figure(name=DELIVERIES, value=deliveries / elapsed_s, unit=Unit.PER_SECOND, compared_with=reference),
            Figure(name=COST, value=flow.broker_processor_s / deliveries * 1e6, unit=Unit.MICROSECONDS),
        ),
        machine=flow.machine,
        broker=flow.broker,
        generators=(
            ProcessorShare("publisher", published.processor_s / (published.finished_at - published.started_at)),
            ProcessorShare("subscriber", subscribed.processor_s / subscribed.busy_s),
        ),
    )


def with_bodies(measurement: Measurement, body_bytes: int) -> Measurement:
    """Also in bytes of bodies, if they are large."""
    if body_bytes < _LARGE_BYTES:
        return measurement
    (deliveries_per_s,) = (figure.value for figure in measurement.figures if figure.name == DELIVERIES)
    bodies = Figure(name=BODIES, value=deliveries_per_s * body_bytes / _MEBIBYTE, unit=Unit.MEBIBYTES_PER_SECOND)
    return replace(measurement, figures=(*measurement.figures, bodies))


def raise_if_not_exactly_once(sent: int, report: SubscriberReport, *, body_bytes: int) -> None:
    """Every connection must have got `sent` messages, and enough bytes for that body."""
    if not sent:
        raise Broken("the broker took no message at all")
    lost = sum(max(0, sent - received) for received in report.received)
    extra = sum(max(0, received - sent) for received in report.received)
    if lost:
        raise Broken(f"{lost:,} of {sent * len(report.received):,} deliveries are lost")
    if extra:
        raise Broken(f"{extra:,} deliveries too many beside {sent * len(report.received):,}")
    if report.byte_count < sum(report.received) * body_bytes:
        raise Broken(f"{sum(report.received):,} messages came in only {report.byte_count:,} bytes")
