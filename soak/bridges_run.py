"""Kills of brokers that have bridges between them, and what each of them has afterwards.

Brokers stand in a pair, a triangle and a diamond, and each has a publisher that numbers its messages. At random moments
one or two of them are killed and started again. At the end every broker must have every message once: nothing missing,
nothing twice; and nothing must be on its way any more, since a message that circles is published again and again.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import trio

from stompbroker.client import BackOff, connect
from tests.support.bridging import bridge_to, client_of, free_ports, until
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

#: Each pair is one bridge with both directions, which the first one has.
SHAPES: Final[dict[str, list[tuple[str, str]]]] = {
    "pair": [("a", "b")],
    "triangle": [("a", "b"), ("b", "c"), ("c", "a")],
    "diamond": [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")],
}
_EVENTS: Final = "/topic/events.>"
#: Messages of each publisher between two kills.
_PER_KILL: Final = 300
#: Messages on their way: few, so that bridges are often in the middle of a backlog.
_PREFETCH: Final = 100
#: How long nothing must be published at the end, in seconds.
_QUIET_S: Final = 2.0
_STALL_S: Final = 120.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BridgesOutcome:
    shape: str
    kills: int
    #: Of each broker.
    expected: int
    #: Per broker.
    missing: dict[str, int]
    doubled: dict[str, int]
    circling: dict[str, int]

    def complaints(self) -> list[str]:
        found = {"MISSING": self.missing, "DOUBLED": self.doubled, "CIRCLING": self.circling}
        return [
            f"{word}: {count:,} messages at broker {name} of the {self.shape}"
            for word, counts in found.items()
            for name, count in counts.items()
            if count
        ]


def run_bridges(shape: str, directory: Path, *, kills: int, seed: int, show: Callable[[str], None]) -> BridgesOutcome:
    # That connections are lost is the purpose.
    logging.getLogger("stompbroker.client").setLevel(logging.ERROR)
    names = sorted({name for pair in SHAPES[shape] for name in pair})
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    with ExitStack() as stack:
        brokers: dict[str, BrokerProcess] = {}
        for name in names:
            tables = [
                bridge_to(ports[there], name=f"{name}-{there}", send=[_EVENTS], receive=[_EVENTS], prefetch=_PREFETCH)
                for here, there in SHAPES[shape]
                if here == name
            ]
            (directory / shape / name).mkdir(parents=True)
            where = f"stomp://127.0.0.1:{ports[name]}"
            settings: dict[str, Any] = {
                "listen": where,
                "bridges": json.dumps(tables),
                "ledger": "false",
                "http_enabled": "false",
            }
            brokers[name] = stack.enter_context(running_broker(directory / shape / name, **settings))
        return trio.run(partial(_run, shape, brokers, ports, kills=kills, random=Random(seed), show=show))


async def _run(
    shape: str,
    brokers: dict[str, BrokerProcess],
    ports: dict[str, int],
    *,
    kills: int,
    random: Random,
    show: Callable[[str], None],
) -> BridgesOutcome:
    for port in ports.values():
        async with client_of(port, client_id="reader") as client, client.subscribe(_EVENTS, durable="all"):
            pass
    bridges = [here for here, _ in SHAPES[shape]]
    connected = "bridge is connected"
    await until(lambda: all(len(brokers[name].events(connected)) >= 2 * bridges.count(name) for name in brokers))
    messages = (kills + 1) * _PER_KILL
    confirmed = dict.fromkeys(brokers, 0)

    def have_confirmed(count: int) -> bool:
        return min(confirmed.values()) >= count

    async with trio.open_nursery() as nursery:
        for name, port in ports.items():
            nursery.start_soon(_publish, name, port, messages, confirmed)
        for kill in range(1, kills + 1):
            await until(partial(have_confirmed, kill * _PER_KILL - random.randrange(_PER_KILL)))
            killed = random.sample(sorted(brokers), random.choice((1, 1, 2)))
            for name in killed:
                brokers[name].kill()
            for name in killed:
                await trio.to_thread.run_sync(brokers[name].restart)
            show(f"{shape}: kill {kill} of {kills} ({', '.join(killed)})")
    expected = {_body(name, number) for name in brokers for number in range(1, messages + 1)}
    found = {name: await _read(port, expected) for name, port in ports.items()}
    counted = {name: Counter(bodies) for name, bodies in found.items()}
    await trio.sleep(_QUIET_S)
    circling = {name: len(await _read(port, ())) for name, port in ports.items()}
    return BridgesOutcome(
        shape=shape,
        kills=kills,
        expected=len(expected),
        missing={name: len(expected - counts.keys()) for name, counts in counted.items()},
        doubled={name: counts.total() - len(counts) for name, counts in counted.items()},
        circling=circling,
    )


def _body(name: str, number: int) -> bytes:
    return f"{name} {number}".encode()


async def _publish(name: str, port: int, messages: int, confirmed: dict[str, int]) -> None:
    url = f"stomp://127.0.0.1:{port}"
    async with connect(url, back_off=BackOff(first_s=0.01, longest_s=0.2)) as client:
        for number in range(1, messages + 1):
            # The client repeats what has no receipt, and its number keeps that from being published twice.
            headers = {"producer": f"soak-{name}", "producer-epoch": "1", "producer-seq": str(number)}
            await client.publish_soon(f"/topic/events.{number % 3}", _body(name, number), headers=headers)
            if number % 25 == 0:
                await client.flush()
                confirmed[name] = number


async def _read(port: int, expected: Sequence[bytes] | set[bytes]) -> list[bytes]:
    """Everything that the durable reader of a broker gets, until it has all that is expected, or for a moment."""
    found: list[bytes] = []
    missing = set(expected)
    async with client_of(port, client_id="reader") as client, client.subscribe(_EVENTS, durable="all") as messages:
        while True:
            with trio.move_on_after(_STALL_S if missing else _QUIET_S) as waiting:
                taken = await messages.take()
            if waiting.cancelled_caught:
                return found
            for message in taken:
                found.append(message.body)
                message.ack()
            missing.difference_update(message.body for message in taken)
