"""What publishers are told of how their messages ended (`outcome-to`): by everybody who keeps messages, once each."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from tests.journal.journal_under_test import query
from tests.journal.poison import refuse_outcomes
from tests.ledger.recorded import recorded
from tests.support.broker_under_test import running_broker
from tests.support.passing_time import UpkeepRounds, let_wall_clock_go_on
from tests.support.redelivery import letters_of, refuse
from tests.support.users import PASSWORD, add_user
from tests.support.work import operations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client

    Start = Callable[..., AbstractAsyncContextManager[BrokerUnderTest]]

JOBS = "/queue/jobs"
TOLD = "/queue/told"


@pytest.fixture(params=[True, False], ids=["stored", "in-memory"])
def start(request: pytest.FixtureRequest, store_directory: Path) -> Start:
    """Starts a broker with or without a store."""

    @asynccontextmanager
    async def started(**settings: Any) -> AsyncIterator[BrokerUnderTest]:
        where = {"store_in": store_directory} if request.param else {}
        async with running_broker(**where, **settings) as broker:
            yield broker

    return started


async def ask(client: Client, *bodies: bytes, destination: str = JOBS, **headers: str) -> None:
    """Publish what asks, until it is done."""
    await client.publish(*bodies, destination=destination, **{"outcome_to": TOLD} | headers)
    await client.sync()


async def told(broker: BrokerUnderTest) -> list[dict[str, str]]:
    """What lies in the queue of outcomes of a broker with a store, as a consumer gets it; it is taken out."""
    reader = await broker.subscriber(TOLD, ack="client-individual")
    messages = await broker.rest_for(reader)
    if messages:
        await reader.acknowledge(*messages)
    await reader.vanish()
    return [said(message) for message in messages]


def said(message: Frame) -> dict[str, str]:
    """The headers of an outcome, without those that every delivery has."""
    assert message.body == b""
    usual = ("ack", "content-length", "delivery-count", "destination", "message-id", "redelivered", "subscription")
    return {name: value for name, value in message.headers.items() if name not in usual}


def ends(outcomes: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    return sorted((each["outcome-subscription"], each["outcome"], each["attempts"]) for each in outcomes)


async def lost(broker: BrokerUnderTest, count: int) -> None:
    """So many outcomes could not be told."""
    await wait_all_tasks_blocked()
    assert broker.parts.totals.outcomes_lost == count


# What is told --------------------------------------------------------------------------------------------------------


async def test_an_acknowledged_message_is_told_with_all_about_it(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.subscriber(TOLD)
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(publisher, b"work", correlation_id="4711:a\nb", order="7")
        message = await worker.next_message()
        assert "outcome-to" not in message.headers

        await worker.acknowledge(message)

        outcome = await publisher.next_message()
        assert outcome.headers["destination"] == TOLD
        assert said(outcome) == {
            "outcome": "acked",
            "outcome-of": message.headers["message-id"],
            "outcome-destination": JOBS,
            "outcome-subscription": JOBS,
            "attempts": "1",
            "correlation-id": "4711:a\nb",
        }
        await publisher.sync()
        assert (broker.parts.totals.outcomes_told, broker.parts.totals.outcomes_lost) == (1, 0)


async def test_a_message_that_does_not_ask_tells_nothing(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.subscriber(TOLD)
        worker = await broker.subscriber(JOBS, ack="client")
        await ask(publisher, b"asks")
        await publisher.publish(b"does not", destination=JOBS)
        await ask(publisher, b"asks")
        messages = await worker.next_messages(3)

        await worker.acknowledge(messages[-1])

        asking = [messages[0], messages[2]]
        outcomes = await publisher.next_messages(2)
        assert [each.headers["outcome-of"] for each in outcomes] == [each.headers["message-id"] for each in asking]
        await publisher.sync()


@pytest.mark.parametrize("ledger", [True, False])
async def test_each_durable_subscription_and_group_tells_once_and_others_tell_nothing(
    store_directory: Path, ledger: bool
) -> None:
    async with running_broker(store_in=store_directory, ledger=ledger) as broker:
        acking = await broker.durable_subscriber()
        auto = await broker.durable_subscriber(client_id="audit", ack="auto")
        members = [await broker.subscriber("/topic/a", group="g", ack="auto", auto_delete="true") for _ in range(2)]
        transient = await broker.subscriber("/topic/a", ack="client-individual")
        await ask(await broker.client(), b"1", b"2", destination="/topic/a")

        await acking.acknowledge(*await acking.next_messages(2))
        await transient.acknowledge(*await transient.next_messages(2))
        await auto.next_messages(2)
        for member in members:
            await member.next_message()

        (group,) = [each.key for each in broker.registry.subscriptions if each.is_shared and not each.is_queue]
        ended = [("audit/orders", "sent", "1"), ("billing/orders", "acked", "1"), (group, "sent", "1")]
        assert ends(await told(broker)) == sorted(2 * ended)


async def test_every_message_of_a_cumulative_ack_over_several_topics_is_told(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber("/topic/>", ack="client")
        publisher = await broker.client()
        for topic in ("a", "b", "a"):
            await ask(publisher, b"1", b"2", destination=f"/topic/{topic}")
            await publisher.publish(b"does not ask", destination=f"/topic/{topic}")
        *_, last = await subscriber.next_messages(9)

        await subscriber.acknowledge(last)

        found = await told(broker)
        assert [each["outcome"] for each in found] == ["acked"] * 6
        assert len({each["outcome-of"] for each in found}) == 6
        assert {each["outcome-destination"] for each in found} == {"/topic/a", "/topic/b"}


async def test_an_ack_in_a_transaction_tells_when_it_is_committed(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.subscriber(TOLD)
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(publisher, b"1", b"2")
        for message in await worker.next_messages(2):
            await worker.send("BEGIN", transaction="t")
            await worker.send("ACK", id=message.headers["ack"], transaction="t")
            await worker.send("SEND", b"result", destination="/queue/results", transaction="t", outcome_to=TOLD)
            await worker.sync()
            await publisher.sync()

            await worker.send("COMMIT", transaction="t", receipt="committed")

            await worker.expect_receipt("committed")
            outcome = await publisher.next_message()
            assert outcome.headers["outcome-of"] == message.headers["message-id"]
        results = await broker.subscriber("/queue/results", ack="client-individual")
        await results.acknowledge(*await results.next_messages(2))
        assert ends([said(each) for each in await publisher.next_messages(2)]) == 2 * [("/queue/results", "acked", "1")]


@pytest.mark.parametrize("policy", ["dead-letter", "discard"])
async def test_a_message_that_is_given_up_is_told_with_its_last_reason(start: Start, policy: str) -> None:
    async with start(max_attempts=2, redelivery_first_delay_ms=0, when_used_up=policy) as broker:
        publisher = await broker.subscriber(TOLD)
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(publisher, b"1", correlation_id="c")
        for reason in ("no paper", "no ink"):
            await worker.send("NACK", id=(await worker.next_message()).headers["ack"], reason=reason)

        outcome = said(await publisher.next_message())

        assert outcome["outcome"] == {"dead-letter": "dead", "discard": "discarded"}[policy]
        assert (outcome["attempts"], outcome["reason"], outcome["correlation-id"]) == ("2", "no ink", "c")
        await publisher.sync()


async def test_a_late_ack_of_a_refused_message_tells_once(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(await broker.client(), b"1")
        message = await worker.next_message()
        await refuse(broker, worker, message, reason="busy")

        await worker.acknowledge(message)
        await worker.acknowledge(message)

        (outcome,) = await told(broker)
        assert (outcome["outcome"], outcome["attempts"], outcome["reason"]) == ("acked", "1", "busy")


async def test_neither_unsubscribing_nor_purging_nor_moving_tells_anything(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await (await broker.durable_subscriber(client_id="moved")).vanish()
        await ask(await broker.client(), b"1", b"2", b"3", destination="/topic/a")
        (moved,) = [each.public_id for each in broker.registry.durable.values() if each.key == "moved/orders"]

        await broker.parts.control.call("move_subscription", {"id": moved, "to": "latest"})
        await broker.delete_subscription("billing/orders")

        assert await told(broker) == []


async def test_what_expires_for_an_absent_subscriber_is_told(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found in the store, where the message is not read as a whole; and when somebody comes before that."""
    upkeep = UpkeepRounds(monkeypatch)
    let_wall_clock_go_on(mock_clock, monkeypatch)
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await ask(await broker.client(), b"x" * 9, destination="/topic/a", ttl="1000", correlation_id="c\\d")
    async with running_broker(store_in=store_directory) as broker:
        for _ in range(2):  # the first may have looked just before the time was over
            await upkeep.run_one(broker, mock_clock)

        (outcome,) = await told(broker)
        assert (outcome["outcome"], outcome["attempts"], outcome["correlation-id"]) == ("expired", "0", "c\\d")
        await ask(await broker.client(), b"y", destination="/topic/a", ttl="1000")
        await broker.settle()
        mock_clock.jump(2)
        returning = await broker.durable_subscriber()
        await broker.expect_silence(returning)

        assert ends(await told(broker)) == [("billing/orders", "expired", "0")]


async def test_what_expires_after_a_refusal_is_told_with_that(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(await broker.client(), b"1", ttl="1000")
        await refuse(broker, worker, await worker.next_message(), delay="1500", reason="busy")
        await broker.settle()
        mock_clock.jump(2)
        await broker.expect_silence(worker)

        (outcome,) = await told(broker)
        assert (outcome["outcome"], outcome["attempts"], outcome["reason"]) == ("expired", "1", "busy")


async def test_what_a_group_is_too_slow_for_is_told_as_dropped(
    broker_with_small_windows: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    broker = broker_with_small_windows
    reader, publisher = await broker.subscriber(TOLD), await broker.client()
    await broker.subscriber("/topic/a", group="g", auto_delete="true", ack="client-individual", prefetch_count="1")
    for number in range(9):
        await ask(publisher, b"%d" % number, destination="/topic/a")

    outcomes = []
    while await reader.has_more():
        outcomes.append(said(await reader.next_message()))

    (group,) = [each for each in broker.registry.subscriptions if each.is_shared and not each.is_queue]
    assert group.counters.dropped > 0
    assert [(each["outcome"], each["attempts"]) for each in outcomes] == [("dropped", "0")] * group.counters.dropped


@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
async def test_what_no_store_has_and_a_durable_subscriber_is_too_slow_for_is_told_as_dropped(
    store_directory: Path, ledger: bool, policy: str
) -> None:
    topics = [{"pattern": "a", "window_messages": 4, "slow_subscriber": policy}]
    async with running_broker(store_in=store_directory, ledger=ledger, topics=topics) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="1")
        publisher = await broker.client()
        for number in range(20):
            await ask(publisher, b"%d" % number, destination="/topic/a", persistent="false")
        (subscription,) = [each for each in broker.registry.durable.values() if not each.is_queue]
        dropped = subscription.counters.dropped
        assert dropped > 0
        assert ends(await told(broker)) == dropped * [("billing/orders", "dropped", "0")]

        while messages := await broker.rest_for(subscriber):
            for message in messages:
                await subscriber.send("ACK", id=message.headers["ack"])

        assert len(await told(broker)) == 20 - dropped == subscription.counters.acked


async def test_what_expires_in_a_queue_in_memory_is_told(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    reader = await broker.subscriber(TOLD)
    await ask(await broker.client(), b"1", ttl="1000", correlation_id="c")

    outcome = said(await reader.next_message())

    assert (outcome["outcome"], outcome["attempts"], outcome["correlation-id"]) == ("expired", "0", "c")


@pytest.fixture
async def broker_with_small_windows(autojump_clock: MockClock) -> AsyncIterator[BrokerUnderTest]:
    async with running_broker(
        topics=[{"pattern": "a", "window_messages": 4, "slow_subscriber": "drop-oldest"}]
    ) as under_test:
        yield under_test


# Where it is told ----------------------------------------------------------------------------------------------------


async def test_a_topic_tells_those_who_are_subscribed_and_keeps_nothing(start: Start) -> None:
    """Its publisher among them, who wants no messages of its own: the broker says it."""
    async with start() as broker:
        publisher = await broker.subscriber("/topic/outcomes", no_local="true")
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(publisher, b"1", outcome_to="/topic/outcomes")
        await worker.acknowledge(await worker.next_message())

        assert (await publisher.next_message()).headers["destination"] == "/topic/outcomes"
        assert broker.registry.topics["outcomes"].store_id is None


@pytest.mark.parametrize("is_in_transaction", [False, True])
async def test_a_temporary_queue_is_subscribed_to_by_naming_it(start: Start, is_in_transaction: bool) -> None:
    async with start() as broker:
        publisher = await broker.client()
        worker = await broker.subscriber(JOBS, ack="client-individual")
        within = {"transaction": "t"} if is_in_transaction else {}
        if is_in_transaction:
            await publisher.send("BEGIN", transaction="t")
        await publisher.publish(b"1", destination=JOBS, outcome_to="/temp-queue/x", **within)
        if is_in_transaction:
            await publisher.send("COMMIT", transaction="t")
        await worker.acknowledge(await worker.next_message())

        outcome = await publisher.next_message()

        assert outcome.headers["subscription"] == "/temp-queue/x"
        assert outcome.headers["destination"].startswith("/reply-queue/")
        assert outcome.headers["outcome"] == "acked"


async def test_the_topic_of_the_message_itself_may_be_where_it_is_told(start: Start) -> None:
    """An outcome asks nothing, so that ends."""
    async with start() as broker:
        client = await broker.subscriber(JOBS, ack="client-individual")
        await client.publish(b"1", destination=JOBS, outcome_to=JOBS)
        message = await client.next_message()

        await client.send("ACK", id=message.headers["ack"])
        outcome = await client.next_message()
        await client.acknowledge(outcome)

        assert outcome.headers["outcome-of"] == message.headers["message-id"]
        await wait_all_tasks_blocked()
        await client.sync()
        assert broker.parts.totals.outcomes_told == 1


async def test_a_temporary_queue_that_is_gone_is_told_nothing_and_holds_nobody_up(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.client()
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(publisher, b"1", b"2", outcome_to="/temp-queue/x")
        messages = await worker.next_messages(2)
        await publisher.vanish()

        with capture_logs() as logged:
            await worker.acknowledge(*messages)
            await lost(broker, 2)

        assert [line["event"] for line in logged if "told" in line["event"]] == [
            "a publisher is not told what became of its messages"
        ]


async def test_a_full_queue_is_told_what_fits_and_the_rest_is_counted(start: Start) -> None:
    async with start(queues=[{"name": "told", "queue_max_messages": 2}]) as broker:
        worker = await broker.subscriber(JOBS, ack="client")
        await ask(await broker.client(), b"1", b"2", b"3")
        *_, last = await worker.next_messages(3)

        await worker.acknowledge(last)

        await lost(broker, 1)
        assert (broker.parts.totals.outcomes_told, broker.parts.totals.outcomes_lost) == (2, 1)


async def test_a_queue_whose_window_is_full_is_told_nothing_and_holds_nobody_up(start: Start) -> None:
    async with start(window_messages=10) as broker:
        worker = await broker.subscriber(JOBS, ack="client")
        publisher = await broker.client()
        await ask(publisher, b"1", b"2")
        await publisher.publish(*[b"x"] * 10, destination=TOLD, persistent="false")
        await publisher.sync()
        *_, last = await worker.next_messages(2)

        await worker.acknowledge(last)

        await lost(broker, 2)
        assert broker.registry.topics[TOLD].log.message_count == 10


async def test_a_queue_that_was_removed_meanwhile_is_made_again(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(await broker.client(), b"1")
        message = await worker.next_message()
        await broker.settle()
        queue = broker.registry.topics[TOLD]
        assert broker.registry.collect(queue, broker.clock.now_ns(), unused_since_ns=broker.clock.now_ns())
        await broker.settle()

        await worker.acknowledge(message)

        assert ends(await told(broker)) == [(JOBS, "acked", "1")]


# With the store ------------------------------------------------------------------------------------------------------


async def test_a_receipt_of_an_ack_says_that_its_outcome_is_in_the_file(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(await broker.client(), b"1", b"2")
        for number, message in enumerate(await worker.next_messages(2), 1):
            await worker.acknowledge(message)

            assert len(stored_outcomes(broker)) == number
            assert len(recorded(broker, "jobs")) == number


def stored_outcomes(broker: BrokerUnderTest) -> list[bytes]:
    return [tail for (tail,) in broker.look("SELECT tail FROM messages") if b"\noutcome-of:" in tail]


async def test_outcomes_of_transactions_and_other_messages_share_a_queue_and_a_batch(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        worker = await broker.subscriber(JOBS, ack="client-individual")
        publisher = await broker.client()
        await ask(publisher, b"1", b"2", b"3")
        messages = await worker.next_messages(3)
        with broker.held_store():
            await publisher.publish(b"held")
            await publisher.publish(b"held", destination=JOBS)
            await wait_all_tasks_blocked()
            for number, message in enumerate(messages):
                await worker.send("BEGIN", transaction="t")
                await worker.send("ACK", id=message.headers["ack"], transaction="t")
                await worker.send("COMMIT", transaction="t")
                await wait_all_tasks_blocked()
                await publisher.publish(b"between %d" % number, destination=TOLD)
                await wait_all_tasks_blocked()
            assert len(broker.journal.backlog) > 2

        reader = await broker.subscriber(TOLD)

        bodies = [message.body for message in await broker.rest_for(reader)]
        assert bodies == [b"", b"between 0", b"", b"between 1", b"", b"between 2"]


async def test_nothing_is_told_of_what_a_kill_takes_back(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(await broker.client(), b"1", b"2")
        messages = await worker.next_messages(2)
        await worker.acknowledge(messages[0])
        await broker.settle()
        with broker.held_store():
            await worker.send("ACK", id=messages[1].headers["ack"])
            await wait_all_tasks_blocked()
            broker.kill()
    async with running_broker(store_in=store_directory) as broker:
        assert len(stored_outcomes(broker)) == 1
        worker = await broker.subscriber(JOBS, ack="client-individual")
        again = await worker.next_message()
        assert again.headers["message-id"] == messages[1].headers["message-id"]
        await worker.acknowledge(again)

        found = await told(broker)

        assert [each["outcome-of"] for each in found] == [each.headers["message-id"] for each in messages]


@pytest.mark.parametrize("ledger", [True, False])
async def test_a_message_that_is_first_sent_after_a_restart_is_told(store_directory: Path, ledger: bool) -> None:
    async with running_broker(store_in=store_directory, ledger=ledger) as broker:
        await ask(await broker.client(), b"1", b"2", correlation_id="c")
    async with running_broker(store_in=store_directory, ledger=ledger) as broker:
        worker = await broker.subscriber(JOBS, ack="client-individual")
        messages = await worker.next_messages(2)
        await worker.acknowledge(*messages)

        found = await told(broker)

        assert [(each["outcome-of"], each["correlation-id"]) for each in found] == [
            (each.headers["message-id"], "c") for each in messages
        ]


@pytest.mark.parametrize("policy", ["dead-letter", "discard"])
@pytest.mark.parametrize("ledger", [True, False])
async def test_a_used_up_message_is_told_after_a_restart_without_being_sent_again(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch, policy: str, ledger: bool
) -> None:
    """Killed between the refusal and what comes of it: nobody has sent it since."""
    settings: dict[str, Any] = {"store_in": store_directory, "ledger": ledger, "when_used_up": policy}
    async with running_broker(**settings) as broker:
        worker = await broker.durable_subscriber()
        await ask(await broker.client(), b"1", destination="/topic/a", correlation_id="c")
        message = await worker.next_message()
        monkeypatch.setattr(broker.parts.dead_letters, "give_up", lambda _used_up: None)
        await refuse(broker, worker, message, reason="broken", requeue="false")
        await broker.settle()
        broker.kill()
    async with running_broker(**settings) as broker:
        (outcome,) = await told(broker)

        assert outcome["outcome"] == {"dead-letter": "dead", "discard": "discarded"}[policy]
        assert (outcome["reason"], outcome["correlation-id"], outcome["attempts"]) == ("broken", "c", "1")


async def test_a_redriven_message_asks_nothing_any_more(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        worker = await broker.durable_subscriber()
        await ask(await broker.client(), b"1", destination="/topic/a")
        await refuse(broker, worker, await worker.next_message(), requeue="false")
        assert [each["outcome"] for each in await told(broker)] == ["dead"]
        (letter,) = await letters_of(broker)
        assert "outcome-to" not in letter.headers

        await broker.parts.control.call("redrive_dead_letters", {"topic": "a", "limit": 1})
        await worker.acknowledge(await worker.next_message())

        assert await told(broker) == []


@pytest.mark.parametrize("way", ["bare", "transaction", "dead letter"])
async def test_a_store_that_refuses_an_outcome_takes_what_it_is_about(store_directory: Path, way: str) -> None:
    refuse_outcomes(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        worker = await broker.durable_subscriber()
        await ask(await broker.client(), b"1", b"2", destination="/topic/a")
        first, second = await worker.next_messages(2)

        if way == "bare":
            await worker.acknowledge(first)
        elif way == "transaction":
            await worker.send("BEGIN", transaction="t")
            await worker.send("ACK", id=first.headers["ack"], transaction="t")
            await worker.send("SEND", b"result", destination="/queue/results", transaction="t")
            await worker.send("COMMIT", transaction="t", receipt="committed")
            await worker.expect_receipt("committed")
        else:
            await refuse(broker, worker, first, requeue="false")
            assert len(await letters_of(broker)) == 1

        await broker.settle()
        assert (broker.parts.totals.outcomes_told, broker.parts.totals.outcomes_lost) == (0, 1)
        assert broker.registry.topics[TOLD].log.end_offset == 0
        query(store_directory, "DROP TRIGGER refuse_messages")
        await worker.acknowledge(second)
        assert [each["outcome-of"] for each in await told(broker)] == [second.headers["message-id"]]


async def test_a_store_without_room_takes_what_was_acknowledged_and_not_its_outcome(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        worker = await broker.subscriber(JOBS, ack="client-individual")
        await ask(await broker.client(), b"1", b"2")
        first, second = await worker.next_messages(2)
        await broker.settle()
        broker.journal.health.note_room(-1)

        await worker.acknowledge(first)

        await lost(broker, 1)
        assert [row["outcome"] for row in recorded(broker, "jobs")] == ["acked"]
        await worker.acknowledge(second)
        assert [each["outcome-of"] for each in await told(broker)] == [second.headers["message-id"]]


# Who may ask ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("destination", "texts"),
    [
        ("/topic/a.*", ["outcome-to", "*"]),
        ("/queue/a.>", ["outcome-to"]),
        ("", ["outcome-to"]),
        ("/dsub/x", ["outcome-to"]),
        ("/topic/DLQ.a", ["outcome-to", "dead letters", "another topic"]),
        ("/queue/DLQ.a", ["outcome-to", "dead letters"]),
        ("/reply-queue/x", ["unknown temporary destination"]),
    ],
)
@pytest.mark.parametrize("is_in_transaction", [False, True])
async def test_a_destination_that_cannot_be_told_is_an_error_at_once(
    broker: BrokerUnderTest, autojump_clock: MockClock, destination: str, texts: list[str], is_in_transaction: bool
) -> None:
    publisher = await broker.client()
    within = {"transaction": "t"} if is_in_transaction else {}
    if is_in_transaction:
        await publisher.send("BEGIN", transaction="t")

    await publisher.publish(b"x", destination="/topic/a", outcome_to=destination, **within)

    await publisher.expect_error(*texts)
    assert JOBS not in broker.registry.topics


@pytest.mark.parametrize("is_in_transaction", [False, True])
async def test_a_publisher_is_told_only_where_it_may_write(tmp_path: Path, is_in_transaction: bool) -> None:
    users = tmp_path / "users.toml"
    add_user(users, "alice", read=[">", "queue:>"], write=["queue:jobs", "told"])
    async with running_broker(users_file=str(users)) as broker:
        for where, is_allowed in (("/topic/told", True), (TOLD, False)):
            publisher = await broker.client(login="alice", passcode=PASSWORD)
            within = {"transaction": "t"} if is_in_transaction else {}
            if is_in_transaction:
                await publisher.send("BEGIN", transaction="t")
            await publisher.publish(b"x", destination=JOBS, outcome_to=where, **within)
            if is_allowed:
                await publisher.sync()
            else:
                await publisher.expect_error("not allowed", f"write {where!r}")
        assert TOLD not in broker.registry.topics


async def test_a_publisher_cannot_pass_for_the_broker(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    reader = await broker.subscriber("/topic/told")
    forged = {"outcome": "acked", "outcome_of": "1", "outcome_subscription": "s", "outcome_destination": "d"}
    await (await broker.client()).publish(b"x", destination="/topic/told", **forged)

    message = await reader.next_message()

    assert {name: value for name, value in message.headers.items() if "outcome" in name} == {"outcome": "acked"}


# What it costs -------------------------------------------------------------------------------------------------------


async def test_messages_that_do_not_ask_cost_nothing_more_and_leave_nothing(
    durable_broker: BrokerUnderTest,
) -> None:
    """Also beside one that has asked."""
    subscriber = await durable_broker.durable_subscriber()
    publisher = await durable_broker.client()
    work = []
    for is_asked_before in (False, True):
        if is_asked_before:
            await ask(publisher, b"1", destination="/topic/a")
            await subscriber.acknowledge(await subscriber.next_message())
            await durable_broker.settle()
        await publisher.publish(*[b"x"] * 400, destination="/topic/a")
        messages = await subscriber.next_messages(400)
        (subscription,) = [each for each in durable_broker.registry.durable.values() if not each.is_queue]
        (reading,) = subscription.readings.values()
        assert not reading.remembered.asking
        acks = b"".join(subscriber.frame("ACK", id=message.headers["ack"]) for message in messages)

        def acknowledge(acks: bytes = acks) -> None:
            while subscriber.session.receive(acks):
                acks = b""

        work.append(operations(acknowledge))
        await durable_broker.settle()

    assert max(work) / 400 < 1
    assert abs(work[0] - work[1]) < 20
