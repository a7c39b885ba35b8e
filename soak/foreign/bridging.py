"""Bridges between two brokers of ours and one of others: in, out, both ways, and round over it; then all are killed.

    ours a  <-- in, queue in --    the other
    ours a  --- out, queue out ->  the other
    ours a  <------- both ------>  the other  <------- both ------>  ours b

First nobody is killed, and each message has to be at each reader once. Then one or two brokers are killed at a time:
nothing that was confirmed may be missing. How much came twice is counted: the other broker cannot tell a repeated
message from a new one. In the end everything must come to rest, or a message goes round for ever.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import trio

from soak.foreign.brokers import LOGIN, PASSCODE
from stompbroker.client import BackOff, connect
from stompbroker.signals import Signal
from tests.support.bridging import bridge_to, free_ports, until
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from soak.foreign.brokers import There
    from stompbroker.client import Client
    from tests.support.broker_process import BrokerProcess

#: Where each message has to come, by where it is published: (broker, what it is sent to) → readers' brokers. `{}` is a
#: level that changes from message to message.
_ROUTES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("other", "/topic/in.{}"): ("a",),
    ("other", "/queue/in"): ("a",),
    ("a", "/topic/out.{}"): ("other",),
    ("a", "/queue/out"): ("other",),
    ("a", "/topic/both.{}"): ("a", "b", "other"),
    ("b", "/topic/both.{}"): ("a", "b", "other"),
    ("other", "/topic/both.{}"): ("a", "b", "other"),
}
_READERS: Final = sorted({(reader, to) for (_, to), readers in _ROUTES.items() for reader in readers})
_LEVELS: Final = 3
#: Who is killed, in turn.
_KILLED: Final = (("other",), ("a",), ("b", "other"), ("b",), ("a", "other"))
#: Few, so that the bridges are often in the middle of a backlog.
_PREFETCH: Final = 100
_PUBLISHED_AT_ONCE: Final = 20
_PAUSE_S: Final = 0.05
_STALL_S: Final = 90.0
_QUIET_S: Final = 3.0


@final
@dataclass(slots=True, kw_only=True)
class BridgingOutcome:
    kills: Counter[str] = field(default_factory=Counter)
    #: Messages that were published without kills and with them, and what came of them to all readers.
    published: list[int] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    elapsed_s: float = 0.0
    complaints: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        kills = ", ".join(f"{count} of {name}" for name, count in sorted(self.kills.items()))
        return [
            f"bridges without kills: {self.published[0]:,} messages published, {self.expected[0]:,} had to come, "
            f"{self.doubled[0]:,} came twice",
            f"bridges with {self.kills.total()} kills ({kills}): {self.published[1]:,} messages published, "
            f"{self.expected[1]:,} had to come, {self.doubled[1]:,} came twice; {self.elapsed_s:.0f} s",
        ]


@final
class _Run:
    def __init__(self, there: There, ours: dict[str, BrokerProcess], urls: dict[str, str]) -> None:
        self._there = there
        self._ours = ours
        self._urls = urls
        self.found: dict[tuple[str, str], Counter[bytes]] = {reader: Counter() for reader in _READERS}
        self.confirmed: dict[tuple[str, str], list[bytes]] = {source: [] for source in _ROUTES}
        #: Under which message ids a broker of ours has what was published there.
        self._own: defaultdict[tuple[str, bytes], set[str]] = defaultdict(set)
        self._moved = Signal()

    def _client(self, broker: str, client_id: str | None = None) -> Client:
        if broker == "other":
            return self._there.client(client_id)
        return connect(self._urls[broker], client_id=client_id, back_off=BackOff(first_s=0.05, longest_s=0.5))

    def _anything(self, broker: str) -> str:
        return self._there.foreign.anything if broker == "other" else ">"

    async def read(
        self, reader: tuple[str, str], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        broker, to = reader
        name = None if to.startswith("/queue/") else f"reader-{to.split('/')[2].split('.')[0]}"
        async with (
            self._client(broker, name) as client,
            client.subscribe(to.format(self._anything(broker)), durable=name) as messages,
        ):
            task_status.started()
            async for message in messages:
                self.found[reader][message.body] += 1
                if broker != "other" and message.body.startswith(broker.encode()):
                    self._own[broker, message.body].add(message.id)
                message.ack()
                self._moved.wake()

    async def publish(self, source: tuple[str, str], first: int, count: int) -> None:
        broker, to = source
        async with self._client(broker) as client:
            for start in range(first, first + count, _PUBLISHED_AT_ONCE):
                bodies = [f"{broker} {to} {start + place}".encode() for place in range(_PUBLISHED_AT_ONCE)]
                for number, body in enumerate(bodies):
                    await client.publish_soon(to.format(number % _LEVELS), body, persistent=True)
                await client.flush()
                self.confirmed[source] += bodies
                self._moved.wake()
                await trio.sleep(_PAUSE_S)

    async def kill(self, names: Sequence[str]) -> None:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(self._kill, name)

    async def _kill(self, name: str) -> None:
        if name == "other":
            await self._there.kill()
        else:
            self._ours[name].kill()
            await trio.to_thread.run_sync(self._ours[name].restart)

    async def wait_confirmed(self, count: int) -> None:
        while sum(map(len, self.confirmed.values())) < count:
            await self._moved.wait()

    def missing(self) -> dict[tuple[str, str], set[bytes]]:
        """By reader."""
        return {
            reader: {
                body
                for source, readers in _ROUTES.items()
                if source[1] == reader[1] and reader[0] in readers
                for body in self.confirmed[source]
                if body not in self.found[reader]
            }
            for reader in _READERS
        }

    @property
    def came_back(self) -> int:
        """Messages that a bridge has brought to where they were published."""
        return sum(len(ids) > 1 for ids in self._own.values())

    async def wait_for_all(self) -> None:
        """Until nothing is missing, or nothing has come for long."""
        while any(self.missing().values()):
            deliveries = self.deliveries
            with trio.move_on_after(_STALL_S):
                while self.deliveries == deliveries:
                    await self._moved.wait()
            if self.deliveries == deliveries:
                return

    async def wait_for_rest(self) -> int:
        """For a while nothing must come. What was on its way twice may: then it is tried once more. Returns how much
        came."""
        for _ in range(2):
            deliveries = self.deliveries
            await trio.sleep(_QUIET_S)
            if self.deliveries == deliveries:
                return 0
        return self.deliveries - deliveries

    @property
    def doubled(self) -> int:
        return self.deliveries - sum(map(len, self.found.values()))

    @property
    def deliveries(self) -> int:
        return sum(counter.total() for counter in self.found.values())


async def _perform(
    run: _Run, outcome: BridgingOutcome, *, kills: int, messages: int, random: Random, show: Callable[[str], None]
) -> None:
    began_at = trio.current_time()

    async def kill_some(already: int) -> None:
        for kill in range(kills):
            moment = kill * messages + random.randrange(messages)
            await run.wait_confirmed(already + moment * len(_ROUTES))
            names = _KILLED[kill % len(_KILLED)]
            outcome.kills.update(names)
            show(f"bridges: kill {kill + 1} of {kills} ({', '.join(names)})")
            await run.kill(names)

    async with trio.open_nursery() as readers:
        for reader in _READERS:
            await readers.start(run.read, reader)
        for first, of_each, has_kills in ((0, messages, False), (messages, messages * max(kills, 1), True)):
            doubled = run.doubled
            async with trio.open_nursery() as publishers:
                for source in _ROUTES:
                    publishers.start_soon(run.publish, source, first, of_each)
                if has_kills:
                    publishers.start_soon(kill_some, first * len(_ROUTES))
            await run.wait_for_all()
            if (circling := await run.wait_for_rest()) and not outcome.complaints:
                outcome.complaints.append(f"CIRCLING: {circling:,} deliveries after everything had come")
            outcome.published.append(of_each * len(_ROUTES))
            outcome.expected.append(of_each * sum(map(len, _ROUTES.values())))
            outcome.doubled.append(run.doubled - doubled)
        readers.cancel_scope.cancel()
    outcome.elapsed_s = trio.current_time() - began_at
    outcome.complaints += _faults(run, doubled_without_kills=outcome.doubled[0])


def _faults(run: _Run, *, doubled_without_kills: int) -> Iterator[str]:
    if doubled_without_kills:
        yield f"DOUBLED: {doubled_without_kills:,} messages, although nobody was killed"
    if run.came_back:
        yield f"CIRCLING: {run.came_back:,} messages came back to where they were published"
    for (broker, to), bodies in run.missing().items():
        if bodies:
            yield f"MISSING: {len(bodies):,} messages of {to} at {broker}, {min(bodies).decode()!r} for instance"


def run_bridging(
    there: There, directory: Path, *, kills: int, messages: int, seed: int, show: Callable[[str], None]
) -> BridgingOutcome:
    """`messages` of each publisher: without kills, and for each kill."""
    ports = dict(zip("ab", free_ports(2), strict=True))
    secret = directory / "passcode"
    secret.write_text(PASSCODE)
    with ExitStack() as stack:
        ours: dict[str, BrokerProcess] = {}
        for name, port in ports.items():
            (directory / name).mkdir()
            settings: dict[str, Any] = {
                "listen": f"stomp://127.0.0.1:{port}",
                "bridges": json.dumps([_bridge(name, there, secret)]),
                "ledger": "false",
                "http_enabled": "false",
            }
            ours[name] = stack.enter_context(running_broker(directory / name, **settings))
        run = _Run(there, ours, {name: f"stomp://127.0.0.1:{port}" for name, port in ports.items()})
        outcome = BridgingOutcome()

        async def perform() -> None:
            await until(lambda: all(len(each.events("bridge is connected")) >= 2 for each in ours.values()))
            await _perform(run, outcome, kills=kills, messages=messages, random=Random(seed), show=show)

        trio.run(perform)
        for name, broker in ours.items():
            if "Traceback" in broker.log():
                outcome.complaints.append(f"TRACEBACK at {name}:\n{broker.end_of_log()}")
    return outcome


def _bridge(name: str, there: There, secret: Path) -> dict[str, Any]:
    both = f"/topic/both.{there.foreign.anything}"
    receive, send = [both], ["/topic/both.>"]
    if name == "a":
        receive += [f"/topic/in.{there.foreign.anything}", "/queue/in"]
        send += ["/topic/out.>", "/queue/out"]
    return bridge_to(
        there.process.address.port,
        name=f"{name}-other",
        kind=there.foreign.kind,
        login=LOGIN,
        passcode_file=str(secret),
        prefetch=_PREFETCH,
        receive=receive,
        send=send,
    )
