"""Looking at much without being noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import assert_checkpoints, assert_no_checkpoints

from stompbroker.control import Looking, looking

if TYPE_CHECKING:
    from trio.testing import MockClock


async def look(shared: Looking, steps: int, made: list[int]) -> None:
    async with shared.at_once() as look:
        for _ in range(steps):
            made[-1] += 1
            await look.pause_if_over()


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is over at once."""
    monkeypatch.setattr(looking, "STEP_S", -1.0)


@pytest.mark.usefixtures("short_steps")
async def test_however_many_look_one_step_is_made_between_two_checkpoints_of_others() -> None:
    made = [0]
    async with trio.open_nursery() as nursery:
        shared = Looking()
        for _ in range(5):
            nursery.start_soon(look, shared, 20, made)
        while sum(made) < 100:
            await trio.lowlevel.checkpoint()
            made.append(0)

    assert sum(made) == 100
    # Trio varies the order of those that run in one turn: two turns may stand beside each other.
    assert max(made) <= 2


@pytest.mark.usefixtures("short_steps")
async def test_whoever_is_in_no_hurry_leaves_a_moment_between_two_steps(autojump_clock: MockClock) -> None:
    began_at_s = trio.current_time()
    async with Looking().by_and_by() as look:
        for _ in range(10):
            await look.pause_if_over()

    assert trio.current_time() - began_at_s >= 10 * looking.LEAVE_S


@pytest.mark.usefixtures("short_steps")
async def test_whoever_is_cancelled_while_he_waits_gives_up_no_turn_but_his_own() -> None:
    shared = Looking()
    async with shared.at_once():
        with trio.move_on_after(0):
            async with shared.at_once():
                pass
    async with shared.at_once() as look:
        with trio.CancelScope() as scope:
            scope.cancel()
            await look.pause_if_over()

    with trio.fail_after(1):
        async with shared.at_once():
            pass


async def test_a_step_is_over_when_its_time_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(looking, "perf_counter", lambda: now_s)
    async with Looking().at_once() as look:
        for passed_s in (0.0, looking.STEP_S, 0.0):
            now_s += passed_s
            with assert_no_checkpoints():
                await look.pause_if_over()
        now_s += looking.STEP_S
        with assert_checkpoints():
            await look.pause_if_over()
        with assert_no_checkpoints():
            await look.pause_if_over()
