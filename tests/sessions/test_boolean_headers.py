"""Headers that are true or false are read alike, whatever frame they stand in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.broker_under_test import BrokerUnderTest, Client

SPELLINGS = ["true", "True", "TRUE", "false", "False", "FALSE"]
#: Each frame and header of that kind, in the three frames that have some.
SUBSCRIBE_HEADERS = ["durable", "persistent", "auto-delete", "no-local", "activemq.noLocal", "useExponentialBackOff"]
PLACES = [*[("SUBSCRIBE", name) for name in SUBSCRIBE_HEADERS], ("SEND", "persistent"), ("NACK", "requeue")]


async def ready_to_nack(broker: BrokerUnderTest) -> tuple[Client, dict[str, str]]:
    """A client, and the headers of a NACK that it may send."""
    client = await broker.client()
    await client.subscribe(id="nacks", ack="client-individual")
    await client.publish(b"x")
    message = await client.next_message()
    return client, {"id": message.headers["ack"]}


async def send_with(broker: BrokerUnderTest, command: str, header: str, value: str) -> Client:
    """A client that has just sent this frame, with all else that it needs."""
    client, named = await ready_to_nack(broker)
    needed = {"SUBSCRIBE": {"id": "0", "destination": "/topic/b"}, "SEND": {"destination": "/topic/b"}, "NACK": named}
    await client.send(command, **needed[command], **{header: value}, receipt="done")
    return client


@pytest.mark.parametrize("value", SPELLINGS)
@pytest.mark.parametrize(("command", "header"), PLACES)
async def test_true_and_false_may_be_in_any_letter_case(
    durable_broker: BrokerUnderTest, command: str, header: str, value: str
) -> None:
    client = await send_with(durable_broker, command, header, value)

    await client.expect_receipt("done")


@pytest.mark.parametrize("value", ["", "yes", "1", "tru", " true", "truE\u0131"])
@pytest.mark.parametrize(("command", "header"), PLACES)
async def test_anything_else_is_an_error_that_says_so(
    durable_broker: BrokerUnderTest, command: str, header: str, value: str
) -> None:
    client = await send_with(durable_broker, command, header, value)

    error = await client.expect_error(repr(header), repr(value), "true or false")
    assert error.headers["receipt-id"] == "done"


async def test_what_is_written_in_capitals_means_the_same(durable_broker: BrokerUnderTest) -> None:
    await (await durable_broker.durable_subscriber()).vanish()

    await durable_broker.store_messages(b"not stored", persistent="False")
    await durable_broker.store_messages(b"stored", persistent="True")
    await durable_broker.settle()

    assert durable_broker.count("messages") == 1


async def test_a_send_that_is_refused_makes_no_topic(durable_broker: BrokerUnderTest) -> None:
    client = await durable_broker.client()

    await client.send("SEND", destination="/topic/new", persistent="yes")

    await client.expect_error("persistent")
    assert "new" not in durable_broker.registry.topics
