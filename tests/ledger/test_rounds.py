"""When a round is due, and who is answered; on a clock that the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.clock import NANOSECONDS, Clock
from stompbroker.ledger import Exports, RoundFailed, RoundResult, Rounds
from stompbroker.ledger.rounds import MARGIN_NS
from stompbroker.storage import Batch, ExportRow, Gathered, LedgerRow
from tests.support.passing_time import set_wall_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.testing import MockClock

#: Noon.
NOW_NS = 20_773 * 86_400 * NANOSECONDS + 43_200 * NANOSECONDS
RESULT = RoundResult(["a file"], 3, 5)


@pytest.fixture(autouse=True)
def noon(mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    set_wall_clock(monkeypatch, lambda: NOW_NS)


def make_exports(exports: Sequence[ExportRow] = (), gathered: Sequence[Gathered] = ()) -> Exports:
    return Exports(exports, gathered, lambda: None, store_id="s", start_number=1, export_bytes=1000)


def gather(exports: Exports, payload_bytes: int) -> None:
    row = LedgerRow(exports.next_batch_id(), "deliveries", 20_773, 1, NOW_NS, lambda: b"x" * payload_bytes)
    exports.note_written(Batch(number=1, ledger=[row]))


class Waiting:
    """Somebody waits for the next round, whichever it is."""

    def __init__(self, rounds: Rounds, nursery: trio.Nursery) -> None:
        self._rounds = rounds
        self.is_over = False
        nursery.start_soon(self._wait)

    async def _wait(self) -> None:
        await self._rounds.wait_due()
        self.is_over = True


async def is_due(rounds: Rounds) -> bool:
    async with trio.open_nursery() as nursery:
        waiting = Waiting(rounds, nursery)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return waiting.is_over


async def test_a_round_is_due_after_the_interval(mock_clock: MockClock) -> None:
    rounds = Rounds(make_exports(), Clock(), interval_s=60)
    for _ in range(2):
        mock_clock.jump(59)
        assert not await is_due(rounds)
        mock_clock.jump(1.001)
        assert await is_due(rounds)
        begun = rounds.begin()
        assert begun.is_new
        assert begun.complete_until_ns == NOW_NS + int(mock_clock.current_time() * NANOSECONDS) - MARGIN_NS
        rounds.note_done(RESULT)


async def test_whoever_waits_is_woken_by_the_clock(mock_clock: MockClock) -> None:
    rounds = Rounds(make_exports(), Clock(), interval_s=60)
    async with trio.open_nursery() as nursery:
        waiting = Waiting(rounds, nursery)
        await wait_all_tasks_blocked()
        mock_clock.jump(60.001)
        await wait_all_tasks_blocked()

        assert waiting.is_over


async def test_a_round_is_due_when_enough_has_gathered(mock_clock: MockClock) -> None:
    exports = make_exports()
    rounds = Rounds(exports, Clock(), interval_s=60)
    async with trio.open_nursery() as nursery:
        waiting = Waiting(rounds, nursery)
        gather(exports, 600)
        await wait_all_tasks_blocked()
        assert not waiting.is_over
        gather(exports, 400)
        await wait_all_tasks_blocked()

        assert waiting.is_over
    assert rounds.begin().is_new
    exports.plan(1)
    assert not await is_due(rounds)


async def test_a_round_is_due_when_a_day_has_ended_and_then_the_lake_is_complete_until_its_end(
    mock_clock: MockClock,
) -> None:
    rounds = Rounds(make_exports(), Clock(), interval_s=86_400)
    mock_clock.jump(43_200)
    midnight_ns = 20_774 * 86_400 * NANOSECONDS

    rounds.end_day(midnight_ns)
    assert not await is_due(rounds)
    mock_clock.jump(1.001)

    assert await is_due(rounds)
    assert rounds.begin().complete_until_ns >= midnight_ns


@pytest.mark.parametrize(
    ("exports", "gathered", "due"),
    [
        ([], [], False),
        ([], [Gathered("deliveries", 20_773, 0, 1, 1, 1, NOW_NS - 59 * NANOSECONDS)], False),
        ([], [Gathered("deliveries", 20_773, 0, 1, 1, 1, NOW_NS - 60 * NANOSECONDS)], True),
        ([], [Gathered("deliveries", 20_772, 0, 1, 1, 1, NOW_NS)], True),
        ([], [Gathered("deliveries", 20_773, 0, 1, 1, 1000, NOW_NS)], True),
        ([ExportRow(1, "backlog", 20_773, "a", 0, 1, 1, NOW_NS)], [], True),
        ([ExportRow(1, "backlog", 20_773, "a", 0, 1, 1, NOW_NS, is_written=True)], [], True),
    ],
    ids=["nothing", "fresh", "old", "yesterday's", "much", "planned", "written"],
)
async def test_what_an_earlier_process_has_left_is_seen_to_at_once(
    mock_clock: MockClock, exports: list[ExportRow], gathered: list[Gathered], due: bool
) -> None:
    rounds = Rounds(make_exports(exports, gathered), Clock(), interval_s=60)

    assert await is_due(rounds) is due
    if due:
        assert rounds.begin().is_new


async def test_who_asks_gets_the_answer_of_a_round_that_begins_afterwards(mock_clock: MockClock) -> None:
    rounds = Rounds(make_exports(), Clock(), interval_s=60)
    answers: list[RoundResult] = []

    async def ask() -> None:
        answers.append(await rounds.export_now())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await rounds.wait_due()
        assert rounds.begin().is_new
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        rounds.note_done(RESULT)
        await wait_all_tasks_blocked()
        assert answers == [RESULT]
        await rounds.wait_due()
        rounds.begin()
        rounds.note_done(RESULT)
    assert answers == [RESULT, RESULT]


async def test_who_asks_is_told_why_not(mock_clock: MockClock) -> None:
    rounds = Rounds(make_exports(), Clock(), interval_s=60)
    failures: list[str] = []

    async def ask() -> None:
        with pytest.raises(RoundFailed) as caught:
            await rounds.export_now()
        failures.append(str(caught.value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await rounds.wait_due()
        rounds.begin()
        rounds.note_failed("the lake is dry")
    assert failures == ["the lake is dry"]


async def test_what_failed_is_tried_again_later_and_later_without_planning_more(mock_clock: MockClock) -> None:
    rounds = Rounds(make_exports(), Clock(), interval_s=3600)
    mock_clock.jump(3600.001)
    complete_until_ns = rounds.begin().complete_until_ns
    waited = []
    for _ in range(10):
        waited.append(rounds.note_failed("the lake is dry"))
        mock_clock.jump(waited[-1] - 0.001)
        assert not await is_due(rounds)
        mock_clock.jump(0.002)
        assert await is_due(rounds)
        assert rounds.begin() == (False, complete_until_ns)

    assert waited == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    rounds.note_done(RESULT)
    assert not await is_due(rounds)
    mock_clock.jump(3600)
    assert rounds.begin().is_new
    assert rounds.note_failed("again") == 1
