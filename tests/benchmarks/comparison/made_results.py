"""Results with made-up numbers: what a run finds, without one."""

from __future__ import annotations

from benchmarks.comparison.results import OURS, Contestant, Machine, Outcome, Results, Unmeasured
from benchmarks.measurement import Figure, Measurement, ProcessorShare, Unit

MACHINE = Machine(
    processor="a processor",
    cores=2,
    memory_gib=8.0,
    kernel="Linux 6.1",
    python="3.11.2",
    disk="ext4 on /dev/disk",
    fsync_ms=0.5,
)
CONTESTANTS = (
    Contestant(name=OURS, title="stompbroker", version="1.0", configuration="its defaults"),
    Contestant(name="rabbitmq", title="RabbitMQ", version="3.10", configuration="stomp.listeners.tcp"),
    Contestant(name="activemq", title="ActiveMQ", version="5.17"),
    Contestant(name="nats", title="NATS", version="", missing="apt-get install nats-server"),
)


def measured(
    scenario: str,
    value: float,
    *,
    figure: str = "deliveries",
    unit: Unit = Unit.PER_SECOND,
    publisher_share: float = 0.1,
    is_paced: bool = False,
) -> Measurement:
    return Measurement(
        scenario=scenario,
        figures=(Figure(name=figure, value=value, unit=unit),),
        machine=ProcessorShare("machine", 1.2),
        broker=ProcessorShare("broker", 0.95),
        generators=(ProcessorShare("publisher", publisher_share), ProcessorShare("subscriber", 0.2)),
        is_paced=is_paced,
    )


def outcome(contestant: str, round_number: int, found: Measurement) -> Outcome:
    return Outcome(contestant=contestant, scenario=found.scenario, round_number=round_number, found=found)


def unmeasured(contestant: str, scenario: str, reason: str, *, is_broken: bool, round_number: int = 1) -> Outcome:
    return Outcome(
        contestant=contestant,
        scenario=scenario,
        round_number=round_number,
        found=Unmeasured(reason, is_broken=is_broken),
    )


def results_of(*outcomes: Outcome, contestants: tuple[Contestant, ...] = CONTESTANTS) -> Results:
    return Results(
        started_at="2026-11-16 20:00+00:00",
        took_s=1234.0,
        commit="0123456789ab",
        rounds=3,
        is_quick=False,
        machine=MACHINE,
        contestants=contestants,
        outcomes=outcomes,
    )
