"""Whatever is set, removed, expires, or is cut off by a kill: memory, store and a simple model have the same values."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from trio.testing import wait_all_tasks_blocked

from stompbroker.clock import NANOSECONDS
from stompbroker.journal.rows import last_value_row
from tests.support.broker_under_test import running_broker
from tests.support.passing_time import let_time_pass, let_wall_clock_go_on

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client

TOPICS = ("v.1", "v.2", "v.3", "w")
LIVES, STEPS = 4, 12
#: More than the clock is moved at once.
A_WHILE_NS = 3 * NANOSECONDS


class Value(NamedTuple):
    body: bytes
    expires_at_s: float | None
    is_persistent: bool


@dataclass
class Model:
    clock: MockClock
    random: Random
    values: dict[str, Value] = field(default_factory=dict)
    #: What the broker has been told, and is not yet counted.
    waiting: list[tuple[str, Value | None]] = field(default_factory=list)
    published: int = 0

    def now(self) -> dict[str, Value]:
        now_s = self.clock.current_time()
        return {
            name: value
            for name, value in self.values.items()
            if value.expires_at_s is None or value.expires_at_s > now_s
        }

    def count(self) -> None:
        for name, value in self.waiting:
            self.values.pop(name, None)
            if value is not None:
                self.values[name] = value
        self.waiting = []

    def restart(self) -> None:
        self.waiting = []
        self.values = {name: value for name, value in self.values.items() if value.is_persistent}

    def frames(self, client: Client, **headers: str) -> bytes:
        """Some SENDs, in one chunk."""
        return b"".join(self._frame(client, headers) for _ in range(self.random.randint(1, 6)))

    def _frame(self, client: Client, given: dict[str, str]) -> bytes:
        name, said = self.random.choice(TOPICS), self.random.choice(["set", "set", "set", "remove", "false"])
        headers = given | {"destination": f"/topic/{name}", "retain": said}
        self.published += 1
        body = b"%d" % self.published
        ttl_s = self.random.choice([None, None, 3, 40])
        is_persistent = self.random.random() < 0.8
        if ttl_s is not None:
            headers["ttl"] = str(1000 * ttl_s)
        if not is_persistent:
            headers["persistent"] = "false"
        if said == "set":
            expires_at_s = None if ttl_s is None else self.clock.current_time() + ttl_s
            self.waiting.append((name, Value(body, expires_at_s, is_persistent)))
        elif said == "remove":
            self.waiting.append((name, None))
        return client.frame("SEND", body, **headers)


async def check(broker: BrokerUnderTest, model: Model) -> None:
    await broker.settle()
    broker.check_invariants()
    values, now_ns = broker.registry.last_values, broker.clock.now_ns()
    there = {one.destination.name: one.message for one in values}
    alive = {name: message.body for name, message in there.items() if not message.has_expired(now_ns)}
    assert alive == {name: value.body for name, value in model.now().items()}
    long_ago_ns = now_ns - A_WHILE_NS
    assert not [name for name, message in there.items() if message.has_expired(long_ago_ns)], "it is collected"
    # Of each row all but the checksum, which a start compares.
    expected = [last_value_row(one.destination, one.message) for one in values if one.message.origin.is_persistent]
    rows = broker.look("SELECT * FROM last_values ORDER BY name")
    assert [row[:-1] for row in rows] == sorted(map(tuple, expected))


async def publish(broker: BrokerUnderTest, model: Model, clients: list[Client]) -> None:
    """By two connections; all of it may go into one batch."""
    if model.random.random() < 0.5:
        with broker.held_store():
            for _ in range(model.random.randint(1, 4)):
                client = model.random.choice(clients)
                await client.send_raw(model.frames(client))
                await wait_all_tasks_blocked()
                if model.random.random() < 0.3:
                    model.clock.jump(2)  # the collector looks for what has expired
                    await wait_all_tasks_blocked()
    else:
        client = model.random.choice(clients)
        await client.send_raw(model.frames(client))
        await client.sync()
    model.count()


async def transact(model: Model, client: Client) -> None:
    await client.send("BEGIN", transaction="t")
    await client.send_raw(model.frames(client, transaction="t"))
    if model.random.random() < 0.3:
        model.waiting = []
        await client.send("ABORT", transaction="t")
        await client.sync()
    else:
        await client.send("COMMIT", transaction="t", receipt="committed")
        await client.expect_receipt("committed")
        model.count()


async def remove(broker: BrokerUnderTest, model: Model) -> None:
    control = broker.parts.control
    if model.random.random() < 0.3:
        answer = await control.call("purge_last_values", {"pattern": "v.*"})
        assert answer["purged"] == sum(name.startswith("v.") for name in model.now())
        model.values = {name: value for name, value in model.values.items() if not name.startswith("v.")}
    elif model.now():
        name = model.random.choice(sorted(model.now()))
        await control.call("remove_last_value", {"topic": name})
        del model.values[name]


async def live(broker: BrokerUnderTest, model: Model) -> None:
    await check(broker, model)
    clients = [await broker.client() for _ in range(2)]
    for _ in range(STEPS):
        match model.random.randrange(6):
            case 0:
                await let_time_pass(broker, model.clock, model.random.choice([1, 4]))
            case 1:
                await remove(broker, model)
            case 2:
                await transact(model, clients[0])
            case _:
                await publish(broker, model, clients)
        await check(broker, model)
    newcomer = await broker.subscriber("/topic/>")
    shown = {one.headers["destination"]: one.body for one in await newcomer.next_messages(len(model.now()))}
    assert shown == {f"/topic/{name}": value.body for name, value in model.now().items()}
    await newcomer.sync()
    if model.random.random() < 0.6:
        with broker.held_store():
            await clients[1].send_raw(model.frames(clients[1]))
            await wait_all_tasks_blocked()
            broker.kill()


@pytest.mark.parametrize("seed", range(10))
async def test_memory_and_store_have_the_same_values(
    seed: int, store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_wall_clock_go_on(mock_clock, monkeypatch)
    model = Model(mock_clock, Random(seed))
    for _ in range(LIVES):
        async with running_broker(store_in=store_directory, ledger=False) as broker:
            await live(broker, model)
        model.restart()
    async with running_broker(store_in=store_directory, ledger=False) as broker:
        await check(broker, model)
