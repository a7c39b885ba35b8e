"""A short run of `make soak ARGS="--chaos"`: random valid frames of every kind, all invariants checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from soak.chaos_run import run_chaos

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_valid_frames_break_nothing(seed: int, store_directory: Path) -> None:
    outcome = await run_chaos(store_directory, frames=4_000, seed=seed)

    assert outcome.complaints == []
    assert outcome.seen.frames >= 4_000
    assert outcome.seen.promised
