"""Durable subscriptions that nobody attaches to: warned of once, and deleted only where the settings say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker
from tests.support.passing_time import let_time_pass, let_wall_clock_go_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Any

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest


DAY_S = 86_400
#: Without a warning, which could not come after it.
DELETING = {"idle_warning_s": 0, "idle_delete_s": 100}


def warnings(logged: Iterable[Mapping[str, Any]]) -> list[str]:
    """Which subscriptions were warned of."""
    return [str(each["subscription"]) for each in logged if "nobody has attached" in each["event"]]


def deleted(logged: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(each["subscription"]) for each in logged if each["event"].startswith("deleted a durable")]


async def absent_subscriber(broker: BrokerUnderTest, destination: str = "/topic/a", name: str = "orders") -> None:
    await (await broker.durable_subscriber(destination, name=name, client_id=name)).vanish()


async def wait(broker: BrokerUnderTest, clock: MockClock, seconds: float) -> None:
    """Let that time pass in one go, and the collector come by a few times."""
    await broker.settle()
    clock.jump(seconds)
    await let_time_pass(broker, clock, 3)


def there_are(broker: BrokerUnderTest) -> int:
    """How many durable subscriptions there are, in memory as on disk."""
    assert len(broker.registry.durable) == broker.count("subscriptions")
    return len(broker.registry.durable)


# Warnings ------------------------------------------------------------------------------------------------------------


async def test_an_absence_is_warned_of_once(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, idle_warning_s=100) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"1", b"2")
        with capture_logs() as logged:
            await wait(broker, mock_clock, 90)
            assert warnings(logged) == []
            for _ in range(3):
                await wait(broker, mock_clock, 100)

        (warning,) = [each for each in logged if "nobody has attached" in each["event"]]
        assert warning["log_level"] == "warning"
        assert (warning["subscription"], warning["destination"]) == ("orders/orders", "/topic/a")
        assert warning["unsettled"] == 2
        assert warning["last_seen_at"]


async def test_by_default_it_is_warned_of_after_a_week_and_never_deleted(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker)
        with capture_logs() as logged:
            await wait(broker, mock_clock, 6.9 * DAY_S)
            assert warnings(logged) == []
            await wait(broker, mock_clock, 0.2 * DAY_S)
            assert warnings(logged) == ["orders/orders"]
            await wait(broker, mock_clock, 10_000 * DAY_S)

        assert warnings(logged) == ["orders/orders"]
        assert there_are(broker) == 1


async def test_whoever_is_attached_is_not_warned_of_however_long(store_directory: Path, mock_clock: MockClock) -> None:
    settings = {"idle_warning_s": 100, "idle_delete_s": 200, "idle_delete_unsettled": True}
    async with running_broker(store_in=store_directory, **settings) as broker:
        subscriber = await broker.durable_subscriber()
        with capture_logs() as logged:
            await wait(broker, mock_clock, 1000)

        assert warnings(logged) == []
        await broker.store_messages(b"1")
        assert await subscriber.next_bodies(1) == [b"1"]


async def test_time_counts_from_when_it_was_left(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, idle_warning_s=100) as broker:
        subscriber = await broker.durable_subscriber()
        await wait(broker, mock_clock, 500)
        await subscriber.vanish()
        with capture_logs() as logged:
            await wait(broker, mock_clock, 90)
            assert warnings(logged) == []
            await wait(broker, mock_clock, 10)

        assert warnings(logged) == ["billing/orders"]


async def test_it_is_warned_of_again_after_it_was_seen(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, idle_warning_s=100) as broker:
        with capture_logs() as logged:
            for number in range(3):
                await absent_subscriber(broker)
                await wait(broker, mock_clock, 101)
                assert warnings(logged) == ["orders/orders"] * (number + 1)


async def test_zero_means_never(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, idle_warning_s=0, idle_delete_s=0) as broker:
        await absent_subscriber(broker)
        with capture_logs() as logged:
            await wait(broker, mock_clock, 3650 * DAY_S)

        assert warnings(logged) == []
        assert there_are(broker) == 1


async def test_a_transient_subscription_is_nobodys_business(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, idle_warning_s=100, idle_delete_s=100) as broker:
        subscriber = await broker.subscriber()
        with capture_logs() as logged:
            await wait(broker, mock_clock, 1000)

        assert warnings(logged) == []
        await broker.expect_silence(subscriber)


# Deletion ------------------------------------------------------------------------------------------------------------


async def test_an_empty_one_is_deleted_after_its_time_which_is_told(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **DELETING) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1")
        await subscriber.acknowledge(await subscriber.next_message())
        await subscriber.vanish()
        with capture_logs() as logged:
            await wait(broker, mock_clock, 90)
            assert there_are(broker) == 1
            await wait(broker, mock_clock, 10)

        assert there_are(broker) == 0
        assert deleted(logged) == ["billing/orders"]
        assert (broker.count("cursors"), broker.count("redeliveries")) == (0, 0)


async def test_one_that_has_something_unsettled_is_not_deleted(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, idle_warning_s=100, idle_delete_s=200) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"1")
        with capture_logs() as logged:
            await wait(broker, mock_clock, 10_000)

        assert there_are(broker) == 1
        assert warnings(logged) == ["orders/orders"]
        assert await (await broker.durable_subscriber(client_id="orders")).next_bodies(1) == [b"1"]


@pytest.mark.parametrize("left", ["in flight", "waiting"])
async def test_what_was_sent_and_not_settled_counts_too(
    left: str, store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **DELETING) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1")
        message = await subscriber.next_message()
        if left == "waiting":
            await subscriber.send("NACK", id=message.headers["ack"], delay="3600000")
            await subscriber.sync()
        await subscriber.vanish()

        await wait(broker, mock_clock, 1000)

        assert there_are(broker) == 1


async def test_where_the_settings_say_so_it_is_deleted_with_what_is_unsettled(
    store_directory: Path, mock_clock: MockClock
) -> None:
    settings = {**DELETING, "idle_delete_unsettled": True, "topic_idle_s": 1}
    async with running_broker(store_in=store_directory, **settings) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"1", b"2")
        with capture_logs() as logged:
            await wait(broker, mock_clock, 100)
            await let_time_pass(broker, mock_clock, 4)

        (said,) = [each for each in logged if each["event"].startswith("deleted a durable")]
        assert (said["log_level"], said["unsettled"]) == ("warning", 2)
        assert there_are(broker) == 0
        assert (broker.count("messages"), broker.count("topics")) == (0, 0)


async def test_one_that_is_warned_of_first_is_deleted_all_the_same(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, idle_warning_s=100, idle_delete_s=200) as broker:
        await absent_subscriber(broker)
        with capture_logs() as logged:
            await wait(broker, mock_clock, 100)
            assert (warnings(logged), deleted(logged)) == (["orders/orders"], [])
            await wait(broker, mock_clock, 100)

        assert deleted(logged) == ["orders/orders"]
        assert there_are(broker) == 0


async def test_one_that_settles_all_at_last_is_deleted_a_time_after_that(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **DELETING) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"1")
        await wait(broker, mock_clock, 1000)
        subscriber = await broker.durable_subscriber(client_id="orders")
        await subscriber.acknowledge(await subscriber.next_message())
        await subscriber.vanish()

        await wait(broker, mock_clock, 90)
        assert there_are(broker) == 1
        await wait(broker, mock_clock, 10)

        assert there_are(broker) == 0


async def test_what_is_deleted_can_be_made_anew_and_begins_with_what_comes(
    store_directory: Path, mock_clock: MockClock
) -> None:
    settings = {**DELETING, "idle_delete_unsettled": True}
    async with running_broker(store_in=store_directory, **settings) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"lost")
        await wait(broker, mock_clock, 101)

        again = await broker.durable_subscriber(client_id="orders")
        await broker.store_messages(b"new")

        assert [message.body for message in await broker.rest_for(again)] == [b"new"]


# Tables --------------------------------------------------------------------------------------------------------------


async def test_a_table_counts_for_subscriptions_to_its_topics(store_directory: Path, mock_clock: MockClock) -> None:
    tables = [
        {"pattern": "cheap.*", "idle_warning_s": 10, "idle_delete_s": 100, "idle_delete_unsettled": True},
        {"pattern": "dear.*", "idle_warning_s": 0},
    ]
    async with running_broker(store_in=store_directory, idle_warning_s=200, topics=tables) as broker:
        for name in ("cheap", "dear", "other"):
            await absent_subscriber(broker, f"/topic/{name}.x", name)
            await broker.store_messages(b"1", destination=f"/topic/{name}.x")
        with capture_logs() as logged:
            await wait(broker, mock_clock, 20)
            assert warnings(logged) == ["cheap/cheap"]
            await wait(broker, mock_clock, 1000)

        assert warnings(logged) == ["cheap/cheap", "other/other"]
        assert deleted(logged) == ["cheap/cheap"]
        assert there_are(broker) == 2


# Over a restart ------------------------------------------------------------------------------------------------------


async def test_an_absence_goes_on_over_a_restart(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_wall_clock_go_on(mock_clock, monkeypatch)
    async with running_broker(store_in=store_directory, **DELETING) as broker:
        await absent_subscriber(broker)
        await wait(broker, mock_clock, 60)
        broker.kill()

    async with running_broker(store_in=store_directory, **DELETING) as broker:
        await wait(broker, mock_clock, 20)
        assert there_are(broker) == 1
        await wait(broker, mock_clock, 20)
        assert there_are(broker) == 0


@pytest.mark.parametrize("is_killed", [True, False])
async def test_who_was_attached_when_the_broker_ended_is_not_absent_since_it_had_come(
    is_killed: bool, store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been there for long, and comes back as soon as it can."""
    let_wall_clock_go_on(mock_clock, monkeypatch)
    async with running_broker(store_in=store_directory, idle_warning_s=50, idle_delete_s=100) as broker:
        await broker.durable_subscriber()
        await wait(broker, mock_clock, 1000)
        if is_killed:
            broker.kill()

    async with running_broker(store_in=store_directory, idle_warning_s=50, idle_delete_s=100) as broker:
        with capture_logs() as logged:
            await let_time_pass(broker, mock_clock, 3)
        assert (warnings(logged), deleted(logged)) == ([], [])
        assert there_are(broker) == 1


# Races ---------------------------------------------------------------------------------------------------------------


async def test_a_message_that_is_being_stored_when_its_time_comes_is_not_lost(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """It has a receipt, so it reaches every durable subscriber; and one that is not empty is not deleted."""
    async with running_broker(store_in=store_directory, **DELETING) as broker:
        await absent_subscriber(broker)
        publisher = await broker.client()
        await wait(broker, mock_clock, 90)
        with broker.held_store():
            await publisher.publish(b"1", receipt="stored")
            await wait_all_tasks_blocked(0.001)
            for _ in range(8):
                mock_clock.jump(1.01)
                await wait_all_tasks_blocked(0.001)
        await publisher.expect_receipt("stored")
        await broker.settle()

        assert there_are(broker) == 1
        assert await (await broker.durable_subscriber(client_id="orders")).next_bodies(1) == [b"1"]


async def test_whoever_comes_while_it_is_being_deleted_gets_one_that_works(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **DELETING) as broker:
        await absent_subscriber(broker)
        subscriber = await broker.client(client_id="orders")
        await wait(broker, mock_clock, 90)
        with broker.held_store():
            for _ in range(9):
                mock_clock.jump(1.01)
                await wait_all_tasks_blocked(0.001)
            assert not broker.registry.durable
            await subscriber.send(
                "SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", receipt="subscribed"
            )
            await wait_all_tasks_blocked(0.001)
        await subscriber.expect_receipt("subscribed")
        await broker.store_messages(b"1")

        assert await subscriber.next_bodies(1) == [b"1"]
        await wait(broker, mock_clock, 1000)
        assert there_are(broker) == 1
