"""A message goes from a publisher to its subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest


async def test_every_subscriber_gets_every_message(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    first, second = await broker.subscriber(), await broker.subscriber()
    publisher = await broker.client()

    await publisher.publish(b"one", b"two")

    for subscriber in (first, second):
        assert [message.body for message in await subscriber.next_messages(2)] == [b"one", b"two"]
