"""A durable subscriber that refuses what it gets.

Law: what it refuses lies with the dead letters when a call returns, or waits to be tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from stompbroker.cli.control_client import connect
from tests.end_to_end.raw_client import RawClient
from tests.support.broker_process import Address, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.cli.conftest import RunningBroker


def client_of(broker: RunningBroker, *, client_id: str = "somebody") -> RawClient:
    return RawClient.connected(Address("127.0.0.1", broker.port), client_id=client_id)


def refuse_all(broker: RunningBroker, bodies: Sequence[bytes], *, topic: str = "orders", **nack: str) -> list[str]:
    """Publish these, and refuse them as `billing/invoices`; the ids of the messages."""
    with client_of(broker, client_id="billing") as client:
        client.subscribe(f"/topic/{topic}", id="invoices", durable="true", ack="client-individual")
        for body in bodies:
            client.send("SEND", body, destination=f"/topic/{topic}", colour="red")
        messages = [client.next_message() for _ in bodies]
        for message in messages:
            client.send("NACK", b"", id=message.headers["ack"], **nack)
        client.send("DISCONNECT", receipt="bye")
        client.expect_receipt("bye")
    return [message.headers["message-id"] for message in messages]


def make_letters(
    broker: RunningBroker, bodies: Sequence[bytes], *, topic: str = "orders", reason: str = "no such customer"
) -> list[str]:
    """Dead letters with these bodies; the ids of the messages they were."""
    expected = _letters(broker.data) + len(bodies)
    message_ids = refuse_all(broker, bodies, topic=topic, requeue="false", reason=reason)
    wait_until(lambda: _letters(broker.data) == expected, f"{expected} dead letters")
    return message_ids


def _letters(data: Path) -> int:
    return sum(one["letters"] for one in trio.run(_ask, data)["topics"])


async def _ask(data: Path) -> Any:
    async with connect(data) as control:
        return await control.call("dead_letter_topics")
