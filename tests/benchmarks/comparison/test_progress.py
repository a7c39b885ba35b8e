"""How far a run is, and how long it will take."""

from __future__ import annotations

from benchmarks.comparison.progress import Progress

FIRST, SECOND = ("stompbroker", "topic"), ("rabbitmq", "topic")


def test_before_anything_is_done_nothing_is_guessed() -> None:
    progress = Progress([FIRST, SECOND])

    assert progress.left_s() is None
    assert progress.described() == "1 of 2"


def test_what_is_left_is_guessed_from_what_the_same_took_before() -> None:
    progress = Progress([FIRST, SECOND, FIRST, SECOND])
    progress.begin(100.0)

    progress.finish(FIRST, 110.0)
    assert progress.left_s() == 30.0  # nothing is known of the other: as long as the first

    progress.finish(SECOND, 180.0)
    assert progress.left_s() == 80.0
    assert progress.described() == "3 of 4, about 1 minutes left"


def test_what_is_noted_twice_counts_once() -> None:
    progress = Progress([FIRST])
    progress.begin(0.0)

    progress.finish(FIRST, 1.0)
    progress.finish(FIRST, 2.0)

    assert progress.done == 1
