"""Deliveries per second when every tenth message is refused once and redelivered.

As durable 1 → 1. Refused messages come again exactly once, to the same subscriber, so that every message is
acknowledged in the end; redeliveries count as deliveries. A broker with a back-off is asked not to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.broken import Broken
from benchmarks.broker_watch import BrokerWatch
from benchmarks.measuring.flow import Part, run_flow
from benchmarks.measuring.throughput import DESTINATION, measurement_of, raise_if_not_exactly_once
from benchmarks.roles import occasional_refuser, publisher
from benchmarks.roles.occasional_refuser import OccasionalRefuserAssignment
from benchmarks.roles.publisher import PublisherAssignment

if TYPE_CHECKING:
    from benchmarks.measurement import Measurement
    from benchmarks.scenarios import NackStorm
    from benchmarks.target import Target

_EVERY: Final = 10


def measure(scenario: NackStorm, target: Target, stall_s: float) -> Measurement:
    publishing = PublisherAssignment(
        address=target.address,
        destination=DESTINATION,
        body_bytes=scenario.body_bytes,
        duration_s=scenario.duration_s,
        receipt_window=scenario.receipt_window,
        is_stored=True,
        stall_s=stall_s,
    )
    refusing = OccasionalRefuserAssignment(address=target.address, destination=DESTINATION, stall_s=stall_s)
    flow = run_flow(
        Part(publisher.run, publishing),
        Part(occasional_refuser.run, refusing),
        BrokerWatch(target),
        owed=with_redeliveries,
    )
    published, report = flow.published.messages, flow.subscribed
    raise_if_not_exactly_once(with_redeliveries(published), report.subscribed, body_bytes=scenario.body_bytes)
    if report.refused != published // _EVERY:
        raise Broken(f"{report.refused:,} of {published:,} messages were refused instead of {published // _EVERY:,}")
    return measurement_of(scenario.name, flow, report.subscribed)


def with_redeliveries(messages: int) -> int:
    return messages + messages // _EVERY
