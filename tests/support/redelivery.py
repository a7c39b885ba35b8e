"""What tests of redelivery share: refusing messages, waiting for an instant, finding a subscription.

Law: small steps on a `BrokerUnderTest` and its clients; nothing here asserts what a test is about.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.testing import wait_all_tasks_blocked

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.delivery import Subscription
    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client

#: In nanoseconds.
MS: Final = 1_000_000
S: Final = 1000 * MS


async def refuse(broker: BrokerUnderTest, client: Client, message: Frame, **headers: str) -> int:
    """NACK a message of a 1.2 connection, and wait for the receipt; returns when the broker read it."""
    at_ns = broker.clock.now_ns()
    await client.send("NACK", id=message.headers["ack"], receipt="refused", **headers)
    await client.expect_receipt("refused")
    return at_ns


async def refuse_all(broker: BrokerUnderTest, client: Client, times: int, **headers: str) -> list[Frame]:
    """NACK the next message, and it alone, as often as that; returns the deliveries."""
    deliveries = []
    for _ in range(times):
        deliveries.append(await client.next_message())
        await refuse(broker, client, deliveries[-1], **headers)
    return deliveries


def begin_from(place: str) -> dict[str, Any]:
    """The header that says where in its topic a subscription begins; `from` cannot be written as an argument."""
    return {"from": place}


def iso(at_ns: int) -> str:
    """A time to begin from, to the microsecond."""
    return datetime.fromtimestamp(at_ns / S, UTC).isoformat(timespec="microseconds")


def history(message: Frame) -> tuple[str, str, str | None]:
    """What a delivery says of those before it."""
    headers = message.headers
    return headers["redelivered"], headers["delivery-count"], headers.get("redelivery-reason")


def subscription_of(broker: BrokerUnderTest, client: Client) -> Subscription:
    """The only subscription of a client's connection."""
    connection_id = client.session.connection_id
    (found,) = [each for each in broker.registry.subscriptions if each.connection_id == connection_id]
    return found


async def sleep_until(broker: BrokerUnderTest, at_ns: int) -> None:
    """On the clock that jumps by itself."""
    await trio.sleep((at_ns - broker.clock.now_ns()) / S)


async def jump_to(broker: BrokerUnderTest, mock_clock: MockClock, at_ns: int) -> None:
    """With a store: move the clock there, once the broker has settled; it has again when this returns."""
    await broker.settle()
    mock_clock.jump((at_ns - broker.clock.now_ns()) / S)
    await broker.settle()


async def letters_of(broker: BrokerUnderTest, destination: str = "/topic/DLQ.a") -> list[Frame]:
    """With a store: all dead letters that lie there, as somebody gets them who comes now."""
    await broker.settle()
    reader = await broker.subscriber(destination, **begin_from("earliest"))
    letters = await broker.rest_for(reader)
    await reader.vanish()
    await wait_all_tasks_blocked()
    return letters
