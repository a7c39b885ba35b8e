"""In a ring, a triangle or a diamond of bridges every broker gets every message once, and nothing goes round."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.bridging import bodies_in, bridge_to, bridged_broker, client_of, connected, free_ports, quiet

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = "/topic/events.>"
MESSAGES = 100

#: Broker → the brokers that it sends to. What is "both" is one bridge that also receives.
SHAPES = {
    "triangle, every pair by one bridge": [("a", "b", "both"), ("b", "c", "both"), ("c", "a", "both")],
    "triangle, every pair by a bridge at each end": [
        *(("a", "b", "send"), ("b", "a", "send"), ("b", "c", "send")),
        *(("c", "b", "send"), ("c", "a", "send"), ("a", "c", "send")),
    ],
    "ring in one direction": [("a", "b", "send"), ("b", "c", "send"), ("c", "a", "send")],
    "diamond": [("a", "b", "both"), ("a", "c", "both"), ("b", "d", "both"), ("c", "d", "both")],
    "diamond that receives": [("b", "a", "both"), ("c", "a", "both"), ("d", "b", "both"), ("d", "c", "both")],
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
async def test_everybody_gets_everything_once(tmp_path: Path, shape: str) -> None:
    names = sorted({name for one, other, _ in SHAPES[shape] for name in (one, other)})
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    async with AsyncExitStack() as stack:
        brokers = {}
        for name in names:
            tables = []
            for one, other, ways in SHAPES[shape]:
                if one == name:
                    # Its name is also that of what is kept at the other broker.
                    both = {"receive": [EVENTS]} if ways == "both" else {}
                    tables.append(bridge_to(ports[other], name=f"{one}-to-{other}", send=[EVENTS], **both))
            running = bridged_broker(tmp_path / name, ports[name], *tables)
            brokers[name] = await stack.enter_async_context(running)
        clients = {name: await stack.enter_async_context(client_of(ports[name], client_id="r")) for name in names}
        await connected(*brokers.values())
        for name in names:
            async with clients[name].subscribe(EVENTS, durable="all"):
                pass

        for number in range(MESSAGES):
            for name in names:
                await clients[name].publish_soon(f"/topic/events.{number % 3}", f"{name} {number}".encode())
        for name in names:
            await clients[name].flush()

        everything = sorted(f"{name} {number}".encode() for name in names for number in range(MESSAGES))
        for name in names:
            assert sorted(await bodies_in(clients[name], EVENTS, len(everything))) == everything
        await quiet(*brokers.values())
        for broker in brokers.values():
            assert sum(topic.published for topic in broker.registry.topics.values()) == len(everything)
            # Each producer's numbers are those of one topic without gaps.
            broker.producers.check_invariants()
            assert {len(producer.taken) for producer in broker.producers} == {1}
