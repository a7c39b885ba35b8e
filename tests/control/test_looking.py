"""Looking at much without being noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from stompbroker.control import Looking, looking

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock


async def look(shared: Looking, steps: int, made: list[int]) -> None:
    async with shared.at_once() as look:
        for _ in range(steps):
            made[-1] += 1
            await look.pause()


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


async def test_whoever_is_in_no_hurry_leaves_a_moment_between_two_steps(autojump_clock: MockClock) -> None:
    began_at_s = trio.current_time()
    async with Looking().by_and_by() as look:
        for _ in range(10):
            await look.pause()

    assert trio.current_time() - began_at_s >= 10 * looking.LEAVE_S


async def test_whoever_is_cancelled_while_he_waits_gives_up_no_turn_but_his_own() -> None:
    shared = Looking()
    async with shared.at_once():
        with trio.move_on_after(0):
            async with shared.at_once():
                pass
    async with shared.at_once() as look:
        with trio.CancelScope() as scope:
            scope.cancel()
            await look.pause()

    with trio.fail_after(1):
        async with shared.at_once():
            pass


async def test_a_step_is_over_when_its_time_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(looking, "perf_counter", lambda: now_s)
    async with Looking().at_once() as look:
        assert not look.is_over
        now_s = 2 * looking.STEP_S
        assert look.is_over
        await look.pause()
        assert not look.is_over
