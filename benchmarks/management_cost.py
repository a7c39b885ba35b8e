"""What it costs the broker to be watched: `python -m benchmarks.management_cost`.

Every figure is one of a pair from one run, with brokers of their own: watched, and not. It is not one of the scenarios,
because it needs the management endpoint, which other brokers do not have. Three questions:

    throughput   topic and durable 1 → 1 with an event stream open and /metrics scraped every second (0.95 at least)
    size         overview and a page of topics with 10,000 topics and subscriptions, beside traffic (100 ms at most)
    latency      beside 200 event streams and a client that reads nothing (as without)
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import psutil

from benchmarks.broken import Broken
from benchmarks.broker_process import running_broker
from benchmarks.broker_watch import BrokerWatch
from benchmarks.measuring import throughput
from benchmarks.measuring.latency import raise_if_not_in_order
from benchmarks.percentiles import percentile
from benchmarks.role_process import RoleProcess
from benchmarks.roles import http_watcher, paced
from benchmarks.roles.child_end import Go, Stage, Stop
from benchmarks.roles.http_watcher import HttpWatcherAssignment, HttpWatcherReport
from benchmarks.roles.paced import PacedAssignment, PacedReport
from benchmarks.rounds import STALL_S
from benchmarks.scenarios import SCENARIOS, Throughput
from benchmarks.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.target import Target

_OVERVIEW: Final = "/api/v1/overview"
_TOPICS: Final = "/api/v1/topics?sort=-rate&limit=100"
_SUBSCRIPTIONS_PER_CONNECTION: Final = 1000
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rounds: int = 5
    duration_s: float = 5.0
    messages_per_s: int = 1000
    topics: int = 10_000
    streams: int = 200


QUICK: Final = Sizes(rounds=1, duration_s=1.5, messages_per_s=300, topics=1000, streams=50)


# The broker, and who looks at it --------------------------------------------------------------------------------------


def management_port(target: Target) -> int:
    """The address of its management endpoint, printed after the line that others wait for."""
    gives_up_at = time.monotonic() + STALL_S
    while time.monotonic() < gives_up_at:
        for child in psutil.Process().children(recursive=True):
            listening = {each.laddr.port for each in child.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
            if target.address.port in listening and len(listening) == 2:
                return (listening - {target.address.port}).pop()
        time.sleep(0.05)
    raise Broken("the broker does not listen for HTTP")


@contextmanager
def watched(target: Target, assignment: HttpWatcherAssignment | None) -> Iterator[list[HttpWatcherReport]]:
    """Watch during the block, if anybody does; afterwards there is a report."""
    reports: list[HttpWatcherReport] = []
    if assignment is None:
        yield reports
        return
    assignment = replace(assignment, host=target.address.host, port=management_port(target))
    with RoleProcess(http_watcher.run, assignment, watch=target.raise_if_dead) as watcher:
        watcher.wait_stage(Stage.READY)
        yield reports
        watcher.tell(Stop())
        reports.append(watcher.wait_report())


# The three questions --------------------------------------------------------------------------------------------------


def deliveries_per_s(scenario: Throughput, assignment: HttpWatcherAssignment | None) -> float:
    with running_broker("") as target, watched(target, assignment):
        return throughput.measure(scenario, target, STALL_S).figures[0].value


def compare_throughput(sizes: Sizes) -> None:
    dashboard = HttpWatcherAssignment(host="", port=0, streams=1, scrapes=True)
    for name in ("topic-1-to-1", "durable-1-to-1"):
        (scenario,) = [each for each in SCENARIOS if each.name == name and isinstance(each, Throughput)]
        assert isinstance(scenario, Throughput)
        scenario = replace(scenario, duration_s=sizes.duration_s)
        ratios, alone_each, beside_each = [], [], []
        for number in range(sizes.rounds):
            # Alternate which one is first, so that neither has an advantage.
            in_order = (None, dashboard) if number % 2 == 0 else (dashboard, None)
            found = {assignment is None: deliveries_per_s(scenario, assignment) for assignment in in_order}
            alone_each.append(found[True])
            beside_each.append(found[False])
            ratios.append(found[False] / found[True])
        print(
            f"{name}: {statistics.median(alone_each):,.0f}/s alone, {statistics.median(beside_each):,.0f}/s watched, "
            f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} – {max(ratios):.3f})",
            flush=True,
        )


def paced_traffic(target: Target, sizes: Sizes) -> PacedReport:
    assignment = PacedAssignment(
        address=target.address,
        destination="/topic/benchmark",
        body_bytes=256,
        messages_per_s=sizes.messages_per_s,
        messages=round(sizes.messages_per_s * sizes.duration_s),
        stall_s=STALL_S,
    )
    watch = BrokerWatch(target)
    with RoleProcess(paced.run, assignment, watch=watch.look) as process:
        process.wait_stage(Stage.READY)
        process.tell(Go())
        report = process.wait_report()
    raise_if_not_in_order(report)
    return report


def measure_size(sizes: Sizes) -> None:
    settings = f"max_topics = {sizes.topics + 100}\nmax_subscriptions = {sizes.topics + 100}\n"
    asking = HttpWatcherAssignment(host="", port=0, streams=1, scrapes=True, questions=(_OVERVIEW, _TOPICS))
    with running_broker(settings) as target, ExitStack() as opened:
        for first in range(0, sizes.topics, _SUBSCRIPTIONS_PER_CONNECTION):
            session = opened.enter_context(Session.open(target.address))
            last = min(first + _SUBSCRIPTIONS_PER_CONNECTION, sizes.topics) - 1
            session.socket.sendall(
                b"".join(
                    b"SUBSCRIBE\nid:%d\ndestination:/topic/many.%d\n\n\0" % (number + 1, number)
                    for number in range(first, last)
                )
            )
            session.subscribe(f"/topic/many.{last}")  # confirmed after all others
        alone = paced_traffic(target, sizes)
        with watched(target, asking) as reports:
            beside = paced_traffic(target, sizes)
    (report,) = reports
    for path, answers_ns in report.answers_ns.items():
        print(
            f"{path} with {sizes.topics:,} topics and subscriptions: p50 {milliseconds(answers_ns, 500)}, "
            f"p99 {milliseconds(answers_ns, 990)} of {len(answers_ns)}",
            flush=True,
        )
    show_latencies(f"with {sizes.topics:,} topics, asked, watched and scraped", alone, beside)


def compare_latency(sizes: Sizes) -> None:
    crowd = HttpWatcherAssignment(host="", port=0, streams=sizes.streams, has_stuck_client=True)
    with running_broker("") as target:
        alone = paced_traffic(target, sizes)
        with watched(target, crowd) as reports:
            beside = paced_traffic(target, sizes)
    (report,) = reports
    if not report.event_bytes:
        raise Broken("no events came")
    show_latencies(f"beside {sizes.streams} event streams and a client that reads nothing", alone, beside)


def show_latencies(what: str, alone: PacedReport, beside: PacedReport) -> None:
    for name, thousandths in (("p50", 500), ("p99", 990)):
        before, after = (percentile(sorted(each.latencies_ns), thousandths) for each in (alone, beside))
        print(
            f"message latency {what}, {name}: {before / _NS_PER_MS:.2f} ms alone, {after / _NS_PER_MS:.2f} ms then, "
            f"ratio {after / before:.2f}",
            flush=True,
        )


def milliseconds(values_ns: list[int], thousandths: int) -> str:
    return f"{percentile(sorted(values_ns), thousandths) / _NS_PER_MS:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of each: does it work")
    parser.add_argument("--rounds", type=int, help="of throughput")
    parser.add_argument("--only", choices=("throughput", "size", "latency"))
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes()
    if given.rounds is not None:
        sizes = replace(sizes, rounds=given.rounds)
    for name, measure in (("throughput", compare_throughput), ("size", measure_size), ("latency", compare_latency)):
        if given.only in (None, name):
            measure(sizes)


if __name__ == "__main__":
    main()
