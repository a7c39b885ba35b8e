"""Whether others notice that a great many messages are collected at once, how long that takes, and what is left.

Law: a topic is filled through the broker while one durable subscriber takes everything and another is away, which
keeps it all. Then ordinary durable traffic at a fixed rate on another topic, alone for a while; and again, while the
absent subscription is deleted by the operator and everything becomes collectable in one moment. The collection lasts
from that order until no message of the topic is left, and only what was due within that time counts as beside it.
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
#: Seconds between two looks at what is left, which are one step into an index.
_POLL_S: Final = 0.02
#: Seconds after which a collection counts as stuck. A million messages take some ten of them.
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
    """Publish it all to a subscriber that acknowledges it all, and one that is away."""
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
    """The same with only those latencies whose messages were due within that time.

    What came in order is indexed by its number, and with it by when it was due.
    """

    def first_due_from(at_ns: int) -> int:
        return max(0, -(-(at_ns - report.starts_at_ns) * messages_per_s // _SECOND_NS))

    start, stop = first_due_from(began_at_ns), first_due_from(ended_at_ns)
    if not report.latencies_ns[start:stop]:
        raise Broken("the collection was over before a message was due beside it")
    return replace(report, latencies_ns=report.latencies_ns[start:stop], lateness_ns=report.lateness_ns[start:stop])
