"""A broker that lets too much wait is told so, and its figures are shown nevertheless."""

from __future__ import annotations

import tomllib
from typing import Final

import pytest

from benchmarks.measuring.nack_everything import broken_promises, settings
from benchmarks.scenarios import NackEverything

SCENARIO: Final = NackEverything(name="nack", title="nack", max_waiting=1000)


def test_the_bound_that_is_measured_is_the_one_that_is_set() -> None:
    assert tomllib.loads(settings(SCENARIO)) == {"max_waiting": 1000}


@pytest.mark.parametrize("most_waiting", [0, 1000])
def test_what_stays_within_the_bound_is_as_promised(most_waiting: int) -> None:
    assert broken_promises(SCENARIO, most_waiting) == ()


def test_one_message_more_is_a_broken_promise() -> None:
    assert broken_promises(SCENARIO, 1001) == ("1,001 messages waited to be sent again, in spite of max_waiting 1,000",)
