"""Damage to the database file never goes unnoticed; `soak` has the parts, and `make soak ARGS=--damage` does more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from soak.damage_run import KINDS, run_damages
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from pathlib import Path

#: Each kind of damage on a store that was closed, and on one whose broker was killed; and two more.
TRIALS: Final = 2 * len(KINDS) + 2


def test_no_damage_goes_unnoticed_and_nothing_altered_is_delivered(tmp_path: Path) -> None:
    outcome = run_damages(tmp_path, trials=TRIALS, seed=1, show=lambda _: None)

    assert outcome.complaints == []
    assert sum(outcome.results.values()) == TRIALS
    assert outcome.delivered > 1000
    assert outcome.kept_back > 0


@pytest.mark.parametrize("how", ["empty", "gone"])
def test_a_database_file_that_is_lost_is_not_taken_for_a_first_start(tmp_path: Path, how: str) -> None:
    with running_broker(tmp_path) as broker:
        broker.stop()
        file = broker.data / "stompbroker.db"
        if how == "empty":
            file.write_bytes(b"")
        else:
            file.unlink()

        with pytest.raises(AssertionError, match=f"is {how}, although the directory had a store"):
            broker.restart()

        (broker.data / "store.id").unlink()
        broker.restart()
