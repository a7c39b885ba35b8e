"""Whether one message that one subscriber refuses slows everybody down, and what becomes of it.

The same messages go to the same number of durable subscribers on one broker, in the order without, with, with, without
poison, so that a drift over time favours neither; a short uncounted run comes first. Every run has its own topic and
subscriptions. The poison is near the beginning, so that it is dead while the others still flow.

Otherwise the figures mean nothing: the others get everything exactly once; the poison is the only dead letter of its
topic; redriven, it reaches the subscriber that refused it and nobody else. To see that nothing else arrives without
waiting, another message is published after it and must come next.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from benchmarks.broken import Broken
from benchmarks.broker_watch import BrokerWatch
from benchmarks.durable_identity import numbered_identity
from benchmarks.frames import POISON
from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.measuring.flow import Flow, Part, run_flow
from benchmarks.operating import ask
from benchmarks.roles import poisoned_subscribers, publisher
from benchmarks.roles.poisoned_subscribers import PoisonedAssignment, PoisonedReport
from benchmarks.roles.publisher import PublisherAssignment
from benchmarks.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.scenarios import Poison
    from benchmarks.target import Target

#: Whether there is poison in each of the runs.
_ORDER: Final = (False, True, True, False)
#: Share of the messages before the poison.
_POISON_AFTER: Final = 0.1
_WARM_UP: Final = 0.1
_BEHIND: Final = b"behind"
_POLL_S: Final = 0.02


def measure(scenario: Poison, target: Target, stall_s: float) -> Measurement:
    watch = BrokerWatch(target)

    dying_s: list[float] = []

    def run(topic: str, messages: int, *, is_poisoned: bool) -> Flow[PoisonedReport]:
        destination = f"/topic/{topic}"
        publishing = PublisherAssignment(
            address=target.address,
            destination=destination,
            body_bytes=scenario.body_bytes,
            most_messages=messages,
            receipt_window=scenario.receipt_window,
            poison_at=round(messages * _POISON_AFTER) if is_poisoned else None,
            stall_s=stall_s,
        )
        subscribing = PoisonedAssignment(
            address=target.address,
            destination=destination,
            subscribers=scenario.subscribers,
            attempts=scenario.attempts,
            delay_ms=scenario.delay_ms,
            is_poisoned=is_poisoned,
            stall_s=stall_s,
        )
        flow = run_flow(Part(publisher.run, publishing), Part(poisoned_subscribers.run, subscribing), watch)
        raise_if_others_noticed(scenario, flow.subscribed, messages, is_poisoned=is_poisoned)
        if is_poisoned:
            letters = _wait_letters(target, topic, stall_s)
            raise_if_not_one_letter(scenario, topic, letters)
            dying_s.append(dead_after_s(letters[0]))
        _redrive_and_delete(scenario, target, topic, is_poisoned=is_poisoned)
        return flow

    run("warm-up", round(scenario.messages * _WARM_UP), is_poisoned=False)
    flows = [
        run(f"poison.{number}", scenario.messages, is_poisoned=is_poisoned) for number, is_poisoned in enumerate(_ORDER)
    ]
    without = [flow for flow, is_poisoned in zip(flows, _ORDER, strict=True) if not is_poisoned]
    poisoned = [flow for flow, is_poisoned in zip(flows, _ORDER, strict=True) if is_poisoned]
    last = poisoned[-1]
    return Measurement(
        scenario=scenario.name,
        figures=(
            *_figures(scenario, "without", without, is_reference=True),
            *_figures(scenario, "with", poisoned, is_reference=False),
            Figure(name="poison dead after", value=fmean(dying_s) * 1000, unit=Unit.MILLISECONDS),
            Figure(name="of a run of", value=fmean(map(_elapsed_s, poisoned)) * 1000, unit=Unit.MILLISECONDS),
        ),
        machine=last.machine,
        broker=last.broker,
        generators=(
            ProcessorShare("publisher", last.published.processor_s / _publishing_s(last)),
            ProcessorShare("subscribers", last.subscribed.subscribed.processor_s / last.subscribed.subscribed.busy_s),
        ),
    )


def _figures(
    scenario: Poison, name: str, flows: Sequence[Flow[PoisonedReport]], *, is_reference: bool
) -> tuple[Figure, Figure]:
    deliveries = sum(sum(flow.subscribed.subscribed.received) for flow in flows)
    elapsed_s = sum(map(_elapsed_s, flows))
    per_delivery = "per delivery"
    return (
        Figure(
            name=name,
            value=deliveries / elapsed_s,
            unit=Unit.PER_SECOND,
            compared_with=None if is_reference else FigureKey(scenario.name, "without"),
        ),
        Figure(
            name=f"{name}: {per_delivery}",
            value=sum(flow.broker_processor_s for flow in flows) / deliveries * 1e6,
            unit=Unit.MICROSECONDS,
            compared_with=None if is_reference else FigureKey(scenario.name, f"without: {per_delivery}"),
        ),
    )


def _elapsed_s(flow: Flow[PoisonedReport]) -> float:
    return max(flow.published.finished_at, flow.subscribed.subscribed.finished_at) - flow.published.started_at


def _publishing_s(flow: Flow[PoisonedReport]) -> float:
    return flow.published.finished_at - flow.published.started_at


# What must be so -----------------------------------------------------------------------------------------------------


def raise_if_others_noticed(scenario: Poison, report: PoisonedReport, messages: int, *, is_poisoned: bool) -> None:
    """The first subscriber gets the poison as often as it asked for; the others get everything once."""
    poisons = 1 if is_poisoned else 0
    again = (scenario.attempts - 1) * poisons
    for number, (received, poisoned, redelivered) in enumerate(
        zip(report.subscribed.received, report.poisoned, report.redelivered, strict=True)
    ):
        owed_again = again if number == 0 else 0
        who = "the subscriber that refuses" if number == 0 else f"subscriber {number}, which refuses nothing,"
        if redelivered != owed_again:
            raise Broken(f"{who} got {redelivered:,} redeliveries instead of {owed_again}")
        if poisoned != poisons + owed_again:
            raise Broken(f"{who} got poison {poisoned:,} times instead of {poisons + owed_again}")
        if received != messages + owed_again:
            raise Broken(f"{who} got {received:,} deliveries instead of {messages + owed_again:,}")


def _wait_letters(target: Target, topic: str, patience_s: float) -> list[dict[str, Any]]:
    """Wait for the dead letters of a topic: the last refusal may still be on its way to the disk."""
    gives_up_at = time.monotonic() + patience_s
    while not _letter_count(target, topic) and time.monotonic() < gives_up_at:
        time.sleep(_POLL_S)
    if not _letter_count(target, topic):
        return []
    letters: list[dict[str, Any]] = ask(target.data, "dead_letters", topic=topic)["letters"]
    return letters


def _letter_count(target: Target, topic: str) -> int:
    """The dead letters, received from their topic."""
    topics = ask(target.data, "dead_letter_topics")["topics"]
    return sum(each["letters"] for each in topics if each["destination"] == f"/topic/DLQ.{topic}")


def raise_if_not_one_letter(scenario: Poison, topic: str, letters: Sequence[dict[str, Any]]) -> None:
    if len(letters) != 1:
        raise Broken(f"{len(letters)} dead letters at /topic/DLQ.{topic} instead of 1")
    found = letters[0]["subscription"], letters[0]["attempts"]
    identity = numbered_identity(0)
    owed = f"{identity.client_id}/{identity.name}", scenario.attempts
    if found != owed:
        raise Broken(f"the dead letter is of {found[0]} after {found[1]} attempts instead of {owed[0]} after {owed[1]}")


def dead_after_s(letter: dict[str, Any]) -> float:
    """From the first delivery to the dead letter."""
    died_at, first_at = (datetime.fromisoformat(letter[key]) for key in ("died_at", "first_attempt_at"))
    return (died_at - first_at).total_seconds()


def _redrive_and_delete(scenario: Poison, target: Target, topic: str, *, is_poisoned: bool) -> None:
    """Let all subscribers return, redrive the letter, see who gets it, and delete the subscriptions."""
    destination = f"/topic/{topic}"
    with ExitStack() as open_sessions:
        sessions = [
            open_sessions.enter_context(Session.open(target.address, identity=numbered_identity(number)))
            for number in range(scenario.subscribers)
        ]
        for session in sessions:
            session.subscribe(destination, ack_mode="client-individual")
        if is_poisoned:
            redriven = ask(target.data, "redrive_dead_letters", topic=topic)["redriven"]
            if redriven != 1:
                raise Broken(f"{redriven} dead letters were redriven instead of 1")
        with Session.open(target.address) as publisher:
            publisher.publish(destination, _BEHIND)
            publisher.leave()
        for number, session in enumerate(sessions):
            if is_poisoned and number == 0:
                raise_if_not(POISON, session.take_message(), "the subscriber that refused the poison")
            raise_if_not(_BEHIND, session.take_message(), f"subscriber {number}")
            session.delete_subscription()
            session.leave()
    if is_poisoned and (left := _letter_count(target, topic)):
        raise Broken(f"{left} dead letters at /topic/DLQ.{topic} after all were redriven")


def raise_if_not(body_begins: bytes, frame: bytes, who: str) -> None:
    body = frame.partition(b"\n\n")[2]
    if not body.startswith(body_begins):
        raise Broken(f"{who} got {body[:20]!r} after the redrive instead of {body_begins!r}")
