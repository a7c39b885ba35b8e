"""A process that has passed its moment does nothing more: real processes, since the moment ends them."""

from __future__ import annotations

from tests.support.prepared_process import PYTHON, run_prepared

SCRIPT = """
import math, signal, time
import trio
from stompbroker.process_deadline import ProcessDeadline
from stompbroker.storage import boottime_s

async def main():
    with ProcessDeadline("It is over.", 75) as deadline:
        {body}

trio.run(main)
print("went on")
"""


def outcome_of(*lines: str) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a process that has these lines within the block."""
    done = run_prepared([*PYTHON, "-c", SCRIPT.format(body="\n        ".join(lines))])
    return done.returncode, done.stdout, done.stderr


ENDED = (75, b"", b"It is over.\n")
WENT_ON = (0, b"went on\n", b"")


def test_one_that_is_busy_is_interrupted() -> None:
    assert (
        outcome_of(
            "deadline.move(boottime_s() + 0.01)",
            "ends_at_s = time.monotonic() + 10",
            "while time.monotonic() < ends_at_s: pass",
        )
        == ENDED
    )


def test_one_that_waits_is_woken_up() -> None:
    assert outcome_of("deadline.move(boottime_s() + 0.01)", "await trio.sleep(10)") == ENDED


def test_one_whose_machine_slept_ends_although_the_timer_did_not_count() -> None:
    no_timer = "signal.setitimer(signal.ITIMER_REAL, 0)"

    assert outcome_of("deadline.move(boottime_s() + 0.01)", no_timer, "await trio.sleep(0.02)") == ENDED


def test_a_moment_in_the_past_is_now() -> None:
    assert outcome_of("deadline.move(boottime_s() - 1)", "time.sleep(10)") == ENDED


def test_a_moment_can_be_put_off() -> None:
    lines = ("deadline.move(boottime_s() + 0.02)", "deadline.move(boottime_s() + 3600)", "await trio.sleep(0.04)")

    assert outcome_of(*lines) == WENT_ON


def test_an_early_alarm_ends_nothing() -> None:
    lines = ("deadline.move(boottime_s() + 3600)", "signal.raise_signal(signal.SIGALRM)", "await trio.sleep(0)")

    assert outcome_of(*lines) == WENT_ON


def test_behind_the_block_there_is_no_moment() -> None:
    lines = ("deadline.move(boottime_s() + 0.02)", "pass\n    time.sleep(0.04)")

    assert outcome_of(*lines) == WENT_ON
