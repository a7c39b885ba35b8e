"""Whichever broker is killed, and whenever: what was confirmed is at both ends, each message once."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from stompbroker.client import BackOff, connect
from tests.support.bridging import bodies_in, bridge_to, client_of, free_ports, until
from tests.support.broker_process import running_broker
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = "/topic/events.>"
MESSAGES = 1_500
KILLS = 4


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_or_doubled_by_kills(tmp_path: Path, seed: int) -> None:
    ports, random = free_ports(2), Random(seed)
    table = bridge_to(ports[1], name="there", send=[EVENTS], receive=[EVENTS], prefetch=50)
    with ExitStack() as stack:
        brokers = []
        for number, bridges in enumerate(([table], [])):
            directory = tmp_path / str(number)
            directory.mkdir()
            where = f"stomp://127.0.0.1:{ports[number]}"
            running = running_broker(directory, listen=where, ledger="false", bridges=json.dumps(bridges))
            brokers.append(stack.enter_context(running))
        for port in ports:
            async with client_of(port, client_id="reader") as client, client.subscribe(EVENTS, durable="all"):
                pass
        # What the bridge keeps must be there before anything is published.
        await until(lambda: len(brokers[0].events("bridge is connected")) >= 2)

        confirmed = [0, 0]

        def has_confirmed(share: int) -> bool:
            return min(confirmed) >= share

        async def publish(number: int) -> None:
            url = f"stomp://127.0.0.1:{ports[number]}"
            async with connect(url, back_off=BackOff(first_s=0.01, longest_s=0.1)) as publisher:
                for message in range(MESSAGES):
                    # What a client repeats is numbered, or it would be published twice.
                    headers = {"producer": "test", "producer-epoch": "1", "producer-seq": str(message + 1)}
                    await publisher.publish_soon(
                        f"/topic/events.{number}", f"{number} {message}".encode(), headers=headers
                    )
                    if message % 20 == 0:
                        await publisher.flush()
                        confirmed[number] = message

        with trio.fail_after(HARD_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                for number in range(2):
                    nursery.start_soon(publish, number)
                for kill in range(1, KILLS + 1):
                    await until(partial(has_confirmed, kill * MESSAGES // (KILLS + 1)))
                    killed = random.choice(brokers)
                    killed.kill()
                    await trio.to_thread.run_sync(killed.restart)

        everything = sorted(f"{number} {message}".encode() for number in range(2) for message in range(MESSAGES))
        for port in ports:
            async with client_of(port, client_id="reader") as client:
                found = await bodies_in(client, EVENTS, len(everything))
                assert len(found) - len(everything) == len(set(found)) - len(everything) == 0
                assert sorted(found) == everything
