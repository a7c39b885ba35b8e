"""One publisher and its subscribers, each a process, from the first byte to the last answer.

Begins when both are ready; ends when the publisher has reported and the subscribers have everything. Only this time
counts for the use of broker and machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from benchmarks.role_process import RoleProcess
from benchmarks.roles.child_end import Expect, Go, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.broker_watch import BrokerWatch
    from benchmarks.measurement import ProcessorShare
    from benchmarks.roles.child_end import ChildEnd
    from benchmarks.roles.publisher import PublisherReport

Publishing = TypeVar("Publishing")
Subscribing = TypeVar("Subscribing")
Assignment = TypeVar("Assignment")
Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class Part(Generic[Assignment, Report]):
    """A role and its assignment."""

    role: Callable[[Assignment, ChildEnd], Report]
    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow(Generic[Report]):
    published: PublisherReport
    subscribed: Report
    broker_processor_s: float
    machine: ProcessorShare
    broker: ProcessorShare


def run_flow(
    publishing: Part[Publishing, PublisherReport],
    subscribing: Part[Subscribing, Report],
    watch: BrokerWatch,
    *,
    owed: Callable[[int], int] = lambda messages: messages,
    show_progress: Callable[[int], None] = lambda _messages: None,
) -> Flow[Report]:
    """`owed` turns messages into deliveries per connection; `show_progress` is called with the number published."""
    with (
        RoleProcess(
            publishing.role, publishing.assignment, watch=watch.look, show_progress=show_progress
        ) as publishing_process,
        RoleProcess(subscribing.role, subscribing.assignment, watch=watch.look) as subscribing_process,
    ):
        publishing_process.wait_stage(Stage.READY)
        subscribing_process.wait_stage(Stage.READY)
        watch.restart()
        publishing_process.tell(Go())
        published = publishing_process.wait_report()
        subscribing_process.tell(Expect(owed(published.messages)))
        subscribed = subscribing_process.wait_report()
        return Flow(
            published=published,
            subscribed=subscribed,
            broker_processor_s=watch.broker_processor_s(),
            machine=watch.machine_share(),
            broker=watch.broker_share(),
        )
