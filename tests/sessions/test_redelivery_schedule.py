"""When a message that fails comes again, to the nanosecond, and what it then says of itself."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.clock import iso_time
from stompbroker.delivery import (
    AckMode,
    DeliveryPolicy,
    Durability,
    Identity,
    IdentityKind,
    Refusal,
    Subscription,
    WhenUsedUp,
    parse_pattern,
)
from stompbroker.delivery.policy import Failing, Failure
from tests.support.broker_under_test import running_broker
from tests.support.redelivery import (
    MS,
    S,
    history,
    jump_to,
    letters_of,
    refuse,
    refuse_all,
    sleep_until,
    subscription_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest


#: The time between a delivery and its NACK: the schedule counts from the latter.
WORK_S = 0.123
#: What an instant may be off: times in seconds are floating-point numbers.
TOLERANCE_NS = 1_000
#: Longer than any wait there is by default.
LONG_S = 301


class Attempt(NamedTuple):
    message: Frame
    delivered_ns: int
    refused_ns: int


class Course(NamedTuple):
    """What became of one message."""

    attempts: list[Attempt]
    letter: Frame
    died_ns: int
    jitter_seed: int

    @property
    def waits_ns(self) -> list[int]:
        """From each NACK to the next delivery."""
        return [after.delivered_ns - before.refused_ns for before, after in pairwise(self.attempts)]


async def course_of_a_refused_message(broker: BrokerUnderTest, *delays: str, **headers: Any) -> Course:
    """Publish a message to a subscriber with these headers that refuses it again and again, at first with these
    delays."""
    subscriber = await broker.subscriber(ack="client-individual", **headers)
    letters = await broker.subscriber("/topic/DLQ.a")
    await (await broker.client()).publish(b"poison")
    attempts: list[Attempt] = []
    remaining = list(delays)
    while True:
        message = await subscriber.next_message()
        delivered_ns = broker.clock.now_ns()
        await trio.sleep(WORK_S)
        own_delay = {"delay": remaining.pop(0)} if remaining else {}
        refused_ns = await refuse(broker, subscriber, message, reason=f"number {len(attempts) + 1}", **own_delay)
        attempts.append(Attempt(message, delivered_ns, refused_ns))
        if await letters.has_more():
            break
    died_ns = broker.clock.now_ns()
    letter = await letters.next_message()
    await trio.sleep(LONG_S)
    await subscriber.expect_nothing()
    await letters.expect_nothing()
    return Course(attempts, letter, died_ns, subscription_of(broker, subscriber).jitter_seed)


def check_waits(course: Course, policy: DeliveryPolicy) -> None:
    """Each wait is the one that the policy has for the subscription, and the last NACK is not waited for."""
    wanted = [policy.delay_ns(number, course.jitter_seed) for number in range(1, len(course.attempts))]
    assert course.waits_ns == pytest.approx(wanted, abs=TOLERANCE_NS)
    assert course.died_ns == pytest.approx(course.attempts[-1].refused_ns, abs=TOLERANCE_NS)
    assert len(course.attempts) == policy.max_attempts


def milliseconds(course: Course) -> list[int]:
    return [round(wait_ns / MS) for wait_ns in course.waits_ns]


# From where the policy comes -----------------------------------------------------------------------------------------


async def test_by_default_the_waits_double_from_one_second_and_the_tenth_failure_is_the_last(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    course = await course_of_a_refused_message(broker)

    check_waits(course, DeliveryPolicy())
    for number, wait_ns in enumerate(course.waits_ns):
        assert 0.9 * 2**number * S - TOLERANCE_NS <= wait_ns <= 2**number * S + TOLERANCE_NS
    assert len(course.attempts) == 10


async def test_by_default_every_attempt_of_a_subscription_has_a_jitter_of_its_own(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    course = await course_of_a_refused_message(broker)

    cut_off = [1 - wait_ns / (2**number * S) for number, wait_ns in enumerate(course.waits_ns)]
    assert len({round(share, 6) for share in cut_off}) == 9
    assert max(cut_off) > 0.01


async def test_messages_refused_in_one_go_come_again_at_one_time_in_their_order(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client")
    await (await broker.client()).publish(b"1", b"2", b"3")
    *_, last = await subscriber.next_messages(3)

    refused_ns = await refuse(broker, subscriber, last)

    assert await subscriber.next_bodies(3) == [b"1", b"2", b"3"]
    due_ns = refused_ns + DeliveryPolicy().delay_ns(1, subscription_of(broker, subscriber).jitter_seed)
    assert broker.clock.now_ns() == pytest.approx(due_ns, abs=TOLERANCE_NS)


async def test_messages_refused_one_by_one_come_again_in_their_order(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    bodies = [b"%02d" % number for number in range(50)]
    await (await broker.client()).publish(*bodies)

    for _ in range(3):
        messages = await subscriber.next_messages(50)
        assert [message.body for message in messages] == bodies
        for message in messages:
            await refuse(broker, subscriber, message)
            await trio.sleep(0.0001)

    assert await subscriber.next_bodies(50) == bodies


@given(
    jitter=st.floats(0, 1),
    failed_before=st.integers(0, 12),
    seed=st.integers(0, 2**32 - 1),
    refused_ns=st.lists(st.integers(0, 2**62), min_size=2),
)
def test_what_is_refused_later_with_the_same_delay_is_due_no_earlier(
    jitter: float, failed_before: int, seed: int, refused_ns: list[int]
) -> None:
    policy = DeliveryPolicy(jitter=jitter, max_attempts=0)
    before = Failure(failed_before, 0, "") if failed_before else None

    due_ns = [
        Failing(Refusal(at_ns), policy, seed).failure_after(before, first_sent_ns=0, sent_at_ns=0).due_ns
        for at_ns in sorted(refused_ns)
    ]

    assert due_ns == sorted(due_ns)


@pytest.mark.parametrize("failures", [1, 2, 10])
def test_jitter_spreads_subscriptions_over_the_part_it_may_cut_off(failures: int) -> None:
    policy = DeliveryPolicy(max_delay_ms=1000, jitter=0.1)
    durable = [subscription(store_id) for store_id in range(1, 1001)]

    waits_ns = [policy.delay_ns(failures, each.jitter_seed) for each in durable]

    tenths = Counter((wait_ns - 900 * MS) // (10 * MS) for wait_ns in waits_ns)
    assert sorted(tenths) == list(range(10))
    assert min(tenths.values()) > 50


def subscription(store_id: int) -> Subscription:
    identity = Identity("", IdentityKind.NAMED, "client", f"number {store_id}")
    return Subscription(
        name="0",
        destination="/topic/a",
        pattern=parse_pattern("a"),
        ack_mode=AckMode.INDIVIDUAL,
        is_no_local=False,
        durability=Durability(identity, store_id, created_at_ns=0, last_seen_at_ns=0),
    )


async def test_the_settings_of_the_broker_make_the_schedule(autojump_clock: MockClock) -> None:
    settings: dict[str, Any] = {"redelivery_first_delay_ms": 200, "redelivery_multiplier": 1.5, "redelivery_jitter": 0}
    async with running_broker(max_attempts=4, **settings) as broker:
        course = await course_of_a_refused_message(broker)

        assert milliseconds(course) == [200, 300, 450]


async def test_the_settings_of_a_topic_go_before_those_of_the_broker(autojump_clock: MockClock) -> None:
    table = {"pattern": "a", "redelivery_first_delay_ms": 50, "redelivery_max_delay_ms": 120, "redelivery_jitter": 0.5}
    async with running_broker(max_attempts=5, redelivery_first_delay_ms=7, topics=[table]) as broker:
        course = await course_of_a_refused_message(broker)

        check_waits(course, DeliveryPolicy(first_delay_ms=50, max_delay_ms=120, jitter=0.5, max_attempts=5))


async def test_the_settings_of_another_topic_mean_nothing(autojump_clock: MockClock) -> None:
    table = {"pattern": "b", "redelivery_first_delay_ms": 50, "max_attempts": 2}
    async with running_broker(max_attempts=3, topics=[table]) as broker:
        check_waits(await course_of_a_refused_message(broker), DeliveryPolicy(max_attempts=3))


async def test_the_headers_of_subscribe_go_before_the_settings_of_the_topic(autojump_clock: MockClock) -> None:
    table = {"pattern": "a", "redelivery_first_delay_ms": 50, "redelivery_jitter": 0, "max_attempts": 3}
    async with running_broker(topics=[table]) as broker:
        course = await course_of_a_refused_message(
            broker, redelivery_delay="100", redelivery_multiplier="3", redelivery_max_delay="500", max_attempts="6"
        )

        assert milliseconds(course) == [100, 300, 500, 500, 500]


async def test_what_the_headers_of_subscribe_do_not_say_is_as_the_topic_has_it(autojump_clock: MockClock) -> None:
    table = {"pattern": "a", "redelivery_first_delay_ms": 50, "redelivery_jitter": 0, "max_attempts": 4}
    async with running_broker(topics=[table]) as broker:
        course = await course_of_a_refused_message(broker, redelivery_multiplier="10")

        assert milliseconds(course) == [50, 500, 5000]


@pytest.mark.parametrize("prefix", ["", "activemq."])
async def test_activemqs_headers_mean_what_they_mean_there(
    prefix: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Three redeliveries are four attempts."""
    spelt = {
        "maximumRedeliveries": "3",
        "initialRedeliveryDelay": "100",
        "useExponentialBackOff": "true",
        "backOffMultiplier": "5",
        "maximumRedeliveryDelay": "2000",
    }
    headers = {prefix + name: value for name, value in spelt.items()}

    course = await course_of_a_refused_message(broker, redelivery_jitter="0", **headers)

    assert milliseconds(course) == [100, 500, 2000]
    assert course.letter.headers["dead-letter-attempts"] == "4"


async def test_without_exponential_back_off_activemqs_waits_stay_the_same(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    course = await course_of_a_refused_message(
        broker, maximumRedeliveries="3", redeliveryDelay="70", useExponentialBackOff="false", redelivery_jitter="0"
    )

    assert milliseconds(course) == [70, 70, 70]


async def test_no_redeliveries_are_one_attempt(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    course = await course_of_a_refused_message(broker, maximumRedeliveries="0")

    assert len(course.attempts) == 1


@pytest.mark.parametrize("headers", [{"max_attempts": "0"}, {"maximumRedeliveries": "-1"}])
async def test_without_an_end_the_waits_grow_up_to_the_cap_and_nothing_is_used_up(
    headers: dict[str, Any], broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual", redelivery_jitter="0", **headers)
    await (await broker.client()).publish(b"poison")
    refused_ns = 0
    waits_s = []
    for _ in range(14):
        message = await subscriber.next_message()
        waits_s.append((broker.clock.now_ns() - refused_ns) / S)
        refused_ns = await refuse(broker, subscriber, message)

    assert waits_s[1:11] == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 300], abs=1e-6)
    assert waits_s[11:] == pytest.approx([300] * 3, abs=1e-6)
    assert message.headers["delivery-count"] == "14"


# NACK's own delay ----------------------------------------------------------------------------------------------------


async def test_a_nack_may_say_how_long_to_wait_and_the_next_one_goes_on_in_the_schedule(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Also longer than the cap, and not spread: whoever names a time means it."""
    headers = {"redelivery_delay": "100", "redelivery_max_delay": "1000", "max_attempts": "6"}

    course = await course_of_a_refused_message(broker, "2500", "1", "0", redelivery_jitter="0", **headers)

    assert milliseconds(course) == [2500, 1, 0, 800, 1000]


async def test_a_delay_does_not_help_a_message_whose_attempts_are_used_up(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    course = await course_of_a_refused_message(broker, "0", "60000", max_attempts="2")

    assert len(course.attempts) == 2
    assert course.died_ns == pytest.approx(course.attempts[-1].refused_ns, abs=TOLERANCE_NS)


async def test_a_later_message_with_a_shorter_delay_comes_first(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    await (await broker.client()).publish(b"1", b"2", b"3")
    messages = await subscriber.next_messages(3)
    began_ns = broker.clock.now_ns()
    for message, delay in zip(messages, ("300", "200", "100"), strict=True):
        await refuse(broker, subscriber, message, delay=delay)

    arrivals = []
    for _ in messages:
        body = (await subscriber.next_message()).body
        arrivals.append((body, round((broker.clock.now_ns() - began_ns) / MS)))

    assert arrivals == [(b"3", 100), (b"2", 200), (b"1", 300)]


async def test_new_messages_flow_on_while_one_waits(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    await publisher.publish(b"1")
    refused_ns = await refuse(broker, subscriber, await subscriber.next_message())

    await publisher.publish(b"2", b"3")

    assert await subscriber.next_bodies(2) == [b"2", b"3"]
    assert broker.clock.now_ns() == pytest.approx(refused_ns, abs=TOLERANCE_NS)


# What each delivery says ---------------------------------------------------------------------------------------------


async def test_every_delivery_says_which_one_it_is_why_and_since_when(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    attempts = (await course_of_a_refused_message(broker, max_attempts="4")).attempts

    assert [history(attempt.message) for attempt in attempts] == [
        ("false", "1", None),
        ("true", "2", "number 1"),
        ("true", "3", "number 2"),
        ("true", "4", "number 3"),
    ]
    first, *again = attempts
    assert "first-delivered-at" not in first.message.headers
    first_at = iso_time(first.delivered_ns)
    assert {attempt.message.headers["first-delivered-at"] for attempt in again} == {first_at}
    assert len({attempt.message.headers["message-id"] for attempt in attempts}) == 1
    assert len({attempt.message.headers["ack"] for attempt in attempts}) == 4


async def test_the_letter_says_when_the_attempts_were(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    course = await course_of_a_refused_message(broker, max_attempts="3")

    headers = course.letter.headers
    assert headers["dead-letter-first-attempt-at"] == iso_time(course.attempts[0].delivered_ns)
    assert headers["dead-letter-last-attempt-at"] == iso_time(course.attempts[-1].delivered_ns)
    assert headers["dead-letter-died-at"] == iso_time(course.died_ns)
    assert headers["dead-letter-reason"] == "number 3"


async def test_a_publisher_cannot_write_what_a_delivery_says_of_itself(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    forged = {"redelivered": "true", "delivery_count": "7", "redelivery_reason": "forged", "first_delivered_at": "now"}
    await (await broker.client()).publish(b"1", **forged)

    message = await subscriber.next_message()

    assert history(message) == ("false", "1", None)
    assert "first-delivered-at" not in message.headers


async def test_what_is_acknowledged_at_last_does_not_come_again(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual", max_attempts="3")
    await (await broker.client()).publish(b"1")
    await refuse_all(broker, subscriber, 2)
    await subscriber.acknowledge(await subscriber.next_message())

    await trio.sleep(LONG_S)

    await subscriber.expect_nothing()
    assert "DLQ.a" not in broker.registry.topics


# With a store --------------------------------------------------------------------------------------------------------

NO_JITTER: dict[str, Any] = {"redelivery_jitter": "0"}


async def test_the_schedule_of_a_durable_subscription_is_the_same(store_directory: Path, mock_clock: MockClock) -> None:
    headers = {"redelivery_delay": "1000", "max_attempts": "4"} | NO_JITTER
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(**headers)
        await broker.store_messages(b"poison")
        for delay_ms in (1000, 2000, 4000):
            refused_ns = await refuse(broker, subscriber, await subscriber.next_message())
            await jump_to(broker, mock_clock, refused_ns + (delay_ms - 1) * MS)
            await broker.expect_silence(subscriber)
            await jump_to(broker, mock_clock, refused_ns + (delay_ms + 1) * MS)
        last = await subscriber.next_message()
        assert await letters_of(broker) == []

        await refuse(broker, subscriber, last)

        assert [letter.body for letter in await letters_of(broker)] == [b"poison"]


async def test_the_schedule_goes_on_after_a_restart_where_it_was(store_directory: Path, mock_clock: MockClock) -> None:
    """Count, due time, reason and first delivery are those of before."""
    headers = {"redelivery_delay": "1000", "redelivery_multiplier": "10", "max_attempts": "3"} | NO_JITTER
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(**headers)
        await broker.store_messages(b"poison")
        message = await subscriber.next_message()
        first_at = iso_time(broker.clock.now_ns())
        refused_ns = await refuse(broker, subscriber, message)
        await jump_to(broker, mock_clock, refused_ns + 1001 * MS)
        refused_ns = await refuse(broker, subscriber, await subscriber.next_message(), reason="no paper")
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(**headers)
        await jump_to(broker, mock_clock, refused_ns + 9999 * MS)
        await broker.expect_silence(subscriber)
        await jump_to(broker, mock_clock, refused_ns + 10_001 * MS)
        message = await subscriber.next_message()
        assert history(message) == ("true", "3", "no paper")
        assert message.headers["first-delivered-at"] == first_at

        await refuse(broker, subscriber, message)

        (letter,) = await letters_of(broker)
        assert letter.headers["dead-letter-attempts"] == "3"
        assert letter.headers["dead-letter-first-attempt-at"] == first_at


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_durable_subscription_keeps_its_policy_over_a_restart(is_killed: bool, store_directory: Path) -> None:
    headers: dict[str, Any] = {
        "redelivery_delay": "5",
        "redelivery_multiplier": "1.5",
        "redelivery_max_delay": "70",
        "redelivery_jitter": "0.25",
        "max_attempts": "3",
        "ack_deadline": "1000",
        "when_used_up": "discard",
    }
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(**headers)
        before = subscription_of(broker, subscriber).wishes.laid_over(DeliveryPolicy())
        if is_killed:
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        (subscription,) = broker.registry.durable.values()
        assert subscription.wishes.laid_over(DeliveryPolicy()) == before
    assert before == DeliveryPolicy(
        first_delay_ms=5,
        multiplier=1.5,
        max_delay_ms=70,
        jitter=0.25,
        max_attempts=3,
        ack_deadline_ms=1000,
        when_used_up=WhenUsedUp.DISCARD,
    )


@pytest.mark.parametrize("is_killed", [True, False])
async def test_subscribing_again_replaces_the_policy_also_after_a_restart(
    is_killed: bool, store_directory: Path, mock_clock: MockClock
) -> None:
    """What a client does not say any more is as the topic has it."""
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber(max_attempts="2", redelivery_delay="60000", **NO_JITTER)).vanish()
        subscriber = await broker.durable_subscriber(max_attempts="3")
        assert dict(subscription_of(broker, subscriber).wishes.changed) == {"max_attempts": 3}
        await broker.settle()
        if is_killed:
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        (subscription,) = broker.registry.durable.values()
        assert dict(subscription.wishes.changed) == {"max_attempts": 3}


async def test_a_replaced_policy_counts_for_what_has_failed_before(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """It waits as long as it was to wait; whether it is used up is judged when that is over."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(max_attempts="10", redelivery_delay="60000", **NO_JITTER)
        await broker.store_messages(b"poison")
        refused_ns = await refuse(broker, subscriber, await subscriber.next_message())
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(max_attempts="1")
        await jump_to(broker, mock_clock, refused_ns + 59_999 * MS)
        assert await letters_of(broker) == []
        await jump_to(broker, mock_clock, refused_ns + 60_001 * MS)

        assert [letter.body for letter in await letters_of(broker)] == [b"poison"]
        await broker.expect_silence(subscriber)


async def test_what_waits_for_a_minute_is_not_sent_by_jumps_that_end_before(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    await (await broker.client()).publish(b"1")
    refused_ns = await refuse(broker, subscriber, await subscriber.next_message(), delay="60000")

    await sleep_until(broker, refused_ns + 60 * S - 1 * MS)
    await subscriber.expect_nothing()
    await sleep_until(broker, refused_ns + 60 * S + 1 * MS)

    assert await subscriber.next_bodies(1) == [b"1"]
