"""Millions of messages through one durable topic, with a subscriber that keeps up.

The load is that of the benchmarks, with a receipt for every SEND and an ACK for every MESSAGE. At the end it prints
what should not have grown: the files in the data directory, and the broker's memory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.broker_process import running_process
from benchmarks.broker_watch import BrokerWatch
from benchmarks.measuring.throughput import raise_if_not_exactly_once
from benchmarks.role_process import RoleProcess
from benchmarks.roles import publisher, subscriber
from benchmarks.roles.child_end import Expect, Go, Stage
from benchmarks.roles.publisher import PublisherAssignment
from benchmarks.roles.subscriber import SubscriberAssignment
from benchmarks.stored import bytes_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_DESTINATION: Final = "/topic/long-run"
_BODY_BYTES: Final = 256
_WINDOW: Final = 4000
_STALL_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRunOutcome:
    messages: int
    elapsed_s: float
    #: Memory of the broker before the first message, at its peak, and at the end.
    resident_before_bytes: int
    resident_peak_bytes: int
    resident_after_bytes: int
    #: Size of the data directory at its peak, at the end, and after the broker has ended.
    files_peak_bytes: int
    files_running_bytes: int
    files_ended_bytes: int


def run_long(messages: int, data: Path, command: Sequence[str], *, show: Callable[[str], None]) -> LongRunOutcome:
    """`command` runs a broker with its data in `data`. Raises `Broken`."""
    files_peak_bytes = 0

    def show_progress(published: int) -> None:
        nonlocal files_peak_bytes
        files_bytes = bytes_in(data)
        files_peak_bytes = max(files_peak_bytes, files_bytes)
        mebibytes = watch.peak_resident_bytes >> 20, files_bytes >> 20
        show(f"{published:,} of {messages:,} published, peak memory {mebibytes[0]} MiB, files {mebibytes[1]} MiB")

    with running_process(command, data) as target:
        resident_before_bytes = target.resident_bytes()
        watch = BrokerWatch(target, measures_memory=True)
        publishing = PublisherAssignment(
            address=target.address,
            destination=_DESTINATION,
            body_bytes=_BODY_BYTES,
            most_messages=messages,
            receipt_window=_WINDOW,
            stall_s=_STALL_S,
        )
        subscribing = SubscriberAssignment(
            address=target.address,
            destination=_DESTINATION,
            connections=1,
            acknowledges=True,
            is_durable=True,
            stall_s=_STALL_S,
        )
        with (
            RoleProcess(subscriber.run, subscribing, watch=watch.look) as subscribing_process,
            RoleProcess(publisher.run, publishing, watch=watch.look, show_progress=show_progress) as publishing_process,
        ):
            subscribing_process.wait_stage(Stage.READY)
            publishing_process.wait_stage(Stage.READY)
            started_at = time.monotonic()
            publishing_process.tell(Go())
            published = publishing_process.wait_report()
            subscribing_process.tell(Expect(published.messages))
            subscribed = subscribing_process.wait_report()
            elapsed_s = time.monotonic() - started_at
        raise_if_not_exactly_once(published.messages, subscribed, body_bytes=_BODY_BYTES)
        resident_after_bytes, files_running_bytes = target.resident_bytes(), bytes_in(data)
    return LongRunOutcome(
        messages=published.messages,
        elapsed_s=elapsed_s,
        resident_before_bytes=resident_before_bytes,
        resident_peak_bytes=watch.peak_resident_bytes,
        resident_after_bytes=resident_after_bytes,
        files_peak_bytes=max(files_peak_bytes, files_running_bytes),
        files_running_bytes=files_running_bytes,
        files_ended_bytes=bytes_in(data),
    )
