"""What must be so about one poison message, or the throughput beside it means nothing."""

from __future__ import annotations

from typing import Any, Final

import pytest

from benchmarks.broken import Broken
from benchmarks.measuring.poison import dead_after_s, raise_if_not, raise_if_not_one_letter, raise_if_others_noticed
from benchmarks.roles.poisoned_subscribers import PoisonedReport
from benchmarks.roles.subscriber import SubscriberReport
from benchmarks.scenarios import Poison

SCENARIO: Final = Poison(name="poison", title="poison", messages=10, subscribers=2, attempts=3)
LETTER: Final = {"subscription": "subscriber-0/benchmark", "attempts": 3}


def report(received: tuple[int, int], poisoned: tuple[int, int], redelivered: tuple[int, int]) -> PoisonedReport:
    subscribed = SubscriberReport(received=received, byte_count=10**6, finished_at=1.0, processor_s=0.0, busy_s=1.0)
    return PoisonedReport(subscribed=subscribed, poisoned=poisoned, redelivered=redelivered)


def test_poison_comes_back_to_the_one_that_refuses_it_and_to_nobody_else() -> None:
    raise_if_others_noticed(SCENARIO, report((12, 10), (3, 1), (2, 0)), 10, is_poisoned=True)
    raise_if_others_noticed(SCENARIO, report((10, 10), (0, 0), (0, 0)), 10, is_poisoned=False)


@pytest.mark.parametrize(
    ("seen", "complaint"),
    [
        (report((12, 11), (3, 2), (2, 1)), "subscriber 1, which refuses nothing, got 1 redeliveries instead of 0"),
        (report((12, 10), (3, 2), (2, 0)), "subscriber 1, which refuses nothing, got poison 2 times instead of 1"),
        (report((12, 9), (3, 1), (2, 0)), "subscriber 1, which refuses nothing, got 9 deliveries instead of 10"),
        (report((11, 10), (2, 1), (1, 0)), "the subscriber that refuses got 1 redeliveries instead of 2"),
        (report((13, 10), (4, 1), (3, 0)), "the subscriber that refuses got 3 redeliveries instead of 2"),
        (report((11, 10), (3, 1), (2, 0)), "the subscriber that refuses got 11 deliveries instead of 12"),
    ],
)
def test_whoever_else_notices_it_is_reported(seen: PoisonedReport, complaint: str) -> None:
    with pytest.raises(Broken, match=complaint):
        raise_if_others_noticed(SCENARIO, seen, 10, is_poisoned=True)


def test_one_letter_of_the_one_that_refused_it_is_accepted() -> None:
    raise_if_not_one_letter(SCENARIO, "a", [LETTER])


@pytest.mark.parametrize(
    ("letters", "complaint"),
    [
        ([], "0 dead letters at /topic/DLQ.a instead of 1"),
        ([LETTER, LETTER], "2 dead letters at /topic/DLQ.a instead of 1"),
        ([LETTER | {"attempts": 2}], "after 2 attempts instead of subscriber-0/benchmark after 3"),
        ([LETTER | {"subscription": "subscriber-1/benchmark"}], "is of subscriber-1/benchmark"),
    ],
)
def test_any_other_dead_letters_are_reported(letters: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(Broken, match=complaint):
        raise_if_not_one_letter(SCENARIO, "a", letters)


def test_dying_lasts_from_the_first_attempt_to_the_letter() -> None:
    letter = {"first_attempt_at": "2026-01-02T03:04:05.500Z", "died_at": "2026-01-02T03:04:07.250Z"}

    assert dead_after_s(letter) == 1.75


def test_what_comes_after_the_redrive_is_known_by_how_its_body_begins() -> None:
    frame = b"MESSAGE\nack:1-1\n\npoison xx"
    raise_if_not(b"poison ", frame, "the subscriber")

    with pytest.raises(Broken, match=r"the subscriber got b'poison xx' after the redrive instead of b'behind'"):
        raise_if_not(b"behind", frame, "the subscriber")
