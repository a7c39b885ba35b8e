"""Whole brokers with bridges between them, in one process: real sockets, real stores, real time.

Law: a broker's address is chosen before any of them starts, so that their bridges can name each other in a circle.
"""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from stompbroker.broker import Broker, run
from stompbroker.client import Client, connect
from stompbroker.config import BridgeSettings, Settings
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

#: How often a condition is looked at that nobody signals, in seconds.
LOOK_S = 0.01


def free_ports(count: int) -> list[int]:
    """They stay free until somebody takes them, which in a test is the broker they are for."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def bridge_to(port: int, *, name: str, **table: Any) -> dict[str, Any]:
    return {"name": name, "url": f"stomp://127.0.0.1:{port}", **table}


@asynccontextmanager
async def bridged_broker(
    directory: Path, port: int, *bridges: dict[str, Any], **settings: Any
) -> AsyncIterator[Broker]:
    """A broker on this port until the block ends, which is a graceful stop."""
    standard: dict[str, Any] = {"http_enabled": False, "ledger": False}
    everything = Settings(
        data=directory, port=port, bridges=tuple(map(BridgeSettings.model_validate, bridges)), **standard | settings
    )
    async with trio.open_nursery() as nursery:
        broker: Broker = await nursery.start(partial(run, everything))
        yield broker
        broker.stop.set()


def client_of(port: int, **options: Any) -> Client:
    return connect(f"stomp://127.0.0.1:{port}", give_up_after=HARD_TIMEOUT_S, **options)


async def until(condition: Callable[[], object]) -> None:
    """Of brokers that work by themselves; fails after a while."""
    with trio.fail_after(HARD_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - of several brokers at once, which nobody signals
            await trio.sleep(LOOK_S)


async def connected(*brokers: Broker) -> None:
    """All their bridges are."""
    await until(lambda: all(each.state.value == "connected" for broker in brokers for each in broker.crossings))


async def quiet(*brokers: Broker) -> None:
    """Nothing is on its way or waits to be sent over a bridge."""

    def is_quiet() -> bool:
        is_idle = all(each.state.value == "connected" and not each.in_flight for b in brokers for each in b.crossings)
        kept = (one for broker in brokers for one in broker.registry.durable.values() if is_of_bridge(one.key))
        return is_idle and not any(one.backlog or one.in_flight or one.waiting for one in kept)

    await until(is_quiet)


def is_of_bridge(key: str) -> bool:
    return "bridge-" in key


async def bodies_in(client: Client, destination: str, count: int) -> list[bytes]:
    """The first so many messages that a queue, or a durable subscription called `all`, has."""
    durable = None if destination.startswith("/queue/") else "all"
    found: list[bytes] = []
    async with client.subscribe(destination, durable=durable, prefetch=1000) as messages:
        with trio.fail_after(HARD_TIMEOUT_S):
            while len(found) < count:
                for message in await messages.take():
                    found.append(message.body)
                    message.ack()
    return found
