"""Whoever refuses much is read no faster than is written while others wait for the store, and at once otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.clock import NANOSECONDS
from stompbroker.sessions import RefusalPace
from stompbroker.sessions.session_context import MAX_REST_NS, REFUSALS_PER_S
from tests.journal.broker_on_store import broker_on
from tests.journal.journal_under_test import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journal.broker_on_store import BrokerOnStore
    from tests.support.broker_under_test import Client


def test_a_thousand_refusals_take_their_time() -> None:
    assert RefusalPace().rest_ns(1_000, now_ns=5) == 1_000 * NANOSECONDS // REFUSALS_PER_S


def test_those_who_refuse_at_the_same_time_share_it() -> None:
    pace = RefusalPace()

    first = pace.rest_ns(100, now_ns=0)

    assert pace.rest_ns(100, now_ns=0) == 2 * first
    assert pace.rest_ns(100, now_ns=10 * first) == first


def test_nobody_rests_for_long() -> None:
    assert RefusalPace().rest_ns(1_000_000, now_ns=0) == MAX_REST_NS


async def refusing(broker: BrokerOnStore) -> tuple[Client, bytes]:
    """A durable subscriber, and the frame with which it refuses what it got."""
    client = await broker.durable_subscriber(ack="client-individual")
    publisher = await broker.client()
    await publisher.publish(b"x")
    message = await client.next_message()
    return client, client.frame("NACK", id=message.headers["ack"])


async def test_whoever_refuses_rests_while_another_waits_for_the_store(data: Path) -> None:
    async with broker_on(data) as broker:
        client, refusal = await refusing(broker)
        other = await broker.client()
        broker.store.hold()
        await other.publish(b"x", receipt="r")
        await until(lambda: broker.parts.journal.pending_units > 0)

        client.session.receive(refusal)

        assert client.session.take_rest_s() > 0
        assert client.session.take_rest_s() == 0


async def test_whoever_refuses_does_not_rest_when_nobody_else_waits(data: Path) -> None:
    async with broker_on(data) as broker:
        client, refusal = await refusing(broker)
        await broker.parts.journal.wait_idle()

        client.session.receive(refusal)

        assert client.session.take_rest_s() == 0
