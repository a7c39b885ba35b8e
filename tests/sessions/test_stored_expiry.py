"""What has expired in the store goes, though nobody is there to step over it; each subscription counts its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from stompbroker.delivery import withdrawing
from stompbroker.storage import StoreFailing
from tests.ledger.recorded import recorded
from tests.support.broker_under_test import running_broker
from tests.support.messages import make_message
from tests.support.passing_time import UpkeepRounds, let_time_pass, let_wall_clock_go_on

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from trio.testing import MockClock

    from stompbroker.delivery import Counters
    from tests.support.broker_under_test import BrokerUnderTest, Client


A_SECOND = {"ttl": "1000"}
AN_HOUR = {"ttl": "3600000"}


@pytest.fixture
def upkeep(monkeypatch: pytest.MonkeyPatch) -> UpkeepRounds:
    return UpkeepRounds(monkeypatch)


async def absent_subscriber(broker: BrokerUnderTest, name: str = "orders", **headers: Any) -> None:
    """A durable subscription that nobody is attached to."""
    await (await broker.durable_subscriber(name=name, client_id=name, **headers)).vanish()


async def returning(broker: BrokerUnderTest, name: str = "orders") -> Client:
    return await broker.durable_subscriber(name=name, client_id=name)


def counters(broker: BrokerUnderTest, name: str = "orders") -> Counters:
    (found,) = [each for each in broker.registry.durable.values() if each.name == name or each.key.endswith(f"/{name}")]
    return found.counters


def outcomes(broker: BrokerUnderTest) -> list[str]:
    """What the ledger has of all deliveries, in the order in which they were settled."""
    return [row["outcome"] for row in recorded(broker, "a")]


# For those who are absent --------------------------------------------------------------------------------------------


async def test_what_expires_for_an_absent_subscriber_leaves_the_store_and_is_counted(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"1", b"2", **A_SECOND)
        assert broker.count("messages") == 2

        await upkeep.run_one(broker, mock_clock)

        assert broker.count("messages") == 0
        assert counters(broker).expired == 2
        await broker.expect_silence(await returning(broker))


async def test_what_has_not_expired_stays_in_its_order(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker)
        for number in range(12):
            await broker.store_messages(b"%d" % number, **({}, A_SECOND, AN_HOUR, A_SECOND)[number % 4])

        await upkeep.run_one(broker, mock_clock)

        assert broker.count("messages") == 6
        assert counters(broker).expired == 6
        rest = await broker.rest_for(await returning(broker))
        assert [message.body for message in rest] == [b"0", b"2", b"4", b"6", b"8", b"10"]


async def test_each_subscription_counts_what_it_did_not_get(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        for name in ("one", "two"):
            await absent_subscriber(broker, name)
        attached = await broker.durable_subscriber(name="three", client_id="three")
        await broker.store_messages(b"1", b"2", **A_SECOND)
        await attached.acknowledge(*await attached.next_messages(2))
        quick = await returning(broker, "two")
        first, _ = await quick.next_messages(2)
        await quick.acknowledge(first)
        await quick.vanish()

        await upkeep.run_one(broker, mock_clock)

        assert [counters(broker, name).expired for name in ("one", "two", "three")] == [2, 1, 0]


async def test_it_is_counted_once_however_often_upkeep_comes_by(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    """While somebody else has it in flight its row stays, and is found in every round."""
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker, "absent")
        slow = await broker.durable_subscriber()
        await broker.store_messages(b"1", **A_SECOND)
        message = await slow.next_message()
        for _ in range(3):
            await upkeep.run_one(broker, mock_clock)
        assert broker.count("messages") == 1

        await slow.acknowledge(message)
        await let_time_pass(broker, mock_clock, 3)

        assert broker.count("messages") == 0
        assert (counters(broker, "absent").expired, counters(broker).expired) == (1, 0)


async def test_more_than_one_look_takes_go_in_one_round(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompbroker.actors.upkeep.EXPIRED_PER_LOOK", 10)
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(*[b"x"] * 35, **A_SECOND)

        await upkeep.run_one(broker, mock_clock)

        assert broker.count("messages") == 0
        assert counters(broker).expired == 35


async def test_many_that_stay_in_flight_do_not_hide_those_behind_them(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompbroker.actors.upkeep.EXPIRED_PER_LOOK", 10)
    async with running_broker(store_in=store_directory) as broker:
        slow = await broker.durable_subscriber(prefetch_count="25")
        await broker.store_messages(*[b"x"] * 35, **A_SECOND)
        await slow.next_messages(25)

        await upkeep.run_one(broker, mock_clock)

        assert broker.count("messages") == 25
        assert counters(broker).expired == 10


# In flight -----------------------------------------------------------------------------------------------------------


async def test_what_is_in_flight_stays_until_it_is_acknowledged(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", **A_SECOND)
        message = await subscriber.next_message()
        await upkeep.run_one(broker, mock_clock)
        assert broker.count("messages") == 1

        await subscriber.acknowledge(message)
        await let_time_pass(broker, mock_clock, 3)

        assert broker.count("messages") == 0
        assert (counters(broker).acked, counters(broker).expired, counters(broker).late) == (1, 0, 0)


async def test_what_is_refused_after_its_time_does_not_come_again(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", **A_SECOND)
        message = await subscriber.next_message()
        await upkeep.run_one(broker, mock_clock)

        await subscriber.send("NACK", id=message.headers["ack"], delay="60000")
        await broker.settle()
        assert broker.count("redeliveries") == 1
        await upkeep.run_one(broker, mock_clock)

        assert (broker.count("messages"), broker.count("redeliveries")) == (0, 0)
        assert counters(broker).expired == 1
        mock_clock.jump(60)
        await broker.expect_silence(subscriber)


async def test_what_was_in_flight_when_its_subscriber_left_expires(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", b"2", **A_SECOND)
        await subscriber.next_messages(2)
        await subscriber.vanish()

        await upkeep.run_one(broker, mock_clock)

        assert (broker.count("messages"), broker.count("redeliveries")) == (0, 0)
        assert counters(broker).expired == 2


async def test_what_waits_for_its_redelivery_expires(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", **A_SECOND)
        await subscriber.send("NACK", id=(await subscriber.next_message()).headers["ack"], delay="3000")

        await upkeep.run_one(broker, mock_clock)

        assert (broker.count("messages"), broker.count("redeliveries")) == (0, 0)
        assert counters(broker).expired == 1
        await broker.expect_silence(subscriber)
        (subscription,) = broker.registry.durable.values()
        assert subscription.waiting == 0


# How long it lives ---------------------------------------------------------------------------------------------------


async def test_the_lifetime_of_a_topic_counts_for_whoever_says_nothing(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    tables = [{"pattern": "a", "message_ttl_ms": 2000}]
    async with running_broker(store_in=store_directory, message_ttl_ms=3_600_000, topics=tables) as broker:
        await absent_subscriber(broker, destination="/topic/>")
        await broker.store_messages(b"short")
        await broker.store_messages(b"long", **AN_HOUR)
        await broker.store_messages(b"for ever", ttl="0")
        await broker.store_messages(b"elsewhere", destination="/topic/b")

        await upkeep.run_one(broker, mock_clock)

        assert counters(broker).expired == 1
        again = await broker.durable_subscriber("/topic/>", client_id="orders")
        assert {message.body for message in await broker.rest_for(again)} == {b"long", b"for ever", b"elsewhere"}


async def test_a_topic_whose_messages_have_all_expired_is_forgotten(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory, topic_idle_s=2) as broker:
        await absent_subscriber(broker, destination="/topic/>")
        await broker.store_messages(b"1", **A_SECOND)

        await upkeep.run_one(broker, mock_clock)
        await let_time_pass(broker, mock_clock, 5)

        assert not broker.registry.topics
        assert (broker.count("topics"), broker.count("cursors")) == (0, 0)


# Over a restart and failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [True, False])
async def test_what_expires_while_the_broker_is_down_is_not_delivered(
    is_killed: bool,
    store_directory: Path,
    mock_clock: MockClock,
    upkeep: UpkeepRounds,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_wall_clock_go_on(mock_clock, monkeypatch)
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"short", **A_SECOND)
        await broker.store_messages(b"long", **AN_HOUR)
        if is_killed:
            broker.kill()
    mock_clock.jump(2)

    before = upkeep.finished
    async with running_broker(store_in=store_directory) as broker:
        await upkeep.wait_until(broker, before + 1)
        assert broker.count("messages") == 1
        assert counters(broker).expired == 1
        assert [message.body for message in await broker.rest_for(await returning(broker))] == [b"long"]


async def test_what_was_deleted_does_not_come_back_after_a_kill(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"short", **A_SECOND)
        await broker.store_messages(b"long")
        await upkeep.run_one(broker, mock_clock)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert [message.body for message in await broker.rest_for(await returning(broker))] == [b"long"]


async def test_what_expires_between_its_commit_and_its_completion_is_left_to_the_next_round(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """The store has it, and its topic's log has not."""
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"before")
        topic = broker.registry.topics["a"]

        assert not withdrawing.expire(
            topic, topic.log.end_offset, make_message(b"soon", number=2), broker.clock.now_ns()
        )

        (reading,) = topic.readings.values()
        assert (reading.cursor.settled_ranges, reading.subscription.counters.expired) == ([], 0)
        broker.check_invariants()


async def test_a_store_that_cannot_be_looked_into_is_asked_again(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker)
        await broker.store_messages(b"1", **A_SECOND)
        broker.kill()

    before = upkeep.finished
    # The log is empty now, so that only upkeep can know of it.
    async with running_broker(store_in=store_directory) as broker:
        assert broker.parts.opened is not None
        store = broker.parts.opened.store
        expired, failures = store.surveys.expired, 0

        def fail_once(*args: Any) -> Any:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise StoreFailing("not now")
            return expired(*args)

        await upkeep.wait_until(broker, before + 1)
        store.surveys.expired = fail_once  # type: ignore[assignment, method-assign]
        await upkeep.run_one(broker, mock_clock)
        assert failures == 1
        assert broker.count("messages") == 1

        await upkeep.run_one(broker, mock_clock)

        assert broker.count("messages") == 0


# Who counts what -----------------------------------------------------------------------------------------------------


async def test_who_does_not_want_its_own_messages_does_not_count_them(
    store_directory: Path, mock_clock: MockClock, upkeep: UpkeepRounds
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await absent_subscriber(broker, no_local="true")
        publisher = await broker.client(client_id="orders")
        await publisher.publish(b"own", **A_SECOND)
        await publisher.sync()
        await broker.store_messages(b"foreign", **A_SECOND)

        await upkeep.run_one(broker, mock_clock)

        assert broker.count("messages") == 0
        assert counters(broker).expired == 1
        assert outcomes(broker) == ["expired"]


async def test_of_two_ends_the_earlier_counts_for_every_message_with_that_header_block(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Which of the two that is depends on when the message comes."""
    subscriber = await broker.subscriber(ack="client-individual", prefetch_count="1")
    publisher = await broker.client()
    at_ms = broker.clock.now_ns() // 1_000_000 + 15_000
    headers = {"ttl": "10000", "expires": str(at_ms)}
    for body in (b"1", b"2", b"3"):
        await publisher.publish(body, **headers)
        await publisher.sync()
    await trio.sleep(14)

    await publisher.publish(b"4", **headers)
    await publisher.sync()
    await trio.sleep(3)

    await subscriber.acknowledge(await subscriber.next_message())
    await subscriber.expect_nothing()
