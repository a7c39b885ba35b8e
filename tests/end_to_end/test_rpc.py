"""Each caller gets the answers to its own calls, whichever servers are killed; and the judge of that run can see.

Law: real processes and sockets, killed by a seed; `soak` has the parts. `make soak ARGS="--rpc"` does more of the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from soak.rpc_run import Calls, End, RpcFault, RpcSettings, run_rpc
from soak.rpc_server import Service, answer_to
from stompbroker.stomp import FrameReader, Limits
from tests.end_to_end.raw_client import frame
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.stomp import Frame

SETTINGS: Final = RpcSettings(calls=40, kills=6, seed=18, callers=10, servers=4, timeout_s=2.0)


def test_each_caller_gets_its_own_answers_while_servers_are_killed(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        outcome = trio.run(lambda: run_rpc(SETTINGS, broker))

    assert outcome.complaints() == []
    # Otherwise nothing was put to the test.
    assert outcome.kills == SETTINGS.kills
    assert outcome.ends.total() == SETTINGS.calls * SETTINGS.callers
    assert outcome.ends[End.ANSWERED] > outcome.ends.total() / 2
    assert outcome.told_ns


# The judge ------------------------------------------------------------------------------------------------------------


def asked(*services: Service) -> Calls:
    """By caller 7."""
    calls = Calls(7)
    for service in services:
        calls.ask(service)
    return calls


def message(body: bytes, **headers: str) -> Frame:
    """As a caller reads it."""
    (read,) = FrameReader(Limits()).receive(frame("MESSAGE", body, **headers))
    return read


def answer(number: int = 0, *, caller: int = 7, correlation: int | None = None, is_again: bool = False) -> Frame:
    body = answer_to(b"%d %d" % (caller, number), is_again=is_again)
    return message(body, correlation_id=str(number if correlation is None else correlation))


def returned(number: int = 0) -> Frame:
    return message(b"7 %d" % number, correlation_id=str(number), returned="no-subscriber")


def faults(calls: Calls) -> list[str]:
    return [finding.partition(":")[0] for finding in calls.findings]


def test_answers_to_ones_own_calls_are_no_fault_whenever_they_come() -> None:
    calls = asked(Service.KEPT, Service.SHARED, Service.NOBODY)
    calls.take(answer(0))
    calls.take(answer(1))
    calls.take(returned(2))
    calls.take(answer(0, is_again=True))

    assert (calls.findings, calls.is_waiting, calls.late) == ([], False, 1)


@pytest.mark.parametrize(
    "foreign",
    [
        answer(caller=8),
        answer(0, correlation=1),
        answer(5),
        message(answer().body[:-10], correlation_id="0"),
        message(b"7 0", correlation_id="0"),
        message(answer().body),
        message(b"8 0", correlation_id="0", returned="no-subscriber"),
    ],
    ids=["of-another-caller", "to-another-call", "never-asked", "cut-off", "a-question", "to-nothing", "returned"],
)
def test_what_is_no_answer_to_ones_own_call_is_found(foreign: Frame) -> None:
    calls = asked(Service.SHARED, Service.SHARED)

    calls.take(foreign)

    assert faults(calls) == [RpcFault.FOREIGN.name]


def test_two_answers_of_servers_that_were_not_told_are_found() -> None:
    calls = asked(Service.KEPT)
    for _ in range(2):
        calls.take(answer())

    assert faults(calls) == [RpcFault.DOUBLED.name]


@pytest.mark.parametrize(
    ("service", "may_be_lost", "expected"),
    [
        (Service.KEPT, True, [RpcFault.UNANSWERED.name]),
        (Service.SHARED, False, [RpcFault.UNANSWERED.name]),
        (Service.SHARED, True, []),
        (Service.NOBODY, True, [RpcFault.UNTOLD.name]),
    ],
)
def test_who_waits_in_vain_is_found_unless_the_call_was_lost_with_a_server(
    service: Service, may_be_lost: bool, expected: list[str]
) -> None:
    calls = asked(service)

    calls.give_up(may_be_lost=may_be_lost)

    assert faults(calls) == expected
    assert not calls.is_waiting


def test_to_be_told_that_nobody_listens_where_somebody_does_is_found() -> None:
    calls = asked(Service.KEPT)
    calls.take(returned())
    answered = asked(Service.SHARED)
    answered.take(answer())
    answered.take(returned())

    assert faults(calls) == faults(answered) == [RpcFault.MISTOLD.name]
