"""A record of a delivery to a group or queue says which member had it, and is there once, whoever meets on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.ledger.recorded import recorded
from tests.support.broker_under_test import A_LOOK_S, running_broker
from tests.support.redelivery import MS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest, Client

JOBS = "/queue/jobs"


@pytest.fixture
async def broker(store_directory: Path) -> AsyncIterator[BrokerUnderTest]:
    async with running_broker(store_in=store_directory, redelivery_first_delay_ms=0) as running:
        yield running


async def member(broker: BrokerUnderTest, name: str, destination: str = JOBS, **headers: Any) -> Client:
    client = await broker.client(client_id=name)
    await client.subscribe(destination, **{"ack": "client-individual", **headers})
    return client


async def put(broker: BrokerUnderTest, *bodies: bytes, **headers: str) -> None:
    await broker.store_messages(*bodies, destination=JOBS, **headers)


async def had(broker: BrokerUnderTest, topic: str = "jobs") -> list[tuple[int, str, str | None]]:
    """Offset, outcome and member of every record, when all of them are written."""
    await broker.settle()
    return sorted((row["offset"], row["outcome"], row["member"]) for row in recorded(broker, topic))


# Who acknowledged, or was sent ----------------------------------------------------------------------------------------


async def test_each_delivery_is_its_members(broker: BrokerUnderTest) -> None:
    members = {name: await member(broker, name) for name in ("one", "two")}
    for body in (b"0", b"1", b"2", b"3"):
        await put(broker, body)
    for client in members.values():
        await client.acknowledge(*await client.next_messages(2))

    assert await had(broker) == [(0, "acked", "one"), (1, "acked", "two"), (2, "acked", "one"), (3, "acked", "two")]


async def test_a_member_without_a_client_id_is_named_as_a_publisher_would_be(broker: BrokerUnderTest) -> None:
    client = await broker.subscriber(JOBS, ack="client-individual")
    await client.publish(b"0", destination=JOBS)
    await client.acknowledge(await client.next_message())
    await broker.settle()

    ((name, publisher),) = {(row["member"], row["publisher"]) for row in recorded(broker, "jobs")}
    assert name == publisher == client.session.client.name


async def test_one_message_to_a_group_and_to_another_subscription_names_the_groups_member_alone(
    broker: BrokerUnderTest,
) -> None:
    grouped = await member(broker, "one", "/topic/a", group="workers")
    alone = await broker.durable_subscriber()
    await broker.store_messages(b"0")
    for client in (grouped, alone):
        await client.acknowledge(await client.next_message())

    await broker.settle()
    found = {(row["subscription"], row["member"]) for row in recorded(broker, "a")}
    assert found == {("group:workers @ a", "one"), ("billing/orders", None)}


@pytest.mark.parametrize("destination", [JOBS, "/topic/jobs"])
async def test_in_auto_mode_it_is_the_member_that_was_sent_it(destination: str, broker: BrokerUnderTest) -> None:
    """On the topic the group is transient, and its records are samples."""
    headers = {} if destination == JOBS else {"group": "workers", "auto_delete": "true"}
    members = {name: await member(broker, name, destination, ack="auto", **headers) for name in ("one", "two")}
    for body in (b"0", b"1"):
        await broker.store_messages(body, destination=destination)
    for client in members.values():
        await client.next_message()
    await broker.store_messages(b"stored", destination="/queue/other")  # samples go with what is stored

    assert await had(broker) == [(0, "sent", "one"), (1, "sent", "two")]


# Members that leave --------------------------------------------------------------------------------------------------


async def test_what_a_lost_member_had_is_the_next_ones(broker: BrokerUnderTest) -> None:
    one, two = await member(broker, "one"), await member(broker, "two")
    await put(broker, b"0")
    await one.next_message()
    await one.vanish()
    await two.acknowledge(await two.next_message())

    assert await had(broker) == [(0, "acked", "two")]


async def test_a_late_acknowledgement_is_of_the_member_that_has_left(broker: BrokerUnderTest) -> None:
    one, two = await member(broker, "one"), await member(broker, "two")
    await put(broker, b"0")
    message = await one.next_message()
    await one.send("UNSUBSCRIBE", id="0")
    again = await two.next_message()
    await one.acknowledge(message)
    await two.acknowledge(again)

    assert await had(broker) == [(0, "acked", "one")]


async def test_what_a_transaction_acknowledged_is_its_members_although_it_has_gone(broker: BrokerUnderTest) -> None:
    one, _ = await member(broker, "one"), await member(broker, "two")
    await put(broker, b"0")
    message = await one.next_message()
    await broker.settle()
    with broker.held_store():
        await one.send("BEGIN", transaction="t")
        await one.send("ACK", id=message.headers["ack"], transaction="t")
        await one.send("COMMIT", transaction="t")
        await wait_all_tasks_blocked()
        await one.vanish()

    assert await had(broker) == [(0, "acked", "one")]


async def test_what_the_last_member_of_a_transient_group_had_ends_as_its(broker: BrokerUnderTest) -> None:
    client = await member(broker, "one", "/topic/jobs", group="workers", auto_delete="true")
    await broker.store_messages(b"0", destination="/topic/jobs")
    await client.next_message()
    await client.vanish()
    await put(broker, b"stored")

    assert (0, "unsubscribed", "one") in await had(broker)


# Failures ------------------------------------------------------------------------------------------------------------


async def test_what_one_refused_and_another_acknowledged_is_the_others(broker: BrokerUnderTest) -> None:
    one, two = await member(broker, "one"), await member(broker, "two")
    await put(broker, b"0")
    await one.send("NACK", id=(await one.next_message()).headers["ack"])
    await two.acknowledge(await two.next_message())

    assert await had(broker) == [(0, "acked", "two")]
    ((nacks, attempts),) = [(row["nacks"], row["attempts"]) for row in recorded(broker, "jobs")]
    assert (nacks, attempts) == (1, 2)


@pytest.mark.parametrize(("used_up", "outcome"), [("dead-letter", "dead"), ("discard", "discarded")])
@pytest.mark.parametrize("how", ["refused", "refused after leaving", "refused in a transaction", "lost"])
async def test_what_is_given_up_was_with_the_member_that_failed_last(
    how: str, used_up: str, outcome: str, broker: BrokerUnderTest
) -> None:
    failing = {"max_attempts": "2", "when_used_up": used_up}
    one, two = await member(broker, "one", **failing), await member(broker, "two", **failing)
    await put(broker, b"0")
    await one.send("NACK", id=(await one.next_message()).headers["ack"])
    message = await two.next_message()
    final: dict[str, str] = {"id": message.headers["ack"], "requeue": "false"}
    if how == "lost":
        await two.vanish()
    elif how == "refused":
        await two.send("NACK", **final)
    elif how == "refused in a transaction":
        await two.send("BEGIN", transaction="t")
        await two.send("NACK", transaction="t", **final)
        await two.send("COMMIT", transaction="t")
    else:
        await one.vanish()
        await two.send_raw(two.frame("UNSUBSCRIBE", id="0") + two.frame("NACK", **final))
    if how != "lost":
        await two.sync()
        await two.vanish()  # it is recorded as what it was, whoever is there

    assert await had(broker) == [(0, outcome, "two")]


async def test_a_restart_forgets_whose_failure_it_was(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        client = await member(broker, "one")
        await put(broker, b"0")
        await client.send("NACK", id=(await client.next_message()).headers["ack"], delay="1")
        await client.vanish()
        await broker.settle()
        broker.kill()

    async with running_broker(store_in=store_directory, max_attempts=1) as broker:
        while not broker.count("ledger_batches"):
            await wait_all_tasks_blocked(A_LOOK_S)
        assert await had(broker) == [(0, "dead", None)]


# Nobody's ------------------------------------------------------------------------------------------------------------


async def test_what_nobody_had_has_no_member(broker: BrokerUnderTest) -> None:
    expires_at_ms = broker.clock.now_ns() // MS + 1
    await put(broker, b"0", expires=str(expires_at_ms))
    await put(broker, b"1")
    while broker.clock.now_ns() // MS <= expires_at_ms:
        await trio.lowlevel.checkpoint()
    one = await member(broker, "one")
    await one.acknowledge(await one.next_message())
    await one.vanish()
    await put(broker, b"2")
    (queue,) = broker.registry.durable.values()
    await broker.parts.control.call("move_subscription", {"id": queue.public_id, "to": "latest"})

    assert await had(broker) == [(0, "expired", None), (1, "acked", "one"), (2, "skipped", None)]
