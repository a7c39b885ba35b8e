"""The soak that passes messages through: its window is exact, and so is what it says was in flight."""

from __future__ import annotations

import re
from typing import Final

import pytest

from benchmarks.address import Address
from benchmarks.broken import Broken
from benchmarks.frames import send
from benchmarks.role_process import RoleProcess
from benchmarks.roles.child_end import Go, Stage
from benchmarks.stored import StoreSizes
from soak import passing
from soak.command_line import parse, through_lines
from soak.passing import Passing, PassingAssignment, batch_of_sends
from soak.through_run import ThroughOutcome, allowed_bytes
from tests.benchmarks.scripted_server import Script, ScriptedServer

MIB: Final = 1024 * 1024
NOWHERE: Final = Address("", 0)


def assignment(messages: int, address: Address = NOWHERE) -> PassingAssignment:
    return PassingAssignment(
        address=address, destination="/topic/a", messages=messages, body_bytes=64, window=10, batch=5, stall_s=1.0
    )


def deliveries(*numbers: int) -> bytes:
    return b"".join(b"MESSAGE\nack:1-%d\n\nx\0" % number for number in numbers)


RECEIPT: Final = b"RECEIPT\nreceipt-id:a\n\n\0"


# The window ----------------------------------------------------------------------------------------------------------


def test_a_batch_is_so_many_sends_of_which_the_last_asks_for_a_receipt() -> None:
    plain, last = send("/topic/a", b"xx"), send("/topic/a", b"xx", receipt="stored")

    assert batch_of_sends("/topic/a", 2, 3) == plain + plain + last
    assert batch_of_sends("/topic/a", 2, 1) == last


def test_a_message_is_in_flight_until_its_acknowledgement_is_confirmed() -> None:
    passage = Passing(assignment(100))

    assert passage.next_sends().count(b"SEND\n") == 10
    assert passage.next_sends() == b""
    answers = passage.take_deliveries(deliveries(1, 2, 3, 4, 5, 6))
    assert re.findall(rb"id:(1-\d)", answers) == [b"1-%d" % number for number in range(1, 7)]
    assert answers.count(b"receipt:") == 1
    assert passage.next_sends() == b""  # acknowledged, but not confirmed

    passage.take_deliveries(RECEIPT)

    assert passage.settled == 6
    assert passage.next_sends().count(b"SEND\n") == 5  # a sixth would begin a batch that does not fit
    assert passage.most_in_flight == 10


def test_it_is_over_when_all_is_settled_and_every_batch_has_its_receipt() -> None:
    passage = Passing(assignment(7))

    assert passage.next_sends().count(b"receipt:") == 2  # a batch of five, and the two that are left
    passage.take_deliveries(deliveries(*range(7)))
    passage.take_deliveries(RECEIPT)
    assert not passage.is_over
    passage.take_answers(RECEIPT * 2)

    assert passage.is_over
    assert passage.most_in_flight == 7


def test_what_is_cut_into_pieces_is_counted_once() -> None:
    passage = Passing(assignment(100))
    passage.next_sends()
    stream = deliveries(1, 2) + RECEIPT + deliveries(3)

    # The receipt answers the acknowledgement of what came before it, however that was cut.
    answers = b"".join(passage.take_deliveries(stream[at : at + 1]) for at in range(len(stream)))

    assert answers.count(b"ACK\n") == 3
    assert (passage.received, passage.settled) == (3, 1)


def test_more_messages_than_were_sent_are_broken() -> None:
    passage = Passing(assignment(5))
    passage.next_sends()

    with pytest.raises(Broken, match="6 messages came of 5"):
        passage.take_deliveries(deliveries(*range(6)))


def test_an_error_is_reported() -> None:
    with pytest.raises(Broken, match="no"):
        Passing(assignment(5)).take_deliveries(b"ERROR\nmessage:no\n\n\0")


# The role ------------------------------------------------------------------------------------------------------------


def test_everything_passes_through_a_server_that_delivers_it() -> None:
    with ScriptedServer(Script()) as server:
        asked = assignment(1003, server.address)
        with RoleProcess(passing.run, asked, watch=lambda: None) as process:
            process.wait_stage(Stage.READY)
            process.tell(Go())
            report = process.wait_report()

    assert report.messages == server.messages == 1003
    assert report.in_flight_messages == 10
    assert report.in_flight_bytes == 10 * -(-len(batch_of_sends("/topic/a", 64, 5)) // 5)
    assert len(set(server.acknowledged)) == 1003


def test_a_lost_message_is_reported() -> None:
    with ScriptedServer(Script(lost=frozenset({20}))) as server:
        asked = assignment(100, server.address)
        with RoleProcess(passing.run, asked, watch=lambda: None) as process:
            process.wait_stage(Stage.READY)
            process.tell(Go())
            with pytest.raises(Broken, match="nothing came for 1 s"):
                process.wait_report()


# The bound and the words ---------------------------------------------------------------------------------------------


def outcome(peak_bytes: int) -> ThroughOutcome:
    sizes = StoreSizes(database_bytes=peak_bytes - MIB, log_bytes=MIB)
    return ThroughOutcome(
        messages=1000,
        elapsed_s=2.0,
        in_flight_messages=100,
        in_flight_bytes=MIB,
        peak=sizes,
        end=sizes,
        ended=sizes,
        resident_peak_bytes=MIB,
    )


def test_the_bound_is_a_constant_and_a_multiple_of_what_was_in_flight() -> None:
    assert allowed_bytes(0) == 128 * MIB
    assert allowed_bytes(MIB) == 148 * MIB
    assert outcome(148 * MIB).is_bounded
    assert not outcome(148 * MIB + 1).is_bounded


def test_the_last_line_says_whether_the_bound_was_kept() -> None:
    assert through_lines(outcome(42 * MIB))[-1].startswith("Within the 148.0 MiB that are allowed")
    assert through_lines(outcome(149 * MIB))[-1].startswith("BROKEN: above the 148.0 MiB that are allowed")
    assert "42.0 × what was in flight" in through_lines(outcome(42 * MIB))[-2]


# Options -------------------------------------------------------------------------------------------------------------


def test_without_options_the_files_are_looked_at_after_the_kills() -> None:
    options = parse([])

    assert (options.kills, options.through, options.is_through_alone) == (25, 10_000_000, False)


@pytest.mark.parametrize(("arguments", "messages"), [(["--through"], 10_000_000), (["--through", "1000"], 1000)])
def test_through_is_a_run_of_its_own(arguments: list[str], messages: int) -> None:
    options = parse(arguments)

    assert (options.through, options.is_through_alone) == (messages, True)


def test_a_run_with_options_for_the_kills_is_that_alone() -> None:
    assert parse(["--kills", "3"]).through is None


@pytest.mark.parametrize(
    "arguments", [["--through", "0"], ["--long", "--through"], ["--through", "--database", "postgres"]]
)
def test_a_mistake_ends_with_code_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)

    assert ended.value.code == 2
