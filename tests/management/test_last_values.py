"""Operators list last values, look at one, and take them away; who may not read or manage a topic does not."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs

from stompbroker.control import Unavailable
from stompbroker.stomp import Version
from tests.management.asker import API, asking
from tests.management.test_metrics import scrape, value
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from tests.management.asker import Asker
    from tests.support.broker_under_test import BrokerUnderTest


async def keep(broker: BrokerUnderTest, values: dict[str, bytes], **headers: str) -> None:
    publisher = await broker.client(Version.V1_2, **headers)
    for topic, body in values.items():
        await publisher.publish(body, destination=f"/topic/{topic}", retain="set")
    await publisher.sync()
    await publisher.vanish()


def topics_in(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    return [one["topic"] for one in answer["last_values"]]


async def all_topics(ask: Asker) -> list[str]:
    return topics_in(await ask.get("/last-values"))


# Looking --------------------------------------------------------------------------------------------------------------


async def test_they_are_listed_filtered_sorted_and_in_pages(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    for topic, body in (("prices.usd", b"12345"), ("other", b"1"), ("prices.eur", b"123")):
        await keep(broker, {topic: body})
        await trio.sleep(1)
    async with asking(broker) as ask:
        listed = await ask.get("/last-values")
        assert (listed["total"], topics_in(listed)) == (3, ["other", "prices.eur", "prices.usd"])
        assert topics_in(await ask.get("/last-values", sort="-published_at")) == ["prices.eur", "other", "prices.usd"]
        assert topics_in(await ask.get("/last-values", sort="-body_bytes")) == ["prices.usd", "prices.eur", "other"]
        assert topics_in(await ask.get("/last-values", pattern="/topic/prices.*")) == ["prices.eur", "prices.usd"]
        assert topics_in(await ask.get("/last-values", pattern="other")) == ["other"]
        assert topics_in(await ask.get("/last-values", pattern="prices.>", q="USD")) == ["prices.usd"]

        first = await ask.get("/last-values", limit=2)
        await keep(broker, {"aaa": b"new"})  # before the next page
        rest = await ask.get("/last-values", limit=2, cursor=first["next_cursor"])
        assert topics_in(first) + topics_in(rest) == ["other", "prices.eur", "prices.usd"]


async def test_one_is_shown_whole_and_with_its_topic(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    publisher = await broker.client()
    await publisher.publish(b"\x00\xff", destination="/topic/prices.eur", retain="set", unit="a\nb", ttl="60000")
    await publisher.sync()
    async with asking(broker) as ask:
        shown = await ask.get("/last-values/prices.eur")
        (listed,) = (await ask.get("/last-values"))["last_values"]
        topic = await ask.get("/topics/prices.eur")
        await publisher.publish(b"x", destination="/topic/plain")
        await publisher.sync()
        assert (await ask.get("/topics/plain"))["last_value"] is None
        for name in ("plain", "none", "%2Fqueue%2Fjobs"):
            await ask.refused(404, "GET", f"{API}/last-values/{name}", "there is no last value of")

    assert (shown["body"], shown["body_bytes"], shown["can_remove"]) == ("AP8=", 2, True)
    assert ["unit", "a\nb"] in shown["headers"]
    assert shown["expires_at"] > shown["published_at"]
    assert shown["stored"] is False, "this broker has no store"
    assert listed == {name: shown[name] for name in listed}
    assert topic["last_value"] == listed


async def test_an_expired_value_is_not_there(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    publisher = await broker.client()
    await publisher.publish(b"x", destination="/topic/prices.eur", retain="set", ttl="1")
    await publisher.sync()
    (value_there,) = broker.registry.last_values
    async with asking(broker) as ask:
        await trio.sleep(0.01)
        assert value_there in list(broker.registry.last_values), "the collector has not been there"
        assert await all_topics(ask) == []
        await ask.refused(404, "GET", f"{API}/last-values/prices.eur")
        assert (await ask.post("/last-values/purge", pattern=">"))["purged"] == 0


# Removing -------------------------------------------------------------------------------------------------------------


async def test_a_removed_value_is_gone_for_good_when_that_is_answered(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
        await keep(broker, {"prices.eur": b"1", "prices.usd": b"2"})
        with capture_logs() as lines:
            removed = await ask.delete("/last-values/prices.eur")
        assert (removed["topic"], removed["stored"]) == ("prices.eur", True)
        assert broker.look("SELECT name FROM last_values") == [("prices.usd",)]
        await ask.refused(404, "DELETE", f"{API}/last-values/prices.eur", "no last value of 'prices.eur'")
        newcomer = await broker.subscriber("/topic/prices.>")
        assert await newcomer.next_bodies(1) == [b"2"]
        await newcomer.sync()
        broker.kill()
    assert [line["what"] for line in lines if line["event"] == "operator action"] == [
        'remove_last_value {"topic":"prices.eur"}'
    ]
    async with running_broker(store_in=store_directory) as broker:
        assert [each.destination.name for each in broker.registry.last_values] == ["prices.usd"]


async def test_those_of_a_pattern_are_removed_in_portions(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
        await keep(broker, {f"prices.{number:02}": b"1" for number in range(25)} | {"other": b"2"})

        purged, after, is_complete = [], "", False
        while not is_complete:
            answer = await ask.post("/last-values/purge", pattern="prices.*", after=after, limit=10)
            purged.append(answer["purged"])
            after, is_complete = answer["after"], answer["is_complete"]
            assert broker.count("last_values") == len(await all_topics(ask))
            await keep(broker, {"prices.00": b"set again"})

        assert purged == [10, 10, 5]
        assert await all_topics(ask) == ["other", "prices.00"]
        assert (await ask.post("/last-values/purge", pattern="prices.00"))["purged"] == 1
        assert (await ask.post("/last-values/purge", pattern=">"))["purged"] == 1
        assert broker.count("last_values") == 0


async def test_what_is_wrong_is_refused_with_what_is_allowed(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    purge = f"{API}/last-values/purge"
    async with asking(broker) as ask:
        await ask.refused(400, "POST", purge, "missing: pattern")
        await ask.refused(400, "POST", purge, "only topics have last values", json={"pattern": "/queue/jobs"})
        await ask.refused(400, "POST", purge, "from 1 to 1000", json={"pattern": ">", "limit": 1001})
        await ask.refused(400, "GET", f"{API}/last-values?pattern=/queue/jobs", "only topics have last values")
        await ask.refused(400, "GET", f"{API}/last-values?sort=size", "topic, published_at, body_bytes")
        await ask.refused(400, "GET", f"{API}/last-values/prices.%3E", "is a pattern")


async def test_a_topic_may_be_called_purge(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    await keep(broker, {"purge": b"1"})
    async with asking(broker) as ask:
        assert (await ask.get("/last-values/purge"))["topic"] == "purge"
        await ask.delete("/last-values/purge")
        assert await all_topics(ask) == []


async def test_nothing_is_removed_while_the_store_fails(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await keep(broker, {"prices.eur": b"1"})
        broker.journal.health.note_failing("the disk is away")
        for method, params in (("remove_last_value", {"topic": "prices.eur"}), ("purge_last_values", {"pattern": ">"})):
            with pytest.raises(Unavailable, match="the disk is away"):
                await broker.parts.control.call(method, params)
        assert len(broker.registry.last_values) == 1
        broker.kill()


# Who may --------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def guarded(directory: Path) -> AsyncIterator[BrokerUnderTest]:
    users = directory / "users.toml"
    add_user(users, "app", read=[">"], write=[">"])
    add_user(users, "vera", roles=["viewer"])
    add_user(users, "otto", roles=["operator"], read=["open.>"], manage=["open.eur"])
    add_user(users, "olga", roles=["operator"])
    async with running_broker(store_in=directory) as broker:
        values = {"open.eur": b"1", "open.usd": b"2", "secret": b"3"}
        await keep(broker, values, login="app", passcode=PASSWORD)
        yield broker


async def test_one_sees_what_one_may_read_and_removes_what_one_may_manage(store_directory: Path) -> None:
    async with guarded(store_directory) as broker:
        async with asking(broker, auth=("otto", PASSWORD)) as ask:
            listed = await ask.get("/last-values")
            assert (topics_in(listed), listed["total"]) == (["open.eur", "open.usd"], 2)
            assert (await ask.get("/last-values/open.usd"))["can_remove"] is False
            assert (await ask.get("/last-values/open.eur"))["can_remove"] is True
            for method in ("GET", "DELETE"):
                await ask.refused(404, method, f"{API}/last-values/secret", "there is no last value")
            await ask.refused(403, "DELETE", f"{API}/last-values/open.usd", "no permission to manage /topic/open.usd")
            for pattern in (">", "open.*", "secret"):
                await ask.refused(
                    403, "POST", f"{API}/last-values/purge", "no permission to manage", json={"pattern": pattern}
                )
            assert (await ask.post("/last-values/purge", pattern="open.eur"))["purged"] == 1
        async with asking(broker, auth=("vera", PASSWORD)) as ask:
            assert await all_topics(ask) == ["open.usd", "secret"]
            assert (await ask.get("/last-values/secret"))["can_remove"] is False
            await ask.refused(403, "DELETE", f"{API}/last-values/secret", "needs the role operator")
            await ask.refused(403, "POST", f"{API}/last-values/purge", "role operator", json={"pattern": ">"})
        async with asking(broker, auth=("olga", PASSWORD)) as ask:
            assert (await ask.post("/last-values/purge", pattern=">"))["purged"] == 2


# Numbers --------------------------------------------------------------------------------------------------------------


async def test_overview_and_metrics_say_how_many_and_how_large(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with running_broker(last_values_bytes=10_000) as small, asking(small) as ask:
        await keep(small, {"a": b"x" * 1_000, "b": b"y" * 2_000})
        overview, families = await ask.get("/overview"), await scrape(ask)
        size_bytes = small.registry.last_values.size_bytes

    assert 3_000 < size_bytes < 4_000
    assert overview["now"]["last_values"] == value(families, "stompbroker_last_values") == 2
    assert overview["memory"]["last_values_bytes"] == value(families, "stompbroker_last_values_bytes") == size_bytes
    assert overview["memory"]["last_values_limit_bytes"] == 10_000
    assert value(families, "stompbroker_last_values_limit_bytes") == 10_000
