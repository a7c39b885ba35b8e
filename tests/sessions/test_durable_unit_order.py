"""A topic that becomes stored, and one that ceases to be, while others publish to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.actors import journal as journal_actor
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest, Client


def numbers_of(bodies: list[bytes], who: bytes) -> list[int]:
    return [int(body.split()[1]) for body in bodies if body.startswith(who)]


async def publish_numbers(publisher: Client, who: bytes, stop: trio.Event) -> int:
    """One message after the other, some with a receipt, until told to stop; returns how many."""
    number = 0
    while not stop.is_set():
        await publisher.publish(b"%b %d" % (who, number), receipt=str(number))
        await publisher.expect_receipt(str(number))
        number += 1
    return number


@pytest.mark.parametrize("pattern", ["/topic/a", "/topic/>"])
async def test_a_topic_becomes_stored_and_back_while_publishers_are_at_it(pattern: str, store_directory: Path) -> None:
    """The transient subscriber gets everything once, in each publisher's order; the durable one everything from its
    receipt on, up to its UNSUBSCRIBE."""
    async with running_broker(store_in=store_directory) as broker:
        transient = await broker.subscriber()
        publishers = [await broker.client() for _ in range(2)]
        durables = [await broker.client(client_id="billing") for _ in range(5)]
        stop = trio.Event()
        sent: dict[bytes, int] = {}
        durable_bodies: list[list[bytes]] = []

        async def publish(who: bytes, publisher: Client) -> None:
            sent[who] = await publish_numbers(publisher, who, stop)

        async with trio.open_nursery() as nursery:
            for who, publisher in zip((b"left", b"right"), publishers, strict=True):
                nursery.start_soon(publish, who, publisher)
            for durable in durables:
                await durable.subscribe(pattern, durable_subscription_name="orders")
                durable_bodies.append(await durable.next_bodies(10))
                await durable.send("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="gone")
                while (frame := await durable.next_frame()).command == "MESSAGE":
                    durable_bodies[-1].append(frame.body)
                assert frame.headers == {"receipt-id": "gone"}
            stop.set()

        bodies = await transient.next_bodies(sum(sent.values()))
        for who, count in sent.items():
            assert numbers_of(bodies, who) == list(range(count))
            for seen in durable_bodies:
                numbers = numbers_of(seen, who)
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)) if numbers else [])
        await broker.expect_silence(transient)
        assert broker.registry.durable == {}


async def test_what_was_submitted_before_a_durable_subscribe_is_not_for_it_and_what_comes_later_is(
    durable_broker: BrokerUnderTest,
) -> None:
    """All of it gathers in the journal while the store is busy, from three connections."""
    transient = await durable_broker.subscriber("/topic/a")
    await durable_broker.durable_subscriber("/topic/b", "other", client_id="other")
    publisher, late = await durable_broker.client(), await durable_broker.client()
    client = await durable_broker.client(client_id="billing")

    with durable_broker.held_store():
        # The first SEND is stored, so that what its connection sends next has to queue up behind it.
        await publisher.publish(b"stored", destination="/topic/b")
        await wait_all_tasks_blocked()
        await publisher.publish(b"before", destination="/topic/a")
        await wait_all_tasks_blocked()
        await client.send("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders")
        await wait_all_tasks_blocked()
        await late.publish(b"after", destination="/topic/a")
        await wait_all_tasks_blocked()

    assert [message.body for message in await durable_broker.rest_for(client)] == [b"after"]
    assert [message.body for message in await durable_broker.rest_for(transient)] == [b"before", b"after"]


async def test_offsets_in_memory_and_in_the_file_agree_when_a_topic_ceases_to_be_stored(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit behind the deletion is in the same batch, with its offsets given; between the two the journal lets others
    run, and one of them publishes to the topic that is not stored any more."""
    monkeypatch.setattr(journal_actor, "SLICE_S", 0.0)
    async with running_broker(store_in=store_directory, window_messages=10) as broker:
        slow = await broker.subscriber(ack="client-individual", prefetch_count="1")
        subscriber = await broker.durable_subscriber()
        publishers = [await broker.client() for _ in range(3)]

        with broker.held_store():
            await publishers[0].publish(b"first")
            await wait_all_tasks_blocked()
            await subscriber.send("UNSUBSCRIBE", id="0", durable_subscription_name="orders")
            await wait_all_tasks_blocked()
            for number in range(30):
                await publishers[1].publish(b"stored %d" % number)
                await wait_all_tasks_blocked()
        topic = broker.registry.topics["a"]
        while topic.is_stored:
            await trio.lowlevel.checkpoint()
        for number in range(30):
            await publishers[2].publish(b"late %d" % number)

        got = []
        while rest := await broker.rest_for(slow):
            got += [message.body for message in rest]
            await slow.send("ACK", id=rest[-1].headers["ack"])
        assert numbers_of(got, b"stored") == list(range(30))
        assert numbers_of(got, b"late") == list(range(30))
        assert len(got) == 61
