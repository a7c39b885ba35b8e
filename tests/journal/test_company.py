"""Clients that wait for each receipt share commits, and nobody waits for a stranger, or for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from stompbroker.changes import Appended, Unit
from stompbroker.journal import company
from stompbroker.journal.company import MOST_TURNS, MOST_UNITS, Company
from tests.journal.journal_under_test import make_lane, running_journal
from tests.support.messages import make_messages

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.changes import Lane
    from tests.journal.journal_under_test import JournalUnderTest

CLIENTS = 10
ROUNDS = 20


class Turns(trio.abc.Instrument):
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, _timeout: float) -> None:
        self.count += 1


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that turns alone are a limit, and no busy machine counts."""
    monkeypatch.setattr(company, "perf_counter", lambda: 0.0)


async def turns_waited(journal_company: Company) -> int:
    turns = Turns()
    trio.lowlevel.add_instrument(turns)
    await journal_company.wait()
    trio.lowlevel.remove_instrument(turns)
    return turns.count


def units_of(lanes: list[Lane]) -> list[Unit]:
    return [Unit(lane=lane) for lane in lanes]


async def publish_and_wait(under_test: JournalUnderTest, client: int, lane: Lane, rounds: int) -> None:
    """As a client does that has one message at a time on its way; some take longer than others to send again."""
    for number in range(rounds):
        done = trio.Event()
        unit = Unit([Appended(under_test.topic("a"), make_messages(1))], lane=lane, then=done.set)
        under_test.submit((client, number), unit)
        await done.wait()
        for _ in range(client % 5):
            await trio.lowlevel.checkpoint()


async def test_clients_that_wait_for_each_receipt_share_their_commits(data: Path) -> None:
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        before = len(under_test.store.written)

        async with trio.open_nursery() as nursery:
            for client in range(CLIENTS):
                nursery.start_soon(publish_and_wait, under_test, client, make_lane(), ROUNDS)

        with_messages = [batch for batch in under_test.store.written[before:] if batch.messages]
        assert len(under_test.completed) == CLIENTS * ROUNDS
        assert len(with_messages) <= ROUNDS + 5, "without company it is about twice as many"


async def test_who_stays_away_is_waited_for_once(data: Path, mock_clock: MockClock) -> None:
    """And no timer is needed for that: time stands still."""
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        lanes = [make_lane() for _ in range(CLIENTS)]
        async with trio.open_nursery() as nursery:
            for client, lane in enumerate(lanes):
                nursery.start_soon(publish_and_wait, under_test, client, lane, 5)

        await publish_and_wait(under_test, 0, lanes[0], 5)

        assert len(under_test.stored()) == (CLIENTS + 1) * 5


async def test_a_batch_waits_no_longer_than_it_may() -> None:
    lanes = [make_lane() for _ in range(3)]
    backlog: list[Any] = ["one unit"]
    expecting = Company(backlog)
    expecting.note(units_of(lanes))
    expecting.note(units_of(lanes))

    assert await turns_waited(expecting) == MOST_TURNS

    expecting.note(units_of(lanes[:1]))
    assert await turns_waited(expecting) == 0, "nobody came"


async def test_a_batch_waits_no_longer_than_a_millisecond_of_a_busy_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([0.0, 0.0005, 0.0011])
    monkeypatch.setattr(company, "perf_counter", lambda: next(times_s))
    lanes = [make_lane() for _ in range(3)]
    expecting = Company(["one unit"])
    expecting.note(units_of(lanes))
    expecting.note(units_of(lanes))

    assert await turns_waited(expecting) == 2


@pytest.mark.parametrize("first", [1, 3, 5])
async def test_those_who_come_partly_with_the_next_batch_are_expected_together(first: int) -> None:
    """As it is before anybody has waited: the first get a commit of their own, and the others share one."""
    lanes = [make_lane() for _ in range(CLIENTS)]
    expecting = Company(["unit"] * (CLIENTS - 1))
    for _ in range(2):
        expecting.note(units_of(lanes[:first]))
        expecting.note(units_of(lanes[first:]))

    assert await turns_waited(expecting) == MOST_TURNS


@pytest.mark.parametrize("count", [1, MOST_UNITS + 1])
async def test_nobody_waits_for_one_client_or_beside_many(count: int) -> None:
    """A client alone has nobody to wait for, and what many have sent is a batch as it is."""
    lanes = [make_lane() for _ in range(count)]
    expecting = Company(["one unit"])
    for _ in range(3):
        expecting.note(units_of(lanes))

    assert await turns_waited(expecting) == 0


async def test_nobody_waits_for_strangers() -> None:
    """Each connection publishes now and then: those of the last batch do not come back soon."""
    expecting = Company(["one unit"])
    for _ in range(5):
        expecting.note(units_of([make_lane(), make_lane()]))

        assert await turns_waited(expecting) == 0


async def test_two_that_take_turns_do_not_wait_for_each_other() -> None:
    """Each may publish once in a while, at its own pace."""
    lanes = [make_lane() for _ in range(2)]
    expecting = Company(["one unit"])
    for number in range(6):
        expecting.note(units_of([lanes[number % 2]]))

        assert await turns_waited(expecting) == 0


async def test_what_changes_without_a_unit_waits_for_nobody() -> None:
    lanes = [make_lane() for _ in range(3)]
    expecting = Company([])
    for _ in range(3):
        expecting.note(units_of(lanes))
        expecting.note([])

    assert await turns_waited(expecting) == 0
