"""Whether collecting many messages at once disturbs others, how long it takes, and what is left.

A topic is filled while one durable subscriber takes everything and another is away, so everything stays. Then ordinary
durable traffic runs on another topic at a fixed rate: alone, and again while the operator deletes the absent
subscription and everything becomes collectable at once. The collection lasts until no message of the topic is left;
only messages that were due within that time count.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from benchmarks.broken import Broken
from benchmarks.broker_watch import BrokerWatch
from benchmarks.durable_identity import DurableIdentity
from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.measuring import throughput
from benchmarks.measuring.backlog import MEBIBYTE, subscribe_and_leave
from benchmarks.measuring.flow import Part, run_flow
from benchmarks.measuring.latency import compared_latencies, raise_if_not_in_order
from benchmarks.operating import ask
from benchmarks.role_process import RoleProcess
from benchmarks.roles import paced, publisher, subscriber
from benchmarks.roles.child_end import Go, Stage, Stop
from benchmarks.roles.paced import PacedAssignment, PacedReport
from benchmarks.roles.publisher import PublisherAssignment
from benchmarks.roles.subscriber import SubscriberAssignment
from benchmarks.stored import Stored, bytes_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scenarios import Collecting
    from benchmarks.target import Target

_TOPIC: Final = "collected"
_ABSENT: Final = DurableIdentity(client_id="absent", name="collected")
_ORDINARY: Final = DurableIdentity(client_id="ordinary", name="ordinary")
#: Seconds between two looks at what is left; each is one index lookup.
_POLL_S: Final = 0.02
#: Seconds after which a collection counts as stuck. A million messages take about ten.
_PATIENCE_S: Final = 300.0
_SECOND_NS: Final = 1_000_000_000


def measure(scenario: Collecting, target: Target, stall_s: float, show: Callable[[str], None]) -> Measurement:
    _fill(scenario, target, stall_s, show)
    alone_watch, beside_watch = BrokerWatch(target), BrokerWatch(target, measures_memory=True)
    messages = round(scenario.messages_per_s * scenario.duration_s)
    with RoleProcess(paced.run, _paced(scenario, target, messages, stall_s), watch=alone_watch.look) as alone_process:
        alone_process.wait_stage(Stage.READY)
        show("traffic alone")
        alone_process.tell(Go())
        alone = alone_process.wait_report()
    raise_if_not_in_order(alone)

    full_bytes = bytes_in(target.data)
    endless = round(scenario.messages_per_s * _PATIENCE_S * 2)
    with (
        Stored(target.data) as stored,
        RoleProcess(paced.run, _paced(scenario, target, endless, stall_s), watch=beside_watch.look) as beside_process,
    ):
        topic_id = stored.topic_id(_TOPIC)
        beside_process.wait_stage(Stage.READY)
        show("traffic beside the collection")
        beside_watch.restart()
        beside_process.tell(Go())
        (absent,) = ask(target.data, "subscriptions", q=f"{_ABSENT.client_id}/{_ABSENT.name}")["subscriptions"]
        began_at_ns = time.monotonic_ns()
        ask(target.data, "remove_subscription", id=absent["id"])
        _wait_collected(stored, topic_id, beside_watch)
        ended_at_ns = time.monotonic_ns()
        machine_share, broker_share = beside_watch.machine_share(), beside_watch.broker_share()
        collected_bytes, free_bytes = bytes_in(target.data), stored.free_bytes()
        beside_process.tell(Stop())
        beside = beside_process.wait_report()
    raise_if_not_in_order(beside)
    during = due_within(beside, began_at_ns, ended_at_ns, messages_per_s=scenario.messages_per_s)

    file_before = Figure(name="files before", value=full_bytes / MEBIBYTE, unit=Unit.MEBIBYTES)
    collecting_s = (ended_at_ns - began_at_ns) / _SECOND_NS
    return Measurement(
        scenario=scenario.name,
        figures=(
            *compared_latencies(scenario.name, alone, during),
            Figure(name="collection took", value=collecting_s, unit=Unit.SECONDS),
            Figure(name="collected", value=scenario.messages / collecting_s, unit=Unit.PER_SECOND),
            file_before,
            Figure(
                name="files after",
                value=collected_bytes / MEBIBYTE,
                unit=Unit.MEBIBYTES,
                compared_with=FigureKey(scenario.name, file_before.name),
            ),
            Figure(name="of that free for reuse", value=free_bytes / MEBIBYTE, unit=Unit.MEBIBYTES),
            Figure(name="peak memory", value=beside_watch.peak_resident_bytes / MEBIBYTE, unit=Unit.MEBIBYTES),
        ),
        machine=machine_share,
        broker=broker_share,
        generators=(ProcessorShare("generator", beside.processor_s / beside.elapsed_s),),
        is_paced=True,
    )


def _fill(scenario: Collecting, target: Target, stall_s: float, show: Callable[[str], None]) -> None:
    """Publish everything to a subscriber that acknowledges it, and to an absent one."""
    destination = f"/topic/{_TOPIC}"
    subscribe_and_leave(target, _ABSENT, destination)
    publishing = PublisherAssignment(
        address=target.address,
        destination=destination,
        body_bytes=scenario.body_bytes,
        most_messages=scenario.messages,
        receipt_window=scenario.receipt_window,
        stall_s=stall_s,
    )
    subscribing = SubscriberAssignment(
        address=target.address,
        destination=destination,
        connections=1,
        acknowledges=True,
        is_durable=True,
        stall_s=stall_s,
    )
    flow = run_flow(
        Part(publisher.run, publishing),
        Part(subscriber.run, subscribing),
        BrokerWatch(target),
        show_progress=lambda published: show(f"{published:,} of {scenario.messages:,} published"),
    )
    throughput.raise_if_not_exactly_once(scenario.messages, flow.subscribed, body_bytes=scenario.body_bytes)


def _paced(scenario: Collecting, target: Target, messages: int, stall_s: float) -> PacedAssignment:
    return PacedAssignment(
        address=target.address,
        destination="/topic/ordinary",
        body_bytes=scenario.body_bytes,
        messages_per_s=scenario.messages_per_s,
        messages=messages,
        is_durable=True,
        identity=_ORDINARY,
        stall_s=stall_s,
    )


def _wait_collected(stored: Stored, topic_id: int, watch: BrokerWatch) -> None:
    gives_up_at = time.monotonic() + _PATIENCE_S
    while stored.has_messages(topic_id):
        watch.look()
        if time.monotonic() > gives_up_at:
            raise Broken(f"what nobody needs any more was not collected within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)


def due_within(report: PacedReport, began_at_ns: int, ended_at_ns: int, *, messages_per_s: int) -> PacedReport:
    """The same report with only the latencies of messages that were due within that time.

    Messages arrive in order, so the index of a latency gives its due time.
    """

    def first_due_from(at_ns: int) -> int:
        return max(0, -(-(at_ns - report.starts_at_ns) * messages_per_s // _SECOND_NS))

    start, stop = first_due_from(began_at_ns), first_due_from(ended_at_ns)
    if not report.latencies_ns[start:stop]:
        raise Broken("the collection was over before a message was due beside it")
    return replace(report, latencies_ns=report.latencies_ns[start:stop], lateness_ns=report.lateness_ns[start:stop])
