"""The last hour of the broker and of what is busiest in it."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from math import isnan
from typing import TYPE_CHECKING, Any

import pytest
import trio

from stompbroker.clock import NANOSECONDS
from stompbroker.control import ControlError, NotFound, history
from stompbroker.control.history import POINTS, STEP_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.testing import MockClock

    from stompbroker.control import Control
    from tests.support.broker_under_test import BrokerUnderTest, Client


async def points_of(broker: BrokerUnderTest, **of: Any) -> list[dict[str, Any]]:
    """Each with its time in seconds and its values by name."""
    broker.parts.control.sampler.history.check_invariants()
    answer = await broker.parts.control.call("history", of)
    return [
        {"at": datetime.fromisoformat(point["at"]).timestamp()}
        | dict(zip(answer["names"], point["values"], strict=True))
        for point in answer["points"]
    ]


async def is_kept(control: Control, **of: Any) -> bool:
    answer = await control.call("history", of)
    assert answer["is_kept"] or not answer["points"]
    return bool(answer["is_kept"])


async def publish_to(publisher: Client, topics: Sequence[str], *, times: int = 1) -> None:
    for topic in topics:
        await publisher.publish(*[b"x"] * times, destination=f"/topic/{topic}")
    await publisher.sync()


async def test_a_rate_is_what_a_counter_grew_by_since_the_point_before_however_often_it_was_sampled(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    sampler, publisher = broker.parts.control.sampler, await broker.client()
    await trio.sleep(6)
    sampler.watchers += 1
    for _ in range(20):
        await publish_to(publisher, ["a"], times=3)
        await trio.sleep(1)

    points = await points_of(broker)

    assert points[0]["published"] is None, "no point is before the first"
    assert [after["at"] - before["at"] for before, after in pairwise(points)] == pytest.approx(
        [STEP_S] * (len(points) - 1), abs=0.01
    )
    assert [point["published"] for point in points[2:]] == pytest.approx([3] * len(points[2:]), abs=0.01)
    assert [point["backlog"] for point in points] == [0] * len(points)


async def test_it_holds_an_hour_and_no_more(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    publisher = await broker.client()
    for _ in range(400):
        await publish_to(publisher, ["a"])
        await trio.sleep(10)

    now_s = broker.clock.now_ns() / NANOSECONDS
    for points in (await points_of(broker), await points_of(broker, of="topic", name="a")):
        assert POINTS - 1 <= len(points) <= POINTS
        assert now_s - 3600 <= points[0]["at"] + 0.001, "they are told to the millisecond"
        assert points[0]["at"] < now_s - 3590
        assert now_s - 5.1 <= points[-1]["at"] <= now_s
        assert sum(point["published"] * STEP_S for point in points) == pytest.approx(360, abs=1.1)
    # Whether the last one is there already is a matter of which task runs first.
    assert len(await points_of(broker, seconds=58)) in (11, 12)


async def test_a_time_without_samples_is_a_gap_and_not_a_zero(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher, subscriber = await broker.client(), await broker.subscriber("/topic/a")
    await trio.sleep(11)
    await publish_to(publisher, ["a"])
    await trio.sleep(11)
    sampler = broker.parts.control.sampler
    async with sampler._turn:  # as if the process were stopped
        await publish_to(publisher, ["a"], times=60)
        await trio.sleep(60)
    await trio.sleep(6)
    await subscriber.next_messages(61)

    (subscription,) = broker.registry.subscriptions
    for of in ({}, {"of": "topic", "name": "a"}, {"of": "subscription", "name": subscription.public_id}):
        points = await points_of(broker, **of)
        (gap,) = [number for number, point in enumerate(points) if number and set(list(point.values())[1:]) == {None}]
        before, empty, after = points[gap - 1 : gap + 2]
        assert before["at"] < empty["at"] < after["at"]
        assert after["at"] - before["at"] > 50
        name = "delivered" if "delivered" in after and "published" not in after else "published"
        assert after[name] == pytest.approx(60 / (after["at"] - before["at"]), abs=0.06), "over the whole time"


async def test_the_busiest_have_a_history_and_those_that_were_keep_theirs_until_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(history, "BUSIEST", 2)
    monkeypatch.setattr(history, "KEPT", 4)
    control, publisher = broker.parts.control, await broker.client()
    everything = [f"t{number}" for number in range(6)]
    await publish_to(publisher, everything)
    await trio.sleep(6)

    async def kept_after(*busy: str) -> list[str]:
        """Topics with a history, after these have been busiest."""
        for _ in range(2):
            await publish_to(publisher, busy, times=10)
            await publish_to(publisher, everything)
            await trio.sleep(5)
        control.sampler.history.check_invariants()
        return [name for name in everything if await is_kept(control, of="topic", name=name)]

    assert await kept_after("t0", "t1") == ["t0", "t1"]
    assert await kept_after("t2", "t3") == ["t0", "t1", "t2", "t3"]
    assert await kept_after("t0", "t2") == ["t0", "t1", "t2", "t3"]
    before = len(await points_of(broker, of="topic", name="t0"))
    assert await kept_after("t0", "t5") == ["t0", "t2", "t3", "t5"], "t1 is the one longest not among them"
    assert len(await points_of(broker, of="topic", name="t0")) == before + 2, "none of what it had is lost"
    (last,) = (await points_of(broker, of="topic", name="t2"))[-1:]
    assert last["published"] == pytest.approx(0.2), "it is not among the busiest, and still recorded"


async def test_a_queue_and_a_subscription_have_a_history_with_their_backlog(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher = await broker.client()
    worker = await broker.client()
    await worker.subscribe("/queue/jobs", ack="client-individual", prefetch_count="2")
    await trio.sleep(6)
    await publisher.publish(*[b"x"] * 10, destination="/queue/jobs")
    await publisher.sync()
    await trio.sleep(11)

    *_, last = await points_of(broker, of="topic", name="/queue/jobs")
    assert (last["backlog"], last["in_flight"]) == (8, 2)
    (subscription,) = broker.registry.subscriptions
    *_, last = await points_of(broker, of="subscription", name=subscription.public_id)
    assert (last["backlog"], last["in_flight"]) == (8, 2)


async def test_what_is_gone_is_forgotten_with_the_next_sample(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    control, client = broker.parts.control, await broker.client()
    await client.subscribe("/topic/a", id="1")
    await trio.sleep(6)
    await client.publish(b"x")
    await client.next_message()
    await trio.sleep(6)
    (subscription,) = broker.registry.subscriptions
    assert await is_kept(control, of="subscription", name=subscription.public_id)

    await client.send("UNSUBSCRIBE", id="1", receipt="gone")
    await client.expect_receipt("gone")
    await control.sampler.take()

    assert control.sampler.history.points(subscription, 0) is None
    with pytest.raises(NotFound):
        await control.call("history", {"of": "subscription", "name": subscription.public_id})


async def test_points_do_not_change_once_they_are_given(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    kept = broker.parts.control.sampler.history
    await trio.sleep(11)
    given = kept.points(None, 0)
    count = kept.end
    await trio.sleep(2 * 3600)

    assert given is not None
    listed = list(given)
    assert len(listed) == count
    assert all(isnan(value) for value in listed[0][1][:1])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"of": "queue"}, "of is one of broker, topic, subscription, not 'queue'"),
        ({"of": "topic"}, "name says which topic or subscription"),
        ({"name": "a"}, "of=broker has none"),
        ({"of": "topic", "name": "none"}, "there is no topic 'none'"),
        ({"of": "topic", "name": "/queue/none"}, "there is no queue 'none'"),
        ({"of": "subscription", "name": "none"}, "there is no subscription 'none'"),
        ({"seconds": 0}, "seconds is a whole number from 1 to 3600, not 0"),
        ({"seconds": 3601}, "seconds is a whole number from 1 to 3600"),
    ],
)
async def test_what_cannot_be_asked_is_refused(
    broker: BrokerUnderTest, autojump_clock: MockClock, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(ControlError, match=said):
        await broker.parts.control.call("history", asked)
