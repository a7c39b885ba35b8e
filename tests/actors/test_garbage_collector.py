"""When the interpreter searches all objects for reference cycles."""

from __future__ import annotations

import gc
from typing import Final, final

import pytest

from stompbroker.actors import garbage_collector
from stompbroker.actors.garbage_collector import MAX_BETWEEN_S, MIN_BETWEEN_S, SEARCH_S, _Cycles

A_MOMENT_S: Final = 0.001


@final
class Searches:
    """Time that passes as it is told to, and how often was searched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.take_s = 0.0
        self._now_s = 1000.0
        monkeypatch.setattr(garbage_collector, "perf_counter", lambda: self._now_s)
        monkeypatch.setattr(gc, "collect", self._search)
        self._cycles = _Cycles()
        self._cycles.collect_if_quiet(0)

    def _search(self) -> None:
        self.count += 1
        self._now_s += self.take_s

    def after(self, passed_s: float, *, reads: int = 0) -> int:
        """How often was searched when that time has passed, and clients have sent so many chunks since the start."""
        self._now_s += passed_s
        self._cycles.collect_if_quiet(reads)
        return self.count


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    return Searches(monkeypatch)


def test_a_quiet_broker_is_searched_now_and_then(searches: Searches) -> None:
    assert searches.after(MIN_BETWEEN_S) == 0
    assert searches.after(A_MOMENT_S) == 1
    assert searches.after(MIN_BETWEEN_S) == 1


def test_anything_that_a_client_sends_puts_the_search_off(searches: Searches) -> None:
    assert searches.after(MIN_BETWEEN_S + A_MOMENT_S, reads=1) == 0
    assert searches.after(A_MOMENT_S, reads=2) == 0
    assert searches.after(A_MOMENT_S, reads=2) == 1


def test_a_broker_that_is_always_busy_is_searched_in_the_end(searches: Searches) -> None:
    assert searches.after(MAX_BETWEEN_S, reads=1) == 0
    assert searches.after(A_MOMENT_S, reads=2) == 1


def test_after_a_long_search_the_next_is_far(searches: Searches) -> None:
    searches.take_s = 10 * SEARCH_S
    assert searches.after(MIN_BETWEEN_S + A_MOMENT_S) == 1

    assert searches.after(9 * MIN_BETWEEN_S) == 1
    assert searches.after(MIN_BETWEEN_S + A_MOMENT_S) == 2
