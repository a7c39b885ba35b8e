"""Whether a message costs more when the store holds many.

The same durable 1 → 1 three times on one broker: with a few messages stored for an absent subscriber of another topic;
with many; and with as many again for an absent subscriber of the same topic (there the measured messages stay stored,
while before they were collected after their ACK). The measured subscriber is new in every phase and deleted afterwards,
so that no backlog is its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from benchmarks.broker_watch import BrokerWatch
from benchmarks.durable_identity import DurableIdentity, numbered_identity
from benchmarks.measurement import Figure, FigureKey, Measurement
from benchmarks.measuring import throughput
from benchmarks.measuring.backlog import Filling, fill, subscribe_and_leave
from benchmarks.scenarios import Throughput
from benchmarks.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scenarios import StoreSize
    from benchmarks.target import Target

_ELSEWHERE: Final = "/topic/elsewhere"


def measure(scenario: StoreSize, target: Target, stall_s: float, show: Callable[[str], None]) -> Measurement:
    measured = Throughput(
        name=scenario.name,
        title=scenario.title,
        duration_s=scenario.duration_s,
        body_bytes=scenario.body_bytes,
        acknowledges=True,
        is_durable=True,
        receipt_window=scenario.receipt_window,
    )

    def measure_with(messages: int, destination: str) -> Measurement:
        """Measure after storing so many more for the absent subscriber of `destination`."""
        filling = Filling(
            destination=destination,
            messages=messages,
            body_bytes=scenario.body_bytes,
            receipt_window=scenario.receipt_window,
        )
        fill(filling, target, BrokerWatch(target), stall_s, show)
        measurement = throughput.measure(measured, target, stall_s)
        _delete_subscription(target)
        return measurement

    subscribe_and_leave(target, DurableIdentity("absent", "elsewhere"), _ELSEWHERE)
    few = measure_with(scenario.few, _ELSEWHERE)
    elsewhere = measure_with(scenario.many - scenario.few, _ELSEWHERE)
    subscribe_and_leave(target, DurableIdentity("absent", "beside"), throughput.DESTINATION)
    beside = measure_with(scenario.many, throughput.DESTINATION)

    first = [_renamed(figure, "few") for figure in few.figures]
    return replace(
        beside,
        figures=(
            *first,
            *_against(scenario, first, elsewhere, "many elsewhere"),
            *_against(scenario, first, beside, "many here too"),
        ),
    )


def _delete_subscription(target: Target) -> None:
    """Delete the measured subscription, so that later messages are not stored for it."""
    with Session.open(target.address, identity=numbered_identity(0)) as session:
        session.delete_subscription()
        session.leave()


def _renamed(figure: Figure, phase: str, compared_with: FigureKey | None = None) -> Figure:
    """Deliveries are named after the phase; a wider column would not fit beside the ratios."""
    name = phase if figure.name == throughput.DELIVERIES else f"{phase}: {figure.name}"
    return Figure(name=name, value=figure.value, unit=figure.unit, compared_with=compared_with)


def _against(scenario: StoreSize, first: list[Figure], phase: Measurement, name: str) -> list[Figure]:
    return [
        _renamed(figure, name, FigureKey(scenario.name, reference.name))
        for figure, reference in zip(phase.figures, first, strict=True)
    ]
