"""How far behind subscriptions are is written down on the hour, and when a day ends; on a clock that the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from trio.testing import wait_all_tasks_blocked

from stompbroker.clock import NANOSECONDS
from stompbroker.ledger import Kind
from tests.ledger.records import unpack_one
from tests.support.broker_under_test import A_LOOK_S, running_broker
from tests.support.passing_time import set_wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest

DAY_S = 86_400
#: Half an hour before midnight.
EVENING_S = 20_773 * DAY_S + 23 * 3600 + 1800


@pytest.fixture(autouse=True)
def evening(monkeypatch: pytest.MonkeyPatch) -> None:
    set_wall_clock(monkeypatch, lambda: EVENING_S * NANOSECONDS)


def snapshots(broker: BrokerUnderTest) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    for day, payload in broker.look("SELECT day, payload FROM ledger_batches WHERE kind = 'backlog' ORDER BY id"):
        found += [(day, row) for row in unpack_one(Kind.BACKLOG, payload).to_pylist()]
    return found


async def until(is_so: Callable[[], object], clock: MockClock) -> None:
    """Threads and processes take part, which need real time; the broker's pauses need the clock to go on, a little."""
    while not is_so():
        await wait_all_tasks_blocked(A_LOOK_S)
        clock.jump(0.01)


async def make_backlog(broker: BrokerUnderTest) -> None:
    subscriber = await broker.durable_subscriber(prefetch_count="2")
    await broker.store_messages(b"one", b"two", b"three", b"four")
    first, second = await subscriber.next_messages(2)
    await subscriber.send("NACK", id=second.headers["ack"], receipt="refused")
    await broker.settle()
    del first


async def test_a_snapshot_is_taken_on_the_hour_and_belongs_to_its_day(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, lake_export_interval_s=DAY_S) as broker:
        await make_backlog(broker)
        assert snapshots(broker) == []
        mock_clock.jump(1800.5)
        await until(lambda: snapshots(broker), mock_clock)
        ((day, at_midnight),) = snapshots(broker)
        assert at_midnight["is_closing"]
        assert day == 20_773

        # The day that has ended goes to the lake at once; what comes after that waits.
        mock_clock.jump(1)
        await until(lambda: not broker.count("ledger_exports") and not snapshots(broker), mock_clock)
        mock_clock.jump(3600)
        await until(lambda: snapshots(broker), mock_clock)

        ((day, row),) = snapshots(broker)
        assert not row["is_closing"]
        assert day == 20_774
        assert row["taken_at"].timestamp() == pytest.approx(20_774 * DAY_S + 3600, abs=60)
        assert (row["topic"], row["subscription"], row["client_id"]) == ("a", "billing/orders", "billing")
        assert row["lag_messages"] == 4
        assert row["in_flight"] + row["waiting"] >= 1
        assert row["lag_s"] == pytest.approx(5400, abs=60)
        assert row["pinned_bytes"] > 0


async def test_without_durable_subscriptions_there_is_nothing_to_say(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        mock_clock.jump(1800.5)
        await broker.settle()

        assert snapshots(broker) == []
