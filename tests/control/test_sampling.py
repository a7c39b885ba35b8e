"""What flows, measured from time to time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio

from stompbroker.clock import NANOSECONDS
from stompbroker.control import ControlError, looking
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.control import Sample
    from tests.support.broker_under_test import BrokerUnderTest


async def test_rates_are_what_the_counters_grew_by(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    sampler = broker.parts.control.sampler
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    first = await sampler.take()
    await trio.sleep(2)
    await publisher.publish(*[b"12345"] * 10)
    await subscriber.acknowledge(*await subscriber.next_messages(10))
    second = await sampler.take()

    assert first.totals["published"] == 0
    assert set(first.rates.values()) == {0.0}
    assert second.rates["published"] == pytest.approx(5)
    assert second.rates["published_bytes"] == pytest.approx(25)
    assert second.rates["delivered"] == second.rates["acked"] == pytest.approx(5)
    (topic,) = broker.registry.topics.values()
    (subscription,) = broker.registry.subscriptions
    assert second.rates_of(topic) == pytest.approx((5, 25))
    assert second.rates_of(subscription) == pytest.approx((5, 5))
    assert second.rates["connections_opened"] == 0


async def test_what_is_new_has_no_rate_yet(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    sampler = broker.parts.control.sampler
    await sampler.take()
    await trio.sleep(1)
    publisher = await broker.client()
    await publisher.publish(b"1")
    await publisher.sync()
    sample = await sampler.take()
    (flow,) = sample.flows.values()
    assert (flow.counts, flow.rates) == ((1, 1), (0.0, 0.0))
    assert sample.rates["published"] == pytest.approx(1)


async def test_it_is_taken_seldom_and_often_while_somebody_watches(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    sampler = broker.parts.control.sampler

    async def count_in(duration_s: float) -> int:
        seen = {sampler.latest.at_ns}
        ends_at_s = trio.current_time() + duration_s
        while trio.current_time() < ends_at_s:
            await trio.sleep(0.1)
            seen.add(sampler.latest.at_ns)
        return len(seen) - 1

    assert await count_in(20) == 4
    sampler.watchers += 1
    assert await count_in(20) == 20
    sampler.watchers -= 1
    assert await count_in(20) == 4


async def test_for_one_who_seldom_asks_recent_is_no_older_than_a_second_and_keeps_the_rates(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    sampler = broker.parts.control.sampler
    publisher = await broker.client()
    assert (await sampler.take()).totals["connections_opened"] == 1
    await trio.sleep(1)
    await publisher.publish(*[b"x"] * 10)
    await publisher.sync()
    taken = await sampler.take()
    await trio.sleep(1.1)
    await publisher.publish(*[b"x"] * 10)
    await publisher.sync()

    recent = await sampler.recent()
    assert recent.totals["published"] == 20
    assert recent.rates == taken.rates
    assert recent.rates["published"] == pytest.approx(10)
    assert sampler.latest is taken, "the next rates are over the whole time since"
    assert await sampler.recent() is recent


async def test_whoever_keeps_asking_has_a_sample_taken_every_second(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    sampler = broker.parts.control.sampler
    taken = set()
    for _ in range(100):
        sample = await sampler.recent()
        taken.add(sampler.latest.at_ns)
        assert broker.clock.now_ns() - sample.at_ns < 1.1 * NANOSECONDS
        await trio.sleep(0.1)
    assert 9 <= len(taken) <= 11


async def test_whoever_asks_while_a_sample_is_taken_gets_the_one_before(
    monkeypatch: pytest.MonkeyPatch, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(looking, "STEP_S", -1.0)
    client = await broker.client()
    for number in range(20):
        await client.subscribe(f"/topic/t{number}", id=str(number))
    sampler = broker.parts.control.sampler
    before = await sampler.take()
    await trio.sleep(1.5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sampler.take)
        await trio.sleep(0.01)
        assert await sampler.recent() is before
    assert sampler.latest is not before


async def test_no_total_ever_falls_whatever_goes_while_it_is_looked(
    monkeypatch: pytest.MonkeyPatch, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Counters of what is gone are kept apart: whoever reads the one before and the other behind counts twice, and then
    sees a counter fall, which Prometheus takes for a restart."""
    monkeypatch.setattr(looking, "STEP_S", -1.0)  # a checkpoint behind every row
    monkeypatch.setattr(looking, "LEAVE_S", 0.0)
    sampler, registry = broker.parts.control.sampler, broker.registry
    clients = [await broker.client() for _ in range(20)]
    for number, client in enumerate(clients):
        for name in ("0", "1"):
            await client.subscribe(f"/topic/t{number}", id=name)
        await client.publish(b"1", b"2", destination=f"/topic/t{number}")
        await client.next_messages(4)
    samples: list[Sample] = []
    is_done = False

    async def look() -> None:
        while not is_done:
            samples.append(await sampler.take())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        for client, topic in zip(clients, list(registry.topics.values()), strict=True):
            for name in ("0", "1"):
                await client.send("UNSUBSCRIBE", id=name, receipt="gone")
                await client.expect_receipt("gone")
            now_ns = broker.clock.now_ns()
            assert registry.collect(topic, now_ns, unused_since_ns=now_ns)
        is_done = True
    samples.append(await sampler.take())

    assert not registry.topics
    assert len(samples) > 2
    for sample in samples:
        assert (sample.totals["published"], sample.totals["published_bytes"]) == (40, 40)
        assert (sample.totals["delivered"], sample.totals["acked"]) == (80, 80)
    for before, after in pairwise(samples):
        for name, count in before.totals.items():
            assert after.totals[name] >= count, name


async def test_who_looks_at_the_same_time_waits_and_gets_what_is_newest(
    monkeypatch: pytest.MonkeyPatch, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(looking, "STEP_S", -1.0)
    client = await broker.client()
    for number in range(20):
        await client.subscribe(f"/topic/t{number}", id=str(number))
    sampler = broker.parts.control.sampler
    taken: list[int] = []

    async def look() -> None:
        taken.append((await sampler.take()).at_ns)

    await trio.sleep(1)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(look)
    assert taken == sorted(taken)
    assert sampler.latest.at_ns == taken[-1]


async def test_gauges_are_sums_over_what_there_is(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        durable = await broker.durable_subscriber()
        await (await broker.durable_subscriber(client_id="away")).vanish()
        await broker.store_messages(*[b"x"] * 5)
        first, *_ = await durable.next_messages(5)
        await durable.send("NACK", id=first.headers["ack"], delay="60000")
        await durable.sync()
        await broker.settle()
        sample = await broker.parts.control.sampler.take()
        assert (sample.in_flight, sample.waiting, sample.backlog) == (4, 1, 6)


async def test_an_exact_overview_counts_what_came_a_moment_ago(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    control, publisher = broker.parts.control, await broker.client()
    await control.call("overview", {})
    await publisher.publish(b"1", b"2")
    await publisher.sync()

    recent, exact = await control.call("overview", {}), await control.call("overview", {"exact": True})

    assert (recent["totals"]["published"], exact["totals"]["published"]) == (0, 2)
    with pytest.raises(ControlError, match="exact is true or false"):
        await control.call("overview", {"exact": "yes"})
