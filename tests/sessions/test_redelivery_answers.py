"""What a NACK, a missing answer and a late one do, and to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from stompbroker.stomp import Version
from tests.support.broker_under_test import running_broker
from tests.support.redelivery import MS, S, history, jump_to, letters_of, refuse, sleep_until, subscription_of

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


#: Longer than the first wait, with or without jitter.
A_WHILE_S = 2.0


async def with_messages(
    broker: BrokerUnderTest, *bodies: bytes, ack: str = "client-individual", **headers: Any
) -> tuple[Client, list[Frame]]:
    """A subscriber that has got these."""
    subscriber = await broker.subscriber(ack=ack, **headers)
    await (await broker.client()).publish(*bodies)
    return subscriber, await subscriber.next_messages(len(bodies))


# NACK ----------------------------------------------------------------------------------------------------------------


async def test_what_is_not_to_be_requeued_goes_to_the_dead_letters_at_once(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    letters = await broker.subscriber("/topic/DLQ.a")
    subscriber, (message,) = await with_messages(broker, b"1")

    refused_ns = await refuse(broker, subscriber, message, requeue="false", reason="unreadable")

    letter = await letters.next_message()
    assert broker.clock.now_ns() == pytest.approx(refused_ns, abs=1000)
    assert letter.headers["dead-letter-cause"] == "refused"
    assert letter.headers["dead-letter-attempts"] == "1"
    assert letter.headers["dead-letter-reason"] == "unreadable"
    await trio.sleep(A_WHILE_S)
    await subscriber.expect_nothing()


async def test_to_be_requeued_is_what_happens_anyway(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")

    await refuse(broker, subscriber, message, requeue="true")

    assert history(await subscriber.next_message()) == ("true", "2", None)


async def test_the_last_reason_is_told(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")
    await refuse(broker, subscriber, message, reason="first: no paper\nand no ink")
    message = await subscriber.next_message()
    assert history(message) == ("true", "2", "first: no paper\nand no ink")

    await refuse(broker, subscriber, message, reason="Störung")

    assert history(await subscriber.next_message()) == ("true", "3", "Störung")


async def test_of_a_long_reason_the_beginning_is_kept(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")

    await refuse(broker, subscriber, message, reason="why? " * 200)

    reason = (await subscriber.next_message()).headers["redelivery-reason"]
    assert len(reason) <= 250
    assert reason.startswith("why? why? ")


async def test_a_nack_concerns_the_one_subscriber_that_sent_it(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    others = [await broker.subscriber(ack=ack) for ack in ("client-individual", "client", "auto")]
    subscriber, (message,) = await with_messages(broker, b"1")
    for other in others:
        await other.next_message()

    await refuse(broker, subscriber, message)
    await subscriber.next_message()

    for other in others:
        await other.expect_nothing()
        counters = subscription_of(broker, other).counters
        assert (counters.delivered, counters.nacked, counters.redelivered) == (1, 0, 0)


async def test_a_nack_concerns_the_one_subscription_of_its_connection(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()
    for name in ("0", "1"):
        await client.subscribe(id=name, ack="client")
    await (await broker.client()).publish(b"1")
    first, second = await client.next_messages(2)

    await refuse(broker, client, first)

    again = await client.next_message()
    assert again.headers["subscription"] == first.headers["subscription"]
    await client.acknowledge(second)
    await trio.sleep(A_WHILE_S)
    await client.expect_nothing()


async def test_in_client_mode_a_nack_means_everything_sent_before_it_too(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, messages = await with_messages(broker, b"1", b"2", b"3", b"4", ack="client")

    await refuse(broker, subscriber, messages[2], reason="no paper")

    again = await subscriber.next_messages(3)
    assert [message.body for message in again] == [b"1", b"2", b"3"]
    assert {history(message) for message in again} == {("true", "2", "no paper")}
    await trio.sleep(A_WHILE_S)
    await subscriber.expect_nothing()
    subscription = subscription_of(broker, subscriber)
    assert subscription.counters.nacked == 3
    assert subscription.consumer is not None
    assert subscription.consumer.in_flight == 4


async def test_in_client_mode_what_was_acknowledged_is_not_refused_with_what_follows(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, messages = await with_messages(broker, b"1", b"2", b"3", ack="client")
    await subscriber.acknowledge(messages[0])

    await refuse(broker, subscriber, messages[2])

    assert await subscriber.next_bodies(2) == [b"2", b"3"]
    await trio.sleep(A_WHILE_S)
    await subscriber.expect_nothing()


async def test_in_client_mode_a_second_nack_means_only_what_came_since(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """What waits has been refused already: it is not refused twice."""
    subscriber, messages = await with_messages(broker, b"1", b"2", b"3", ack="client")
    await refuse(broker, subscriber, messages[0], delay="100")
    await refuse(broker, subscriber, messages[2], delay="5000")

    again = await subscriber.next_messages(3)

    assert [(message.body, message.headers["delivery-count"]) for message in again] == [
        (b"1", "2"),
        (b"2", "2"),
        (b"3", "2"),
    ]


async def test_in_client_mode_a_nack_means_what_was_sent_before_over_all_topics(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber("/topic/t.*", ack="client")
    publisher = await broker.client()
    await publisher.publish(b"1", destination="/topic/t.x")
    await publisher.publish(b"2", destination="/topic/t.y")
    first, second = await subscriber.next_messages(2)

    await refuse(broker, subscriber, second)

    assert sorted(await subscriber.next_bodies(2)) == [b"1", b"2"]
    assert first.body == b"1"


@pytest.mark.parametrize("version", [Version.V1_1, Version.V1_2])
async def test_older_versions_name_messages(
    version: Version, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual", version=version)
    await (await broker.client()).publish(b"1")
    message = await subscriber.next_message()

    by_name = {"subscription": "0", "message_id": message.headers["message-id"]}
    named = {"id": message.headers["ack"]} if version is Version.V1_2 else by_name
    await subscriber.send("NACK", reason="no paper", **named)

    assert history(await subscriber.next_message()) == ("true", "2", "no paper")


async def test_a_second_nack_of_what_waits_is_harmless_and_counted_as_late(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")
    refused_ns = await refuse(broker, subscriber, message, delay="1000", reason="first")

    await refuse(broker, subscriber, message, delay="5000", reason="second")

    assert history(await subscriber.next_message()) == ("true", "2", "first")
    assert broker.clock.now_ns() == pytest.approx(refused_ns + 1000 * MS, abs=1000)
    assert subscription_of(broker, subscriber).counters.late == 1


async def test_what_was_refused_here_and_there_comes_again_in_its_order_with_the_history_of_each(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    bodies = [b"%d" % number for number in range(40)]
    subscriber, messages = await with_messages(broker, *bodies, redelivery_delay="1000", redelivery_jitter="0")
    answers = [
        subscriber.frame("NACK" if number % 10 == 9 else "ACK", id=message.headers["ack"])
        for number, message in enumerate(messages)
    ]
    await subscriber.send_raw(b"".join(answers))

    again = await subscriber.next_messages(4)

    assert [message.body for message in again] == [b"9", b"19", b"29", b"39"]
    assert {history(message) for message in again} == {("true", "2", None)}
    assert [message.headers["ack"] for message in again] == [f"1-{number}" for number in range(41, 45)]
    # The third is refused once more: it alone has another history then.
    await refuse(broker, subscriber, again[2], reason="no")
    await subscriber.acknowledge(again[0], again[1], again[3])
    last = await subscriber.next_message()
    assert (last.body, history(last)) == (b"29", ("true", "3", "no"))
    await subscriber.acknowledge(last)
    counters = subscription_of(broker, subscriber).counters
    assert (counters.acked, counters.nacked, counters.redelivered, counters.late) == (40, 5, 5, 0)
    await subscriber.expect_nothing()


@pytest.mark.parametrize(
    ("answers", "counted"),
    [
        # Acknowledged, refused and late.
        ("AN", (1, 0, 1)),
        ("NA", (1, 1, 1)),
        ("AA", (1, 0, 1)),
        ("NN", (0, 1, 1)),
        ("NAN", (1, 1, 2)),
        ("ANA", (1, 0, 2)),
    ],
)
async def test_answers_of_one_chunk_to_one_delivery_count_in_their_order(
    answers: str, counted: tuple[int, int, int], broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Those of a chunk are applied in two steps only if no delivery is both acknowledged and refused."""
    subscriber, (first, named, *_) = await with_messages(broker, b"1", b"2", b"3")
    chunk = [subscriber.frame("ACK", id=first.headers["ack"])]
    chunk += [subscriber.frame({"A": "ACK", "N": "NACK"}[each], id=named.headers["ack"]) for each in answers]
    await subscriber.send_raw(b"".join(chunk))
    await subscriber.sync()

    counters = subscription_of(broker, subscriber).counters
    assert (counters.acked - 1, counters.nacked, counters.late) == counted


async def test_of_two_refusals_in_one_chunk_the_first_counts_whatever_others_are_refused_with(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Those of a chunk that are alike are applied as one, but not if that puts one before another of its delivery."""
    letters = await broker.subscriber("/topic/DLQ.a")
    subscriber, (other, named) = await with_messages(broker, b"other", b"named")
    answers = [
        subscriber.frame("NACK", id=other.headers["ack"]),
        subscriber.frame("NACK", id=named.headers["ack"], requeue="false", reason="unreadable"),
        subscriber.frame("NACK", id=named.headers["ack"]),
    ]

    await subscriber.send_raw(b"".join(answers))

    letter = await letters.next_message()
    assert (letter.body, letter.headers["dead-letter-reason"]) == (b"named", "unreadable")
    assert (await subscriber.next_message()).body == b"other"


async def test_a_nack_of_a_delivery_that_was_made_again_since_is_harmless(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """The answer to the second delivery counts, not a late one to the first."""
    subscriber, (message,) = await with_messages(broker, b"1")
    await refuse(broker, subscriber, message)
    again = await subscriber.next_message()

    await refuse(broker, subscriber, message)

    await trio.sleep(10)
    await subscriber.expect_nothing()
    await subscriber.acknowledge(again)
    assert subscription_of(broker, subscriber).counters.acked == 1


async def test_a_nack_of_something_settled_is_harmless(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")
    await subscriber.acknowledge(message)

    await refuse(broker, subscriber, message, requeue="false")

    await trio.sleep(A_WHILE_S)
    await subscriber.expect_nothing()
    assert "DLQ.a" not in broker.registry.topics


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("delay", "-1"),
        ("delay", "soon"),
        ("delay", "1.5"),
        ("delay", str(8 * 86_400_000)),
        ("requeue", "no"),
        ("requeue", ""),
    ],
)
async def test_a_bad_header_of_nack_is_named(
    header: str, value: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")

    await subscriber.send("NACK", id=message.headers["ack"], receipt="refused", **{header: value})

    error = await subscriber.expect_error(repr(header), repr(value))
    assert error.headers["receipt-id"] == "refused"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("redelivery-delay", "-1"),
        ("redelivery-multiplier", "0.5"),
        ("redelivery-max-delay", "long"),
        ("redelivery-jitter", "1.1"),
        ("max-attempts", "many"),
        ("ack-deadline", "99"),
        ("when-used-up", "forget"),
        ("activemq.maximumRedeliveries", "-2"),
        ("initialRedeliveryDelay", "x"),
        ("activemq.redeliveryDelay", "-5"),
        ("backOffMultiplier", "0"),
        ("useExponentialBackOff", "yes"),
        ("maximumRedeliveryDelay", ""),
        ("ordering", "loose"),
    ],
)
async def test_a_bad_header_of_subscribe_is_named(
    header: str, value: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()

    await client.send(
        "SUBSCRIBE", id="0", destination="/topic/a", ack="client", receipt="subscribed", **{header: value}
    )

    error = await client.expect_error(repr(header), repr(value))
    assert error.headers["receipt-id"] == "subscribed"
    assert not broker.registry.subscriptions


async def test_headers_of_subscribe_that_contradict_each_other_are_named(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()

    await client.send("SUBSCRIBE", id="0", destination="/topic/a", max_attempts="3", maximumRedeliveries="3")

    await client.expect_error("max-attempts:3", "maximumRedeliveries:3")


# Deadlines -----------------------------------------------------------------------------------------------------------

DEADLINE: dict[str, Any] = {"ack_deadline": "500", "redelivery_delay": "1000", "redelivery_jitter": "0"}


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_what_is_not_answered_within_its_deadline_is_set_aside(
    ack: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, _ = await with_messages(broker, b"1", ack=ack, **DEADLINE)
    delivered_ns = broker.clock.now_ns()
    subscription = subscription_of(broker, subscriber)

    await sleep_until(broker, delivered_ns + 499 * MS)
    assert (subscription.waiting, subscription.counters.overdue) == (0, 0)
    await sleep_until(broker, delivered_ns + 501 * MS)
    assert (subscription.waiting, subscription.counters.overdue) == (1, 1)

    again = await subscriber.next_message()
    assert broker.clock.now_ns() == pytest.approx(delivered_ns + 1500 * MS, abs=1000)
    assert history(again) == ("true", "2", "not acknowledged within 0.5 s")
    assert subscription.counters.nacked == 0


async def test_what_is_answered_within_its_deadline_is_not_overdue(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (first, second) = await with_messages(broker, b"1", b"2", **DEADLINE)
    await subscriber.acknowledge(first)
    refused_ns = await refuse(broker, subscriber, second, delay="5000")

    await subscriber.next_message()

    assert broker.clock.now_ns() == pytest.approx(refused_ns + 5 * S, abs=1000)
    assert subscription_of(broker, subscriber).counters.overdue == 0


async def test_who_never_answers_ends_with_a_dead_letter(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    letters = await broker.subscriber("/topic/DLQ.a")
    subscriber, _ = await with_messages(broker, b"1", max_attempts="3", **DEADLINE)

    letter = await letters.next_message()

    assert letter.headers["dead-letter-attempts"] == "3"
    assert letter.headers["dead-letter-reason"] == "not acknowledged within 0.5 s"
    assert [history(message)[1] for message in await subscriber.next_messages(2)] == ["2", "3"]
    assert subscription_of(broker, subscriber).counters.overdue == 3


async def test_the_deadline_of_a_topic_holds_for_whoever_names_none(autojump_clock: MockClock) -> None:
    async with running_broker(topics=[{"pattern": "a", "ack_deadline_ms": 500}]) as broker:
        subscriber, _ = await with_messages(broker, b"1")
        assert history(await subscriber.next_message())[1] == "2"
        without, _ = await with_messages(broker, b"2", ack_deadline="0")
        await trio.sleep(A_WHILE_S)
        await without.expect_nothing()


async def test_a_deadline_frees_the_credit_of_what_was_not_answered(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual", prefetch_count="1", **DEADLINE)
    await (await broker.client()).publish(b"1", b"2")

    assert await subscriber.next_bodies(2) == [b"1", b"2"]


# Late answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_an_ack_settles_what_waits_because_it_was_overdue(
    ack: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1", ack=ack, **DEADLINE)
    await trio.sleep(0.6)

    await subscriber.acknowledge(message)

    await trio.sleep(A_WHILE_S)
    await subscriber.expect_nothing()
    subscription = subscription_of(broker, subscriber)
    assert (subscription.counters.acked, subscription.counters.late, subscription.waiting) == (1, 1, 0)


async def test_in_client_mode_a_late_ack_settles_everything_overdue_before_it(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, messages = await with_messages(broker, b"1", b"2", b"3", b"4", ack="client", **DEADLINE)
    await trio.sleep(0.6)

    await subscriber.acknowledge(messages[2])

    assert await subscriber.next_bodies(1) == [b"4"]
    counters = subscription_of(broker, subscriber).counters
    assert (counters.acked, counters.late, counters.overdue) == (3, 3, 4)


async def test_in_client_mode_a_late_ack_does_not_settle_what_was_refused_before_it(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """It said no to the first; its yes to the second does not take that back."""
    subscriber, (first, second) = await with_messages(broker, b"1", b"2", ack="client", **DEADLINE)
    await refuse(broker, subscriber, first)
    await trio.sleep(0.6)

    await subscriber.acknowledge(second)

    assert await subscriber.next_bodies(1) == [b"1"]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_an_ack_settles_what_was_refused_and_waits(
    ack: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1", ack=ack)
    await refuse(broker, subscriber, message)

    await subscriber.acknowledge(message)

    await trio.sleep(A_WHILE_S)
    await subscriber.expect_nothing()
    counters = subscription_of(broker, subscriber).counters
    assert (counters.nacked, counters.acked, counters.late) == (1, 1, 1)


@pytest.mark.parametrize("is_one_chunk", [True, False])
async def test_in_client_mode_every_ack_settles_what_was_refused_and_it_names(
    broker: BrokerUnderTest, autojump_clock: MockClock, is_one_chunk: bool
) -> None:
    """However many of them come together."""
    subscriber, messages = await with_messages(broker, b"1", b"2", b"3", ack="client")
    await refuse(broker, subscriber, messages[1])
    acks = [subscriber.frame("ACK", id=message.headers["ack"]) for message in messages[1:]]

    for chunk in [b"".join(acks)] if is_one_chunk else acks:
        await subscriber.send_raw(chunk)
        await subscriber.sync()

    await trio.sleep(A_WHILE_S)
    again = await subscriber.next_message()
    assert again.body == b"1"
    await subscriber.expect_nothing()


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_an_ack_of_the_first_delivery_settles_what_is_in_flight_again(
    ack: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Then the answer to the second one is late and harmless."""
    subscriber, (message,) = await with_messages(broker, b"1", ack=ack, **DEADLINE)
    again = await subscriber.next_message()

    await subscriber.acknowledge(message)
    await refuse(broker, subscriber, again)

    await trio.sleep(10)
    await subscriber.expect_nothing()
    subscription = subscription_of(broker, subscriber)
    assert subscription.counters.acked == 1
    assert subscription.counters.late >= 1
    assert subscription.consumer is not None
    assert subscription.consumer.in_flight == 0


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_a_second_ack_is_harmless_and_counted_as_late(
    ack: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1", ack=ack)
    await subscriber.acknowledge(message)

    await subscriber.acknowledge(message)

    counters = subscription_of(broker, subscriber).counters
    assert (counters.acked, counters.late) == (1, 1)


@pytest.mark.parametrize("command", ["ACK", "NACK"])
async def test_an_answer_after_a_plain_unsubscribe_of_a_transient_subscription_is_harmless(
    command: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")
    await subscriber.send("UNSUBSCRIBE", id="0")

    await subscriber.send(command, id=message.headers["ack"], receipt="late")

    await subscriber.expect_receipt("late")
    assert subscriber.session.commands.late_answers == 1


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("ack_id", ["1-2", "2-1", "0-1", "1-0", "01-1", "one", "1", "-"])
async def test_an_id_that_was_never_given_is_an_error(
    command: str, ack_id: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")
    assert message.headers["ack"] == "1-1"

    await subscriber.send(command, id=ack_id, receipt="answered")

    await subscriber.expect_error("unknown ack id", repr(ack_id))


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_an_ack_settles_after_a_plain_unsubscribe_of_a_durable_subscription(
    ack: str, durable_broker: BrokerUnderTest
) -> None:
    subscriber = await durable_broker.durable_subscriber(ack=ack)
    await durable_broker.store_messages(b"1", b"2", b"3")
    _, second, _ = await subscriber.next_messages(3)
    await subscriber.send("UNSUBSCRIBE", id="0", receipt="left")
    await subscriber.expect_receipt("left")

    await subscriber.acknowledge(second)

    again = await durable_broker.rest_for(await durable_broker.durable_subscriber(ack=ack))
    assert [message.body for message in again] == ([b"3"] if ack == "client" else [b"1", b"3"])
    (subscription,) = durable_broker.registry.durable.values()
    assert subscription.counters.late >= 1


async def test_in_client_mode_an_ack_after_an_unsubscribe_does_not_settle_what_was_refused_before_it(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(ack="client")
        await broker.store_messages(b"1", b"2")
        first, second = await subscriber.next_messages(2)
        refused_ns = await refuse(broker, subscriber, first, delay="5000")
        await subscriber.send("UNSUBSCRIBE", id="0", receipt="left")
        await subscriber.expect_receipt("left")

        await subscriber.acknowledge(second)

        again = await broker.durable_subscriber(ack="client")
        await jump_to(broker, mock_clock, refused_ns + 5001 * MS)
        assert [message.body for message in await broker.rest_for(again)] == [b"1"]


async def test_an_ack_settles_after_an_unsubscribe_what_another_connection_has_in_flight_by_then(
    durable_broker: BrokerUnderTest,
) -> None:
    first = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await first.next_message()
    await first.send("UNSUBSCRIBE", id="0", receipt="left")
    await first.expect_receipt("left")
    second = await durable_broker.durable_subscriber()
    again = await second.next_message()

    await first.acknowledge(message)

    await second.acknowledge(again)
    await second.vanish()
    third = await durable_broker.durable_subscriber()
    await durable_broker.expect_silence(third)


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_a_nack_after_a_plain_unsubscribe_of_a_durable_subscription_counts(
    ack: str, store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(ack=ack)
        await broker.store_messages(b"1")
        message = await subscriber.next_message()
        await subscriber.send("UNSUBSCRIBE", id="0", receipt="left")
        await subscriber.expect_receipt("left")

        refused_ns = await refuse(broker, subscriber, message, delay="5000", reason="no paper")

        again = await broker.durable_subscriber(ack=ack)
        await broker.expect_silence(again)
        await jump_to(broker, mock_clock, refused_ns + 5001 * MS)
        assert history(await again.next_message()) == ("true", "2", "no paper")


# Transactions --------------------------------------------------------------------------------------------------------


async def test_a_nack_in_a_transaction_counts_when_it_is_committed(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1", redelivery_jitter="0")
    await subscriber.send("BEGIN", transaction="t")
    await refuse(broker, subscriber, message, transaction="t", reason="no paper")
    await trio.sleep(5)
    await subscriber.expect_nothing()
    committed_ns = broker.clock.now_ns()

    await subscriber.send("COMMIT", transaction="t")

    assert history(await subscriber.next_message()) == ("true", "2", "no paper")
    assert broker.clock.now_ns() == pytest.approx(committed_ns + 1 * S, abs=1000)


async def test_a_nack_in_a_transaction_that_is_aborted_never_was(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")
    await subscriber.send("BEGIN", transaction="t")
    await refuse(broker, subscriber, message, transaction="t", requeue="false")

    await subscriber.send("ABORT", transaction="t")

    await trio.sleep(A_WHILE_S)
    await subscriber.expect_nothing()
    await subscriber.acknowledge(message)
    counters = subscription_of(broker, subscriber).counters
    assert (counters.acked, counters.nacked, counters.late) == (1, 0, 0)
    assert "DLQ.a" not in broker.registry.topics


async def test_a_bad_header_of_a_nack_in_a_transaction_is_told_at_once(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, (message,) = await with_messages(broker, b"1")
    await subscriber.send("BEGIN", transaction="t")

    await subscriber.send("NACK", id=message.headers["ack"], transaction="t", delay="soon")

    await subscriber.expect_error("'delay'", "'soon'")


async def test_a_committed_nack_survives_a_kill_with_the_rest_of_its_transaction(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"refused", b"taken")
        refused, taken = await subscriber.next_messages(2)
        committed_ns = broker.clock.now_ns()
        await subscriber.send("BEGIN", transaction="t")
        await subscriber.send("NACK", id=refused.headers["ack"], transaction="t", delay="60000", reason="no paper")
        await subscriber.send("ACK", id=taken.headers["ack"], transaction="t")
        await subscriber.publish(b"answer", destination="/topic/a", transaction="t")
        await subscriber.send("COMMIT", transaction="t", receipt="committed")
        frames = [await subscriber.next_frame() for _ in range(2)]
        assert sorted(frame.command for frame in frames) == ["MESSAGE", "RECEIPT"]
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        assert [message.body for message in await broker.rest_for(subscriber)] == [b"answer"]
        await jump_to(broker, mock_clock, committed_ns + 60_001 * MS)
        again = await subscriber.next_message()
        assert (again.body, *history(again)) == (b"refused", "true", "2", "no paper")


async def test_what_is_refused_for_good_in_a_transaction_is_dead_when_it_is_committed(
    durable_broker: BrokerUnderTest,
) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await subscriber.next_message()
    await subscriber.send("BEGIN", transaction="t")
    await refuse(durable_broker, subscriber, message, transaction="t", requeue="false")
    assert await letters_of(durable_broker) == []

    await subscriber.send("COMMIT", transaction="t", receipt="committed")
    await subscriber.expect_receipt("committed")

    assert [letter.body for letter in await letters_of(durable_broker)] == [b"1"]
    await subscriber.vanish()
    await durable_broker.expect_silence(await durable_broker.durable_subscriber())


async def test_a_deadline_that_passes_while_the_ack_waits_for_its_commit_does_not_undo_it(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """An ACK settles as long as the message is unsettled, whenever it counts."""
    subscriber, (message,) = await with_messages(broker, b"1", **DEADLINE)
    await subscriber.send("BEGIN", transaction="t")
    await subscriber.send("ACK", id=message.headers["ack"], transaction="t")
    await trio.sleep(0.6)

    await subscriber.send("COMMIT", transaction="t", receipt="committed")

    await subscriber.expect_receipt("committed")
    await trio.sleep(A_WHILE_S)
    await subscriber.expect_nothing()
    assert subscription_of(broker, subscriber).counters.acked == 1
