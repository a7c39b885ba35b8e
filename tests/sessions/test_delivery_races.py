"""What can happen to a message at the same moment: it is collected, expires, dies, is refused or acknowledged.

Each test says which guard it holds: with that taken out, or with a checkpoint in the middle of the step it names, it
fails.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.delivery import Registry
from tests.support.broker_under_test import A_LOOK_S, running_broker
from tests.support.passing_time import UpkeepRounds, let_time_pass
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.redelivery import letters_of, subscription_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from trio.testing import MockClock

    from stompbroker.storage import Batch
    from tests.support.broker_under_test import BrokerUnderTest, Client


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what a thread does; on the clock that the test moves, or on the real one."""
    while not is_so():
        await wait_all_tasks_blocked(A_LOOK_S)


def has_letter(batch: Batch) -> bool:
    return any(b"\ndead-letter-message-id:" in message.tail for run in batch.messages for message in run.messages)


@contextmanager
def stopped_at_letters(broker: BrokerUnderTest, *, is_written: bool) -> Iterator[threading.Event]:
    """Stop the store at a batch with a dead letter in it until the block ends: before that is written, or when it is
    and nobody has been told yet. What is given is set when the store has come there."""
    assert broker.parts.opened is not None
    store = broker.parts.opened.store
    commit, reached, may_go_on = store.commit, threading.Event(), threading.Event()

    def commit_and_stop(batch: Batch) -> None:
        if not has_letter(batch):
            commit(batch)
            return
        if is_written:
            commit(batch)
        reached.set()
        assert may_go_on.wait(HARD_TIMEOUT_S)
        if not is_written:
            commit(batch)

    store.commit = commit_and_stop  # type: ignore[method-assign]
    try:
        yield reached
    finally:
        may_go_on.set()
        store.commit = commit  # type: ignore[method-assign]


class HeldReading(NamedTuple):
    #: Set when a page was asked for.
    asked: threading.Event
    #: To be set when it may be read.
    may_read: threading.Event


@contextmanager
def held_reading(broker: BrokerUnderTest) -> Iterator[HeldReading]:
    """No page is read until it may be, or the block ends."""
    assert broker.parts.opened is not None
    store = broker.parts.opened.store
    read_page, asked, may_read = store.read_page, threading.Event(), threading.Event()

    def read_when_told(*args: Any, **options: Any) -> Any:
        asked.set()
        assert may_read.wait(HARD_TIMEOUT_S)
        return read_page(*args, **options)

    store.read_page = read_when_told  # type: ignore[method-assign]
    try:
        yield HeldReading(asked, may_read)
    finally:
        may_read.set()


async def with_message(broker: BrokerUnderTest, **headers: Any) -> tuple[Client, str]:
    """A durable subscriber that has been sent one message, and under which id."""
    subscriber = await broker.durable_subscriber(**headers)
    await broker.store_messages(b"1")
    return subscriber, (await subscriber.next_message()).headers["ack"]


# Joining while the collector runs ------------------------------------------------------------------------------------


async def test_subscribers_join_while_the_collector_goes_through_their_topics(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard: `Registry.collect` decides and removes in one step, and has a look at each topic when its turn comes."""
    monkeypatch.setattr("stompbroker.actors.garbage_collector.SLICE_S", -1.0)  # a checkpoint after each topic
    begun = trio.Event()
    collect = Registry.collect

    def collect_and_tell(self: Registry, *args: Any, **options: Any) -> bool:
        is_removed = collect(self, *args, **options)
        if is_removed:
            begun.set()
        return is_removed

    monkeypatch.setattr(Registry, "collect", collect_and_tell)
    async with running_broker(topic_idle_s=60) as broker:
        destinations = [f"/topic/a.{number}" for number in range(64)]
        publisher = await broker.client()
        for destination in destinations:
            await publisher.publish(b"old", destination=destination)
        clients = [await broker.client() for _ in destinations]

        async def join(client: Client, number: int) -> None:
            """About when the collector comes to that topic: it takes a turn for each, and a chunk a few to be read."""
            await begun.wait()
            for _ in range(number - number % 8):
                await trio.lowlevel.checkpoint()
            await client.send_raw(
                client.frame("SUBSCRIBE", id="0", destination=destinations[number])
                + client.frame("SEND", b"new", destination=destinations[number])
            )

        async with trio.open_nursery() as nursery:
            for number, client in enumerate(clients):
                nursery.start_soon(join, client, number)
        await trio.sleep(3)

        for client, destination in zip(clients, destinations, strict=True):
            message = await client.next_message()
            assert (message.body, message.headers["destination"]) == (b"new", destination)
            await client.expect_nothing()


@pytest.mark.parametrize("pattern", ["/topic/a", "/topic/>"])
async def test_a_durable_subscriber_joins_while_what_others_have_settled_is_deleted(
    pattern: str, store_directory: Path, mock_clock: MockClock
) -> None:
    """It gets what comes, and nothing of before, also after a kill. Guard: `_Proposal._create` and `find_positions`
    write where it stands, since what it is not to get may still be there."""
    async with running_broker(store_in=store_directory) as broker:
        first = await broker.durable_subscriber()
        await broker.store_messages(*[b"%d" % number for number in range(300)])
        _, *messages = await first.next_messages(300)
        await first.acknowledge(*messages)
        await broker.settle()
        joining = await broker.client(client_id="new")
        with broker.held_store():
            for _ in range(3):
                mock_clock.jump(1.01)
                await wait_all_tasks_blocked(A_LOOK_S)
            assert not broker.journal.is_idle
            await joining.send_raw(
                joining.frame(
                    "SUBSCRIBE", id="0", destination=pattern, durable_subscription_name="new", ack="client-individual"
                )
                + joining.frame("SEND", b"new", destination="/topic/a", receipt="stored")
            )
            await wait_all_tasks_blocked(A_LOOK_S)
        frames = {(frame := await joining.next_frame()).command: frame.body for _ in range(2)}
        assert frames == {"RECEIPT": b"", "MESSAGE": b"new"}
        await broker.settle()
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        again = await broker.durable_subscriber(pattern, name="new", client_id="new")
        assert [message.body for message in await broker.rest_for(again)] == [b"new"]
        rest = await broker.rest_for(await broker.durable_subscriber())
        assert [message.body for message in rest] == [b"0", b"new"]


# A NACK meets a collection -------------------------------------------------------------------------------------------


async def test_a_nack_meets_the_collection_of_its_neighbours(store_directory: Path, mock_clock: MockClock) -> None:
    """What was refused comes again, also after a kill, though all around it has gone with the same batch. Guard:
    `Cursor.unsettled` means what waits as well."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*[b"%d" % number for number in range(300)])
        messages = await subscriber.next_messages(300)
        answers = [subscriber.frame("ACK", id=message.headers["ack"]) for message in messages]
        for number in (0, 150):
            answers[number] = subscriber.frame("NACK", id=messages[number].headers["ack"], delay="10000")

        await subscriber.send_raw(b"".join(answers))
        await let_time_pass(broker, mock_clock, 4)

        assert broker.look('SELECT "offset" FROM messages ORDER BY 1') == [(0,), (150,)]
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.expect_silence(subscriber)
        await broker.settle()
        mock_clock.jump(11)
        assert [message.body for message in await broker.rest_for(subscriber)] == [b"0", b"150"]


# The distributor is about to redeliver -------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_ms", [4000, 4999, 5000, 5001, 5500])
async def test_a_redelivery_becomes_due_when_its_message_expires(
    delay_ms: int, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """It comes, or it is counted as expired, and what follows flows on. Guard: what is due is asked whether it still
    waits (`Timetable.take_due`, `answering.become_due`)."""
    subscriber = await broker.subscriber(ack="client-individual", prefetch_count="1")
    subscription = subscription_of(broker, subscriber)
    publisher = await broker.client()
    await publisher.publish(b"short", ttl="5000")
    message = await subscriber.next_message()

    await subscriber.send("NACK", id=message.headers["ack"], delay=str(delay_ms))
    await trio.sleep(6)

    broker.check_invariants()
    again = await subscriber.has_more()
    assert again == (delay_ms < 5000)
    assert subscription.counters.expired == (not again)
    if again:
        await subscriber.acknowledge(await subscriber.next_message())
    assert subscription.waiting == 0
    await publisher.publish(b"next")
    assert (await subscriber.next_message()).body == b"next"


async def test_a_subscription_is_evicted_when_another_of_its_messages_becomes_due(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """After the ERROR nothing more is sent to it. Guard: a consumer that has left delivers nothing (`is_open`, its
    backlog is cleared)."""
    subscriber = await broker.subscriber(
        ack="client-individual", max_attempts="2", when_used_up="evict", redelivery_delay="0", redelivery_jitter="0"
    )
    subscription = subscription_of(broker, subscriber)
    publisher = await broker.client()
    await publisher.publish(b"1")
    await subscriber.send("NACK", id=(await subscriber.next_message()).headers["ack"])
    again = await subscriber.next_message()
    await publisher.publish(b"2")
    second = await subscriber.next_message()
    delivered = subscription.counters.delivered

    await subscriber.send_raw(
        subscriber.frame("NACK", id=second.headers["ack"], delay="0")
        + subscriber.frame("NACK", id=again.headers["ack"])
    )

    await subscriber.expect_error("subscription evicted")
    await wait_all_tasks_blocked()
    assert subscription.counters.delivered == delivered
    assert not broker.registry.subscriptions
    await trio.sleep(2)
    assert broker.registry.topics["a"].log.message_count == 0


async def test_an_absent_subscriber_is_deleted_for_being_idle_when_its_redelivery_becomes_due(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """Nothing is left of either. Guard: `BatchWriter` removes what belongs to a subscription with it."""
    settings = {"idle_warning_s": 0, "idle_delete_s": 100, "idle_delete_unsettled": True, "topic_idle_s": 1000}
    async with running_broker(store_in=store_directory, **settings) as broker:
        subscriber, ack = await with_message(broker)
        await subscriber.send("NACK", id=ack, delay="101000")
        await subscriber.sync()
        await subscriber.vanish()
        await broker.settle()

        mock_clock.jump(102)
        await let_time_pass(broker, mock_clock, 5)

        for table in ("subscriptions", "cursors", "redeliveries", "messages"):
            assert broker.count(table) == 0, table
        assert broker.registry.redeliveries.count == 0


async def test_an_ack_comes_when_the_redelivery_of_its_message_becomes_due(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Settled whichever is first: it may come once more, and then not again. Guard: what is due is asked whether it
    still waits (`Timetable.take_due`, `answering.become_due`)."""
    for early_s in (-0.001, 0.0, 0.001):
        subscriber = await broker.subscriber(ack="client-individual")
        subscription = subscription_of(broker, subscriber)
        await (await broker.client()).publish(b"1")
        message = await subscriber.next_message()
        await subscriber.send("NACK", id=message.headers["ack"], delay="5000")
        await trio.sleep(5 + early_s)

        await subscriber.send("ACK", id=message.headers["ack"])
        await trio.sleep(60)

        broker.check_invariants()
        counters = subscription.counters
        assert (counters.acked, subscription.waiting) == (1, 0)
        assert counters.delivered <= 2
        await subscriber.vanish()


async def test_an_ack_of_an_earlier_delivery_is_late_although_its_message_is_in_flight_again(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    await (await broker.client()).publish(b"1")
    message = await subscriber.next_message()
    await subscriber.send("NACK", id=message.headers["ack"], delay="0")
    await subscriber.next_message()

    await subscriber.acknowledge(message)

    counters = subscription_of(broker, subscriber).counters
    assert (counters.acked, counters.late) == (1, 1)


# Deadlines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early_s", [-0.001, 0.0, 0.001])
async def test_a_deadline_passes_in_the_moment_of_the_ack(
    early_s: float, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """The message is settled once, overdue or not, and its credit is given back once. Guard: only what is in flight is
    set aside (`Timetable.take_due`, `Consumer._in_flight_between`, `Cursor.set_aside`)."""
    subscriber = await broker.subscriber(
        ack="client-individual", ack_deadline="5000", redelivery_delay="60000", prefetch_count="1"
    )
    subscription = subscription_of(broker, subscriber)
    publisher = await broker.client()
    await publisher.publish(b"1")
    message = await subscriber.next_message()
    await trio.sleep(5 + early_s)

    await subscriber.send("ACK", id=message.headers["ack"])
    await trio.sleep(1)

    broker.check_invariants()
    counters = subscription.counters
    assert (counters.acked, counters.delivered, subscription.waiting) == (1, 1, 0)
    assert counters.overdue == counters.late <= 1
    await publisher.publish(b"2", b"3")
    assert (await subscriber.next_message()).body == b"2"
    await subscriber.expect_nothing()


async def test_a_deadline_passes_in_the_moment_of_the_nack(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """One failure, whichever is first. Guard: only what is in flight is set aside (`Cursor.set_aside`)."""
    subscriber = await broker.subscriber(ack="client-individual", ack_deadline="5000", redelivery_delay="60000")
    subscription = subscription_of(broker, subscriber)
    await (await broker.client()).publish(b"1")
    message = await subscriber.next_message()
    await trio.sleep(5)

    await subscriber.send("NACK", id=message.headers["ack"])
    await trio.sleep(1)

    broker.check_invariants()
    assert subscription.waiting == 1
    assert subscription.counters.nacked + subscription.counters.overdue == 1
    await trio.sleep(60)
    assert (await subscriber.next_message()).headers["delivery-count"] == "2"


# A message dies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_written", [False, True], ids=["before it is written", "before anybody is told"])
async def test_a_late_ack_and_a_kill_meet_the_death_of_a_message(is_written: bool, store_directory: Path) -> None:
    """Afterwards there is one letter and no message, or an acknowledged message and no letter, or a message that is
    still to die: never a letter of something that comes again. Guard: the effect settles it in the batch that
    has the letter."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber, ack = await with_message(broker)
        with stopped_at_letters(broker, is_written=is_written) as reached:
            await subscriber.send("NACK", id=ack, requeue="false")
            await until(reached.is_set)
            await subscriber.send("ACK", id=ack)
            await wait_all_tasks_blocked(A_LOOK_S)
            counters = subscription_of(broker, subscriber).counters
            assert (counters.acked, counters.dead) == (0, 0)  # the letter has it, and the ACK waits for its fate
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        letters = [letter.body for letter in await letters_of(broker)]
        rest = await broker.rest_for(await broker.durable_subscriber())
        assert (letters, [message.body for message in rest]) == (([b"1"], []) if is_written else ([], [b"1"]))


@pytest.mark.parametrize("is_written", [False, True], ids=["before it is written", "before anybody is told"])
async def test_a_kill_meets_the_death_of_a_message_whose_refusal_is_stored(
    is_written: bool, store_directory: Path, mock_clock: MockClock
) -> None:
    """It dies once, in this life or the next, and without anybody being there. Guards: the effect settles it and
    takes its failure away in the batch that has the letter; `is_final` is stored."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber, ack = await with_message(broker)
        with stopped_at_letters(broker, is_written=is_written) as reached:
            # What a transaction refuses is written before it counts; the letter comes with the batch after.
            await subscriber.send("BEGIN", transaction="t")
            await subscriber.send("NACK", id=ack, requeue="false", transaction="t")
            await subscriber.send("COMMIT", transaction="t", receipt="committed")
            await subscriber.expect_receipt("committed")
            await until(reached.is_set)
            assert broker.count("redeliveries") == (0 if is_written else 1)
            broker.kill()

    for _ in range(2):
        async with running_broker(store_in=store_directory) as broker:
            await let_time_pass(broker, mock_clock, 3)
            assert [letter.body for letter in await letters_of(broker)] == [b"1"]
            assert broker.count("redeliveries") == 0
            await broker.expect_silence(await broker.durable_subscriber())
            broker.kill()


@pytest.mark.parametrize("gathers", [True, False], ids=["in one batch", "behind it"])
async def test_a_subscription_is_deleted_while_a_message_of_it_dies(gathers: bool, store_directory: Path) -> None:
    """The letter stays, once; nothing else does. Guard: `_Proposal.finish` writes nothing about what the same batch
    removes."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber, ack = await with_message(broker)
        nack = subscriber.frame("NACK", id=ack, requeue="false")
        delete = subscriber.frame("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="deleted")
        other = await broker.durable_subscriber("/topic/b", client_id="other")
        if gathers:
            with broker.held_store():
                await other.publish(b"stuck", destination="/topic/b")
                await wait_all_tasks_blocked(A_LOOK_S)
                await subscriber.send_raw(nack)
                await wait_all_tasks_blocked(A_LOOK_S)
                await subscriber.send_raw(delete)
                await wait_all_tasks_blocked(A_LOOK_S)
        else:
            with stopped_at_letters(broker, is_written=False) as reached:
                await subscriber.send_raw(nack)
                await until(reached.is_set)
                await subscriber.send_raw(delete)
                await wait_all_tasks_blocked(A_LOOK_S)
        await subscriber.expect_receipt("deleted")
        await broker.settle()
        assert [letter.body for letter in await letters_of(broker)] == [b"1"]
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert [letter.body for letter in await letters_of(broker)] == [b"1"]
        assert [each.key for each in broker.registry.durable.values()] == ["other/orders"]
        assert (broker.count("cursors"), broker.count("redeliveries")) == (1, 0)


@pytest.mark.parametrize("ending", ["UNSUBSCRIBE", "loss"])
async def test_a_transient_subscription_ends_while_a_message_of_it_dies(ending: str, store_directory: Path) -> None:
    """One letter. Guard: what is on its way to the dead letters is pending, and not sent there once more."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.subscriber(ack="client-individual")
        await broker.store_messages(b"1")
        message = await subscriber.next_message()
        with stopped_at_letters(broker, is_written=False) as reached:
            await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
            await until(reached.is_set)
            if ending == "UNSUBSCRIBE":
                await subscriber.send("UNSUBSCRIBE", id="0")
                await wait_all_tasks_blocked(A_LOOK_S)
            else:
                await subscriber.vanish()
        await broker.settle()

        assert [letter.body for letter in await letters_of(broker)] == [b"1"]


@pytest.mark.parametrize("ending", ["UNSUBSCRIBE", "loss"])
async def test_a_transient_subscription_ends_in_the_chunk_in_which_it_refuses_a_message_for_good(
    ending: str, store_directory: Path
) -> None:
    """The refusal came first, so there is a letter, once."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.subscriber(ack="client-individual")
        await broker.store_messages(b"1")
        nack = subscriber.frame("NACK", id=(await subscriber.next_message()).headers["ack"], requeue="false")

        if ending == "UNSUBSCRIBE":
            await subscriber.send_raw(nack + subscriber.frame("UNSUBSCRIBE", id="0"))
        else:
            await subscriber.send_raw(nack)
            await subscriber.stream.aclose()
        await broker.settle()

        assert [letter.body for letter in await letters_of(broker)] == [b"1"]


async def leave_dying_message(store_directory: Path, clock: MockClock) -> None:
    """A broker was killed when a message had failed for the last time, before there was a letter; the next one has to
    read it back first."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber, ack = await with_message(broker, max_attempts="2", redelivery_delay="1000")
        await subscriber.send("NACK", id=ack)
        await subscriber.sync()
        clock.jump(1.1)
        again = await subscriber.next_message()
        await subscriber.send("BEGIN", transaction="t")
        await subscriber.send("NACK", id=again.headers["ack"], transaction="t")
        with stopped_at_letters(broker, is_written=False):
            await subscriber.send("COMMIT", transaction="t", receipt="committed")
            await subscriber.expect_receipt("committed")
            broker.kill()


async def test_a_subscription_is_deleted_while_the_message_that_dies_is_read_back(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """No letter is made for a subscription that is gone by then. Guard: what is due for a subscription that is gone
    means nothing (`Reading.is_waiting`)."""
    await leave_dying_message(store_directory, mock_clock)
    async with running_broker(store_in=store_directory) as broker:
        with held_reading(broker) as reading:
            mock_clock.jump(2)
            await until(reading.asked.is_set)
            await broker.delete_subscription("billing/orders")
        await broker.settle()
        mock_clock.jump(1)
        await broker.settle()

        assert "DLQ.a" not in broker.registry.topics
        assert broker.count("subscriptions") == 0


async def test_a_message_dies_while_its_subscription_is_being_deleted(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """There is one letter, and nothing is written about a subscription that is gone by then. Guard: rows of
    subscriptions that are removed in the same batch are left out."""
    await leave_dying_message(store_directory, mock_clock)
    async with running_broker(store_in=store_directory) as broker, trio.open_nursery() as nursery:
        with held_reading(broker) as reading:
            mock_clock.jump(2)
            await until(reading.asked.is_set)
            await broker.journal.wait_idle()
            with broker.held_store():
                nursery.start_soon(broker.delete_subscription, "billing/orders")
                await until(lambda: not broker.registry.durable)
                reading.may_read.set()
                await until(lambda: "DLQ.a" in broker.registry.topics)
        await broker.settle()
        assert [letter.body for letter in await letters_of(broker)] == [b"1"]

    async with running_broker(store_in=store_directory) as broker:
        assert [letter.body for letter in await letters_of(broker)] == [b"1"]
        for table in ("subscriptions", "cursors", "redeliveries"):
            assert broker.count(table) == 0, table


async def test_a_message_expires_while_it_dies(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One letter, counted once, and the row is gone. Guard: what is pending does not expire
    (`Reading.give_up`)."""
    upkeep = UpkeepRounds(monkeypatch)
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        subscription = subscription_of(broker, subscriber)
        await broker.store_messages(b"1", ttl="3000")
        message = await subscriber.next_message()
        await upkeep.wait_until(broker, 1)
        with stopped_at_letters(broker, is_written=False) as reached:
            await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
            await until(reached.is_set)
            mock_clock.jump(5.1)
            await wait_all_tasks_blocked(A_LOOK_S)
        await upkeep.run_one(broker, mock_clock)

        assert [letter.body for letter in await letters_of(broker)] == [b"1"]
        assert subscription.counters.dead + subscription.counters.expired == 1
        assert subscription.waiting == 0
        await let_time_pass(broker, mock_clock, 3)
        assert broker.count("messages") == 1
        broker.check_invariants()


# Redriving -----------------------------------------------------------------------------------------------------------


async def with_letter(broker: BrokerUnderTest) -> Client:
    subscriber, ack = await with_message(broker)
    await subscriber.send("NACK", id=ack, requeue="false")
    await subscriber.sync()
    await broker.settle()
    return subscriber


async def letters_left(broker: BrokerUnderTest) -> int:
    """How many lie there, without anybody subscribing."""
    topics = (await broker.parts.control.call("dead_letter_topics", {}))["topics"]
    return sum(int(topic["letters"]) for topic in topics)


async def test_a_subscription_is_deleted_while_its_letters_are_looked_for(store_directory: Path) -> None:
    """The letter stays where it is. Guard: `DeadLetterMethods._redrive` asks who is there after the last await before
    it publishes."""
    async with running_broker(store_in=store_directory) as broker:
        await (await with_letter(broker)).vanish()
        await broker.settle()
        answers: list[dict[str, Any]] = []

        async def redrive() -> None:
            answers.append(await broker.parts.control.call("redrive_dead_letters", {"topic": "a"}))

        async with trio.open_nursery() as nursery:
            with held_reading(broker) as reading:
                nursery.start_soon(redrive)
                await until(reading.asked.is_set)
                await broker.delete_subscription("billing/orders")

        ((skipped,),) = [answer["skipped"] for answer in answers]
        assert "is gone" in skipped["why"]
        assert await letters_left(broker) == 1


async def test_a_letter_is_redriven_while_its_subscription_is_being_deleted(store_directory: Path) -> None:
    """From the moment it is asked for nobody can subscribe to it, and nothing is sent to it. Guard: `removal` forgets
    it at once, before it is written."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await with_letter(broker)
        with broker.held_store():
            await subscriber.send("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="deleted")
            await wait_all_tasks_blocked(A_LOOK_S)
            answer = await broker.parts.control.call("redrive_dead_letters", {"topic": "a"})
        await subscriber.expect_receipt("deleted")

        assert answer["redriven"] == 0
        assert await letters_left(broker) == 1


async def test_a_subscription_is_deleted_while_its_letter_is_on_its_way_to_it(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """It was redriven first, so it goes with everything that the subscription had not settled; and nothing is left that
    nobody will ever read. Guard: what is for one subscription alone is stepped over by all others."""
    async with running_broker(store_in=store_directory, topic_idle_s=1) as broker:
        subscriber = await with_letter(broker)
        other = await broker.durable_subscriber("/topic/>", name="other", client_id="other")
        answers: list[dict[str, Any]] = []

        async def redrive() -> None:
            answers.append(await broker.parts.control.call("redrive_dead_letters", {"topic": "a"}))

        async with trio.open_nursery() as nursery:
            with broker.held_store():
                nursery.start_soon(redrive)
                await until(lambda: broker.journal.statistics().backlog_units)
                await subscriber.send("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="deleted")
                await wait_all_tasks_blocked(A_LOOK_S)
        while (frame := await subscriber.next_frame()).command != "RECEIPT":
            assert frame.body == b"1"

        assert [answer["redriven"] for answer in answers] == [1]
        await broker.expect_silence(other)
        await let_time_pass(broker, mock_clock, 6)
        assert broker.count("messages") == 0
        assert "a" not in broker.registry.topics


# UNSUBSCRIBE ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["ACK", "NACK"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_an_answer_meets_the_deletion_of_its_durable_subscription_in_the_same_chunk(
    answer: str, is_first: bool, store_directory: Path
) -> None:
    """Both are done, in any order, and nothing is left of it. Guard: answers of a subscription that is gone change
    nothing (`Consumer.settle`, `Consumer.set_aside`), and nothing is written about it (`add_unsaved`)."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber, ack = await with_message(broker)
        answered = subscriber.frame(answer, id=ack, receipt="answered")
        deleted = subscriber.frame("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="deleted")

        await subscriber.send_raw(answered + deleted if is_first else deleted + answered)

        for receipt in ("answered", "deleted") if is_first else ("deleted", "answered"):
            await subscriber.expect_receipt(receipt)
        await broker.settle()
        broker.check_invariants()
        for table in ("subscriptions", "cursors", "redeliveries"):
            assert broker.count(table) == 0, table
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await broker.expect_silence(await broker.durable_subscriber())


async def test_a_nack_meets_an_unsubscribe_in_the_same_chunk(store_directory: Path, mock_clock: MockClock) -> None:
    """The NACK came first, so its message waits for its time, also for whoever comes next; the other one does not.
    Guard: `Cursor.release_in_flight` frees what is in flight, and nothing else."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"refused", b"unanswered")
        refused, _ = await subscriber.next_messages(2)

        await subscriber.send_raw(
            subscriber.frame("NACK", id=refused.headers["ack"], delay="5000", reason="no paper")
            + subscriber.frame("UNSUBSCRIBE", id="0", receipt="left")
        )
        await subscriber.expect_receipt("left")
        again = await broker.durable_subscriber()
        assert [message.body for message in await broker.rest_for(again)] == [b"unanswered"]
        mock_clock.jump(5.1)

        message = await again.next_message()
        assert (message.headers["delivery-count"], message.headers["redelivery-reason"]) == ("2", "no paper")
