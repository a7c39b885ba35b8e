"""Queues and groups over HTTP: their names have slashes, and whoever may not read them must not learn of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from stompbroker.management.endpoints import ENDPOINTS
from tests.management.asker import API, asking, served
from tests.management.test_metrics import by_label, scrape, value
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.management.asker import Asker
    from tests.support.broker_under_test import BrokerUnderTest, Client

#: With a sign that must be quoted, and one that looks quoted.
QUEUE = "/queue/jobs.50%25 é"


async def consumer(broker: BrokerUnderTest, destination: str = QUEUE, **headers: Any) -> Client:
    return await broker.subscriber(destination, **{"ack": "client-individual", **headers})


async def refuse_for_good(broker: BrokerUnderTest, client: Client, count: int = 1) -> list[str]:
    """The next messages become dead letters; the ids of those."""
    messages = await client.next_messages(count)
    for message in messages:
        await client.send("NACK", id=message.headers["ack"], requeue="false", reason="no")
    await client.sync()
    await broker.settle()
    return [message.headers["message-id"] for message in messages]


@pytest.mark.parametrize("is_over_tcp", [True, False])
async def test_a_queue_is_named_in_a_path_with_its_slashes_quoted(
    durable_broker: BrokerUnderTest, is_over_tcp: bool
) -> None:
    broker, path = durable_broker, quote(QUEUE, safe="")
    one = await consumer(broker)
    await broker.store_messages(b"0", b"1", b"2", destination=QUEUE)
    first, *_ = await refuse_for_good(broker, one, 3)
    async with served(broker) if is_over_tcp else asking(broker) as ask:
        assert (await ask.get(f"/topics/{path}"))["destination"] == QUEUE
        traced = await ask.get(f"/topics/{path}/messages/{first}")
        assert [each["topic"] for each in traced["found"]][-1] == "/queue/DLQ.jobs.50%25 é"
        assert [each["topic"] for each in (await ask.get("/dead-letters"))["topics"]] == [QUEUE]
        listed = await ask.get(f"/dead-letters/{path}")
        assert [letter["offset"] for letter in listed["letters"]] == [0, 1, 2]
        assert (await ask.get(f"/dead-letters/{path}/0"))["destination"] == QUEUE
        assert (await ask.post(f"/dead-letters/{path}/redrive", offset=1))["redriven"] == 1
        assert (await one.next_message()).body == b"1"
        assert (await ask.post(f"/dead-letters/{path}/redrive", offset=2, to="topic"))["redriven"] == 1
        assert (await one.next_message()).body == b"2"
        assert (await ask.post(f"/dead-letters/{path}/purge"))["purged"] == 1
        assert (await ask.get("/dead-letters"))["topics"] == []
        assert (await ask.get("/collector", topic=QUEUE))["topics"][0]["topic"] == QUEUE
        assert (await ask.get("/subscriptions", topic=QUEUE))["total"] == 1


async def test_a_slash_that_is_not_quoted_separates(durable_broker: BrokerUnderTest) -> None:
    await consumer(durable_broker, "/queue/jobs")
    async with asking(durable_broker) as ask:
        for path in ("//queue/jobs", "/queue/jobs", "/%2Fqueue/jobs"):
            await ask.refused(404, "GET", f"{API}/topics{path}", "nothing at this address")
        await ask.refused(404, "GET", f"{API}%2Ftopics", "nothing at this address")
        for path in ("/topics/%2fqueue%2fjobs", "/%74opics/%2Fqueue%2Fjobs"):
            assert (await ask.client.get(API + path)).status_code == 200, path


async def test_members_of_groups_are_counted_and_queues_told_apart_in_metrics(
    durable_broker: BrokerUnderTest,
) -> None:
    broker = durable_broker
    for _ in range(2):
        await consumer(broker, "/queue/jobs")
    for _ in range(3):
        await consumer(broker, "/topic/jobs", group="workers")
    await broker.store_messages(b"1", destination="/queue/jobs")
    await broker.store_messages(b"1", b"2", destination="/topic/jobs")
    await broker.parts.control.sampler.take()
    async with asking(broker) as ask:
        families = await scrape(ask)

    assert by_label(families, "stompbroker_subscription_members", "destination") == {"/queue/jobs": 2, "/topic/jobs": 3}
    assert by_label(families, "stompbroker_subscription_members", "kind") == {"queue": 2, "topic": 3}
    for kind, published in (("queue", 1), ("topic", 2)):
        assert value(families, "stompbroker_topic_published_total", topic="jobs", kind=kind) == published
    assert (value(families, "stompbroker_topics"), value(families, "stompbroker_queues")) == (2, 1)


# Who may not read them ------------------------------------------------------------------------------------------------


@pytest.fixture
async def guarded(store_directory: Path) -> AsyncIterator[BrokerUnderTest]:
    """With an open and a hidden queue and topic; their dead letters are hidden from `wanda`, not from `dora`."""
    users = store_directory / "users.toml"
    everything = [">", "DLQ.>", "queue:>", "queue:DLQ.>"]
    add_user(users, "app", read=everything, write=everything)
    add_user(users, "wanda", roles=["viewer"], read=["open.>", "queue:open.>"])
    add_user(users, "dora", roles=["operator"], read=["queue:open.>", "queue:DLQ.open.>"], manage=["queue:DLQ.open.>"])
    add_user(users, "tom", roles=["viewer"], read=[">", "DLQ.>"])
    async with running_broker(store_in=store_directory) as broker:
        for name in ("secret", "open"):
            for destination in (f"/queue/{name}.jobs", f"/topic/{name}.jobs"):
                client = await broker.client(login="app", passcode=PASSWORD)
                headers = {"group": f"{name}-group"} if "topic" in destination else {}
                await client.subscribe(destination, ack="client-individual", **headers)
                await client.publish(b"1", b"2", destination=destination)
                await client.next_messages(1)
                await refuse_for_good(broker, client)
        yield broker


def asking_as(broker: BrokerUnderTest, user: str) -> Any:
    return asking(broker, auth=(user, PASSWORD))


async def destinations(ask: Asker, resource: str, **query: str) -> list[str]:
    answer = await ask.get(f"/{resource}", **query)
    assert answer["total"] == len(answer[resource])
    return sorted(each["destination"] for each in answer[resource])


async def test_who_is_restricted_sees_the_queues_within_its_patterns_only(guarded: BrokerUnderTest) -> None:
    async with asking_as(guarded, "wanda") as ask:
        assert await destinations(ask, "topics") == ["/queue/open.jobs", "/topic/open.jobs"]
        assert await destinations(ask, "topics", kind="queue") == ["/queue/open.jobs"]
        assert await destinations(ask, "subscriptions", shared="true") == ["/queue/open.jobs", "/topic/open.jobs"]
        assert (await ask.get("/dead-letters"))["topics"] == []
    async with asking_as(guarded, "tom") as ask:
        assert await destinations(ask, "topics", kind="queue") == []
        assert await destinations(ask, "subscriptions") == ["/topic/open.jobs", "/topic/secret.jobs"]
        assert [each["topic"] for each in (await ask.get("/dead-letters"))["topics"]] == ["open.jobs", "secret.jobs"]


async def test_dead_letters_of_a_queue_are_not_even_counted_for_whoever_may_not_read_them(
    guarded: BrokerUnderTest,
) -> None:
    for user, letters in (("wanda", None), ("dora", 1)):
        async with asking_as(guarded, user) as ask:
            (listed,) = (await ask.get("/topics", kind="queue", q="/queue/open"))["topics"]
            shown = await ask.get("/topics/%2Fqueue%2Fopen.jobs")
            assert (listed["dead_letters"], shown["dead_letters"]) == (letters, letters), user


async def test_who_is_restricted_is_not_told_who_the_members_are(guarded: BrokerUnderTest) -> None:
    async with asking_as(guarded, "wanda") as ask:
        for one in (await ask.get("/subscriptions"))["subscriptions"]:
            (member,) = (await ask.get(f"/subscriptions/{one['id']}"))["consumers"]
            assert [member[name] for name in ("connection", "peer", "member", "in_flight")] == [None, None, None, 1]


async def test_redriving_a_queue_needs_permission_for_both_and_purging_for_one(guarded: BrokerUnderTest) -> None:
    async with asking_as(guarded, "dora") as ask:
        letters = "/dead-letters/%2Fqueue%2Fopen.jobs"
        listed = await ask.get(letters)
        assert (listed["can_redrive"], listed["can_purge"]) == (False, True)
        await ask.refused(403, "POST", f"{API}{letters}/redrive", "to manage /queue/open.jobs")
        assert (await ask.post(f"{letters}/purge"))["purged"] == 1


async def test_a_hidden_queue_is_answered_as_if_it_did_not_exist(guarded: BrokerUnderTest) -> None:
    ids = {each.destination: each.public_id for each in guarded.registry.subscriptions}
    hidden = {
        "name": "/queue/secret.jobs",
        "topic": "/queue/secret.jobs",
        "id": ids["/queue/secret.jobs"],
        "q": "secret",
    }
    shown = {"message_id": "none", "offset": "0", "name": "/queue/open.jobs", "topic": "/queue/open.jobs"}
    shown["id"] = ids["/queue/open.jobs"]
    async with asking_as(guarded, "wanda") as ask:
        for endpoint in ENDPOINTS:
            if endpoint.method != "GET":
                continue
            for name in (each for each in (*endpoint.in_path, *endpoint.in_query) if each in hidden):
                answers = []
                for text in (hidden[name], f"{hidden[name]}0"):
                    names = {key: quote(each, safe="") for key, each in (shown | {name: text}).items()}
                    query = {name: text} if name in endpoint.in_query else {}
                    answer = await ask.client.get(API + endpoint.path.format(**names), params=query)
                    said = answer.text.replace(text, "NAME").replace(text.removeprefix("/queue/"), "NAME")
                    answers.append((answer.status_code, said))
                assert answers[0] == answers[1], (endpoint, name)
                assert "secret" not in answers[0][1]
