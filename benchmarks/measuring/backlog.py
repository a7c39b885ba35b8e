"""How fast a backlog is stored for an absent durable subscriber, and how fast it drains when the subscriber returns.

The subscription exists before the first message. Filling ends with the last RECEIPT, draining when the broker has taken
the last ACK. The subscriber gets every message exactly once. `start_up` uses the parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.broken import Broken
from benchmarks.broker_watch import BrokerWatch
from benchmarks.durable_identity import DurableIdentity
from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.role_process import RoleProcess
from benchmarks.roles import publisher, returning_subscriber
from benchmarks.roles.child_end import Expect, Go, Stage
from benchmarks.roles.publisher import PublisherAssignment, PublisherReport
from benchmarks.roles.returning_subscriber import ReturningAssignment, ReturningReport
from benchmarks.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scenarios import Backlog, StartUp
    from benchmarks.target import Target

DESTINATION: Final = "/topic/backlog"
ABSENT: Final = DurableIdentity(client_id="absent", name="backlog")
MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """What is published for the absent subscriber."""

    destination: str
    messages: int
    body_bytes: int
    receipt_window: int


def measure(scenario: Backlog, target: Target, stall_s: float, show: Callable[[str], None]) -> Measurement:
    subscribe_and_leave(target, ABSENT, DESTINATION)
    filling_watch = BrokerWatch(target, measures_memory=True)
    filled = fill(filling_of(scenario), target, filling_watch, stall_s, show)
    filling_s = filled.finished_at - filled.started_at
    draining_watch = BrokerWatch(target, measures_memory=True)
    drained = drain(scenario.messages, target, draining_watch, stall_s, show)
    machine_share, broker_share = draining_watch.machine_share(), draining_watch.broker_share()
    raise_if_not_drained(scenario, drained)

    fill_rate = Figure(name="fill", value=scenario.messages / filling_s, unit=Unit.PER_SECOND)
    return Measurement(
        scenario=scenario.name,
        figures=(
            fill_rate,
            Figure(
                name="drain",
                value=scenario.messages / drained.elapsed_s,
                unit=Unit.PER_SECOND,
                compared_with=FigureKey(scenario.name, fill_rate.name),
            ),
            Figure(name="first message after", value=drained.first_after_s * 1000, unit=Unit.MILLISECONDS),
            Figure(
                name="peak memory, filling",
                value=filling_watch.peak_resident_bytes / MEBIBYTE,
                unit=Unit.MEBIBYTES,
            ),
            Figure(
                name="peak memory, draining",
                value=draining_watch.peak_resident_bytes / MEBIBYTE,
                unit=Unit.MEBIBYTES,
            ),
        ),
        machine=machine_share,
        broker=broker_share,
        generators=(
            ProcessorShare("publisher", filled.processor_s / filling_s),
            ProcessorShare("subscriber", drained.processor_s / drained.elapsed_s),
        ),
    )


def filling_of(scenario: Backlog | StartUp) -> Filling:
    return Filling(
        destination=DESTINATION,
        messages=scenario.messages,
        body_bytes=scenario.body_bytes,
        receipt_window=scenario.receipt_window,
    )


def subscribe_and_leave(target: Target, identity: DurableIdentity, destination: str) -> None:
    """Make a durable subscription and leave it."""
    with Session.open(target.address, identity=identity) as session:
        session.subscribe(destination, ack_mode="client-individual")
        session.leave()


def fill(
    filling: Filling, target: Target, watch: BrokerWatch, stall_s: float, show: Callable[[str], None]
) -> PublisherReport:
    """Publish everything, and return when every message has its RECEIPT."""
    assignment = PublisherAssignment(
        address=target.address,
        destination=filling.destination,
        body_bytes=filling.body_bytes,
        most_messages=filling.messages,
        receipt_window=filling.receipt_window,
        is_stored=True,
        stall_s=stall_s,
    )
    with RoleProcess(
        publisher.run,
        assignment,
        watch=watch.look,
        show_progress=lambda messages: show(f"{messages:,} of {filling.messages:,} stored"),
    ) as process:
        process.wait_stage(Stage.READY)
        watch.restart()
        process.tell(Go())
        return process.wait_report()


def drain(
    messages: int, target: Target, watch: BrokerWatch, stall_s: float, show: Callable[[str], None]
) -> ReturningReport:
    """Let the subscriber return and receive everything."""
    assignment = ReturningAssignment(address=target.address, destination=DESTINATION, identity=ABSENT, stall_s=stall_s)
    with RoleProcess(
        returning_subscriber.run,
        assignment,
        watch=watch.look,
        show_progress=lambda taken: show(f"{taken:,} of {messages:,} drained"),
    ) as process:
        process.wait_stage(Stage.READY)
        watch.restart()
        process.tell(Expect(messages))
        return process.wait_report()


def raise_if_not_drained(scenario: Backlog | StartUp, report: ReturningReport) -> None:
    if report.received < scenario.messages:
        raise Broken(f"{scenario.messages - report.received:,} of {scenario.messages:,} stored messages are lost")
    if report.received > scenario.messages:
        raise Broken(f"{report.received - scenario.messages:,} deliveries too many beside {scenario.messages:,}")
    if report.byte_count < report.received * scenario.body_bytes:
        raise Broken(f"{report.received:,} messages came in only {report.byte_count:,} bytes")
