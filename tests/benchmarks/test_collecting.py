"""Only what was due during the collection counts as beside it."""

from __future__ import annotations

from array import array
from typing import Final

import pytest

from benchmarks.broken import Broken
from benchmarks.measuring.collecting import due_within
from benchmarks.roles.paced import PacedReport

START_NS: Final = 10**18
MILLISECOND_NS: Final = 1_000_000
#: Ten messages, one a millisecond; number n took n ns.
REPORT: Final = PacedReport(
    starts_at_ns=START_NS,
    sent=10,
    received=10,
    misplaced=0,
    latencies_ns=array("q", range(10)),
    lateness_ns=array("q", range(10)),
    elapsed_s=0.01,
    processor_s=0.0,
)


@pytest.mark.parametrize(
    ("began_ms", "ended_ms", "numbers"),
    [
        (0, 10, range(10)),
        (3, 5, range(3, 5)),
        (2.5, 5.5, range(3, 6)),
        (-5, 1, range(1)),
        (8, 1000, range(8, 10)),
    ],
)
def test_a_message_counts_if_it_was_due_between_begin_and_end(began_ms: float, ended_ms: float, numbers: range) -> None:
    began_at_ns, ended_at_ns = (START_NS + round(at_ms * MILLISECOND_NS) for at_ms in (began_ms, ended_ms))

    during = due_within(REPORT, began_at_ns, ended_at_ns, messages_per_s=1000)

    assert list(during.latencies_ns) == list(during.lateness_ns) == list(numbers)


def test_a_collection_that_no_message_was_due_in_is_reported() -> None:
    with pytest.raises(Broken, match="before a message was due"):
        due_within(REPORT, START_NS + 100_000, START_NS + 200_000, messages_per_s=1000)
