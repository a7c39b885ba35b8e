"""What Prometheus gets agrees with the traffic, and is never too much."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stompbroker import __version__
from stompbroker.management.metrics import MAX_NAMED
from tests.management.asker import asking
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

    from tests.management.asker import Asker
    from tests.support.broker_under_test import BrokerUnderTest


async def scrape(ask: Asker) -> dict[str, Metric]:
    response = await ask.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = list(text_string_to_metric_families(response.text))
    samples = Counter((sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples)
    assert not [sample for sample, count in samples.items() if count > 1], "Prometheus refuses such a scrape"
    assert all(family.documentation for family in families)
    return {family.name: family for family in families}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    """Of a gauge or a counter."""
    found = families.get(name) or families[name.removesuffix("_total")]
    (sample,) = [sample for sample in found.samples if sample.name == name and labels.items() <= sample.labels.items()]
    return sample.value


def by_label(families: dict[str, Metric], name: str, label: str) -> dict[str, float]:
    return {
        sample.labels[label]: sample.value
        for sample in families[name.removesuffix("_total")].samples
        if sample.name == name
    }


async def test_counters_and_gauges_agree_with_the_traffic(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    subscriber = await broker.durable_subscriber()
    transient = await broker.subscriber()
    await broker.store_messages(*[b"0123456789"] * 10)
    messages = await subscriber.next_messages(10)
    await transient.next_messages(10)
    await subscriber.acknowledge(*messages[:4])
    await subscriber.send("NACK", id=messages[4].headers["ack"], delay="3600000")
    await subscriber.send("NACK", id=messages[5].headers["ack"], requeue="false")
    await subscriber.sync()
    await broker.settle()
    await broker.parts.control.sampler.take()
    async with asking(broker) as ask:
        families = await scrape(ask)
        public_id = (await ask.subscription(durable=True))["id"]

    assert value(families, "stompbroker_info", version=__version__) == 1
    assert value(families, "stompbroker_published_total") == 11, "ten, and a dead letter"
    assert value(families, "stompbroker_published_bytes_total") == 110
    assert value(families, "stompbroker_deliveries_delivered_total") == 20
    assert value(families, "stompbroker_deliveries_acked_total") == 14
    assert value(families, "stompbroker_deliveries_nacked_total") == 2
    assert value(families, "stompbroker_deliveries_dead_total") == 1
    assert value(families, "stompbroker_connections_opened_total") == 3
    assert value(families, "stompbroker_connections") == 2
    assert value(families, "stompbroker_topics") == 2
    assert value(families, "stompbroker_subscriptions") == 2
    assert value(families, "stompbroker_durable_subscriptions") == 1
    assert value(families, "stompbroker_memory_used_bytes") == broker.budget.used_bytes
    assert value(families, "stompbroker_store_batches_total") == broker.journal.batches
    assert by_label(families, "stompbroker_store_state", "state") == {
        "ok": 1,
        "low-space": 0,
        "failing": 0,
        "damaged": 0,
    }
    assert value(families, "stompbroker_store_damages_total") == 0
    assert by_label(families, "stompbroker_topic_published_total", "topic") == {"a": 10, "DLQ.a": 1}
    assert by_label(families, "stompbroker_topic_stored_messages", "topic")["DLQ.a"] == 1
    label = f"billing/orders#{public_id}"
    for name, expected in (
        *(("delivered_total", 10), ("acked_total", 4), ("nacked_total", 2), ("dead_total", 1)),
        *(("redelivered_total", 0), ("backlog", 1), ("in_flight", 4), ("waiting", 1)),
    ):
        assert value(families, f"stompbroker_subscription_{name}", subscription=label) == expected, name
    assert value(families, "stompbroker_subscription_acked_total", subscription=label, destination="/topic/a") == 4


async def test_histograms_count_every_delivery_and_every_batch(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    subscriber = await broker.durable_subscriber()
    await broker.store_messages(*[b"x"] * 7)
    await subscriber.acknowledge(*await subscriber.next_messages(7))
    await broker.settle()
    async with asking(broker) as ask:
        families = await scrape(ask)

    for name, count in (
        ("stompbroker_delivery_seconds", 7),
        ("stompbroker_ack_seconds", 7),
        ("stompbroker_commit_seconds", broker.journal.batches),
        ("stompbroker_batch_messages", broker.journal.batches),
    ):
        assert families[name].type == "histogram"
        buckets = [(sample.labels["le"], sample.value) for sample in samples(families[name], "_bucket")]
        bounds, counts = [float(bound) for bound, _ in buckets], [count for _, count in buckets]
        assert bounds == sorted(bounds)
        assert bounds[-1] == float("inf")
        assert counts == sorted(counts)
        ((total,), (total_sum,)) = (
            [sample.value for sample in samples(families[name], suffix)] for suffix in ("_count", "_sum")
        )
        assert total == counts[-1] == count
        assert 0 <= total_sum < 60 * count, "nothing took a minute"
    assert [sample.value for sample in samples(families["stompbroker_batch_messages"], "_sum")] == [7]


def samples(family: Metric, suffix: str) -> Iterator[Sample]:
    return (sample for sample in family.samples if sample.name == family.name + suffix)


async def test_a_broker_without_a_store_has_no_numbers_of_one() -> None:
    async with running_broker() as broker, asking(broker) as ask:
        families = await scrape(ask)
    assert "stompbroker_commit_seconds" not in families
    assert value(families, "stompbroker_published_total") == 0


async def test_the_busiest_have_names_and_the_rest_is_other() -> None:
    async with running_broker() as broker, asking(broker) as ask:
        client = await broker.client()
        # The n-th topic gets n messages; subscribers get everything.
        for number in range(150):
            await client.subscribe(f"/topic/t{number}", id=f"s{number}", ack="client-individual")
        for number in range(150):
            await client.publish(*[b"xy"] * number, destination=f"/topic/t{number}")
        await client.next_messages(sum(range(150)))
        await broker.parts.control.sampler.take()
        families = await scrape(ask)

    published = by_label(families, "stompbroker_topic_published_total", "topic")
    assert len(published) == MAX_NAMED + 1
    assert published == {f"t{number}": number for number in range(50, 150)} | {"other": sum(range(50))}
    assert sum(published.values()) == value(families, "stompbroker_published_total") == sum(range(150))
    kept = by_label(families, "stompbroker_topic_kept_messages", "topic")
    assert sum(kept.values()) == sum(range(150))
    delivered = by_label(families, "stompbroker_subscription_delivered_total", "subscription")
    assert len(delivered) == MAX_NAMED + 1
    assert delivered["other"] == sum(range(50))
    assert sum(delivered.values()) == value(families, "stompbroker_deliveries_delivered_total") == sum(range(150))
    in_flight = by_label(families, "stompbroker_subscription_in_flight", "subscription")
    assert sum(in_flight.values()) == sum(range(150))
    assert sum(len(family.samples) for family in families.values()) < 2200, "however many there are"


@pytest.mark.parametrize("topics", [2, 120])
async def test_a_topic_that_is_called_other_is_among_the_others(topics: int) -> None:
    async with running_broker() as broker, asking(broker) as ask:
        client = await broker.client()
        await client.publish(*[b"x"] * 1000, destination="/topic/other")
        for number in range(1, topics):
            await client.publish(*[b"x"] * 2, destination=f"/topic/t{number}")
        await client.sync()
        published = by_label(await scrape(ask), "stompbroker_topic_published_total", "topic")

    named = min(topics - 1, MAX_NAMED)
    assert published.pop("other") == 1000 + 2 * (topics - 1 - named)
    assert list(published.values()) == [2] * named


async def test_names_that_are_no_plain_text_do_not_break_the_format() -> None:
    destination = '/topic/a"b\\c{d="e"} \u2028\u00e9'
    async with running_broker() as broker, asking(broker) as ask:
        client = await broker.client()
        await client.subscribe(destination, id='x"\n1\\')
        await client.publish(b"1", destination=destination)
        await client.next_message()
        families = await scrape(ask)
    name = destination.removeprefix("/topic/")
    assert by_label(families, "stompbroker_topic_published_total", "topic") == {name: 1}
    ((label, delivered),) = by_label(families, "stompbroker_subscription_delivered_total", "subscription").items()
    assert (label.partition("#")[0], delivered) == ('x"\n1\\', 1)
