"""Our client while a broker of others is killed: publishers, a durable subscriber, consumers, callers and a server.

Bodies are numbered. A kill comes when a chosen number of messages is confirmed, so it meets publishers and subscribers
at work. What was confirmed must have come at least once; how often something came twice is counted, not judged, since
these brokers cannot tell a repeated message from a new one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.client import (
    AnswerUnreachable,
    ClientError,
    NoAnswer,
    OutboxFull,
    OutcomeUnknown,
    TransactionLost,
    Unconfirmed,
)
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from soak.foreign.brokers import There
    from stompbroker.client import Client, Message

_TOPIC, _QUEUE, _CALLS = "/topic/kills", "/queue/kills", "/queue/kills.calls"
#: The publishers: to the topic, to the queue, and to the queue in transactions.
_PLACES: Final = {"topic": _TOPIC, "queue": _QUEUE, "transactions": _QUEUE}
_IN_TRANSACTION: Final = 10
#: Messages of a publisher without a receipt: few enough that all of them are on their way when it is killed.
_MAX_UNCONFIRMED: Final = 200
_CALL_TIMEOUT_S: Final = 15.0
_CALL_PAUSE_S: Final = 0.01
_PAUSE_S: Final = 0.05
#: Nothing must move for so long until the run gives up, and until it believes that nothing more comes.
_STALL_S: Final = 90.0
_QUIET_S: Final = 2.0
_NO_ANSWER: Final = (AnswerUnreachable, NoAnswer, OutboxFull, Unconfirmed)


@final
@dataclass(slots=True, kw_only=True)
class Seen:
    #: By publisher.
    confirmed: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in _PLACES})
    made: Counter[str] = field(default_factory=Counter)
    #: In the order in which they came.
    received: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in _PLACES})
    redelivered: int = 0
    #: Transactions, by what became of them; numbers of those of which that cannot be known, or that were not done.
    ends: Counter[str] = field(default_factory=Counter)
    unknown: list[range] = field(default_factory=list)
    lost: list[range] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    wrong_answers: int = 0
    connections: int = 0

    def take(self, message: Message) -> None:
        name, number = message.body.decode().split()
        self.received[name].append(int(number))
        self.redelivered += message.is_redelivered


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KillsOutcome:
    kills: int
    elapsed_s: float
    seen: Seen
    is_atomic: bool
    has_stalled: bool

    def lines(self) -> list[str]:
        seen = self.seen
        distinct = sum(len(set(numbers)) for numbers in seen.received.values())
        deliveries = sum(map(len, seen.received.values()))
        calls = ", ".join(f"{count:,} {name}" for name, count in seen.calls.most_common())
        ends = ", ".join(f"{count:,} {name}" for name, count in seen.ends.most_common())
        return [
            f"{self.kills} kills in {self.elapsed_s:.0f} s, {seen.connections:,} connections",
            f"{sum(map(len, seen.confirmed.values())):,} messages confirmed, {distinct:,} arrived, in {deliveries:,} "
            f"deliveries, {seen.redelivered:,} of them marked as redelivered",
            f"transactions: {ends}",
            f"calls: {calls}",
        ]

    def complaints(self) -> list[str]:
        seen = self.seen
        found: list[str] = ["STALLED: not everything that was confirmed has come"] if self.has_stalled else []
        for name, confirmed in seen.confirmed.items():
            came = seen.received[name]
            # Where two consumers share a queue, either may be first to say what it has.
            disordered = _disordered(came) if _PLACES[name] == _TOPIC else []
            for fault, numbers in {
                "LOST": sorted(set(confirmed) - set(came)),
                "INVENTED": sorted(set(came) - set(range(1, seen.made[name] + 1))),
                "DISORDERED": disordered,
            }.items():
                if numbers:
                    found.append(f"{fault}, {name}: {len(numbers):,} messages, {numbers[0]} for instance")
        done = set(seen.received["transactions"])
        done_in_part = [each for each in seen.unknown if 0 < len(done & set(each)) < len(each)]
        if self.is_atomic and done_in_part:
            found.append(f"TORN: {len(done_in_part):,} transactions")
        if undead := [each for each in seen.lost if done & set(each)]:
            found.append(f"UNDEAD: {len(undead):,} transactions that were said to be lost")
        if seen.wrong_answers:
            found.append(f"WRONG: {seen.wrong_answers:,} calls got another's answer")
        return found


def _disordered(numbers: list[int]) -> list[int]:
    """Those that came for the first time behind a later one."""
    first = list(dict.fromkeys(numbers))
    return [number for before, number in pairwise(first) if number < before]


@final
class _Run:
    def __init__(self, there: There, messages: int, show: Callable[[str], None]) -> None:
        self.seen = Seen()
        self._there = there
        self._messages = messages
        self._show = show
        self._moved = Signal()
        self._clients: list[Client] = []
        self._is_over = False

    def _client(self, client_id: str | None = None) -> Client:
        client = self._there.client(client_id, max_unconfirmed=_MAX_UNCONFIRMED)
        self._clients.append(client)
        return client

    async def perform(self, moments: list[int]) -> bool:
        """Kill it at these numbers of confirmed messages. Returns whether everything has come."""
        async with trio.open_nursery() as everybody:
            await everybody.start(self._subscribe, _TOPIC, "kills")
            for _ in range(2):
                await everybody.start(self._subscribe, _QUEUE, None)
            await everybody.start(self._serve)
            async with trio.open_nursery() as publishers:
                publishers.start_soon(self._publish, "topic")
                publishers.start_soon(self._publish, "queue")
                publishers.start_soon(self._publish_transactions)
                publishers.start_soon(self._kill, moments)
                for caller in range(2):
                    everybody.start_soon(self._call, caller)
            self._is_over = True
            is_complete = await self._wait_for_all()
            await trio.sleep(_QUIET_S)
            self.seen.connections = sum(client.statistics.connections for client in self._clients)
            everybody.cancel_scope.cancel()
        return is_complete

    async def _kill(self, moments: list[int]) -> None:
        for kill, moment in enumerate(moments, start=1):
            while self._confirmed < moment:
                await self._moved.wait()
            await self._there.kill()
            self._show(f"kill {kill} of {len(moments)}, {self._confirmed:,} confirmed")

    @property
    def _confirmed(self) -> int:
        return sum(map(len, self.seen.confirmed.values()))

    async def _wait_for_all(self) -> bool:
        def missing() -> int:
            seen = self.seen
            return sum(len(set(seen.confirmed[name]) - set(seen.received[name])) for name in _PLACES)

        while missing():
            before = missing()
            with trio.move_on_after(_STALL_S):
                while missing() == before:
                    await self._moved.wait()
            if missing() == before:
                return False
        return True

    def _note(self, name: str, numbers: list[int]) -> None:
        self.seen.confirmed[name] += numbers
        self._moved.wake()

    async def _publish(self, name: str) -> None:
        def note(number: int, said: Mapping[str, str] | ClientError) -> None:
            if not isinstance(said, ClientError):
                self._note(name, [number])

        async with self._client() as client:
            for number in range(1, self._messages + 1):
                self.seen.made[name] = number
                body = f"{name} {number}".encode()
                await client.publish_soon(_PLACES[name], body, persistent=True, then=partial(note, number))
                if number % _IN_TRANSACTION == 0:
                    await trio.sleep(_PAUSE_S)
            await client.flush()

    async def _publish_transactions(self) -> None:
        name, seen = "transactions", self.seen
        async with self._client() as client:
            for first in range(1, self._messages + 1, _IN_TRANSACTION):
                numbers = range(first, first + _IN_TRANSACTION)
                seen.made[name] = numbers[-1]
                try:
                    async with client.transaction() as transaction:
                        for number in numbers:
                            transaction.publish(_QUEUE, f"{name} {number}".encode(), persistent=True)
                except OutcomeUnknown:
                    seen.ends["of unknown outcome"] += 1
                    seen.unknown.append(numbers)
                except TransactionLost:
                    seen.ends["lost"] += 1
                    seen.lost.append(numbers)
                else:
                    seen.ends["done"] += 1
                    self._note(name, list(numbers))
                await trio.sleep(_PAUSE_S)

    async def _subscribe(
        self,
        destination: str,
        durable: str | None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        async with (
            self._client(None if durable is None else "kills") as client,
            client.subscribe(destination, durable=durable) as messages,
        ):
            task_status.started()
            async for message in messages:
                self.seen.take(message)
                message.ack()
                self._moved.wake()

    async def _serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async def answer(request: Message) -> bytes:
            return b"answer to " + request.body

        async with self._client() as client, client.serve(_CALLS, answer, at_once=4):
            task_status.started()
            await client.wait_ended()

    async def _call(self, caller: int) -> None:
        number = 0
        async with self._client() as client:
            while not self._is_over:
                number += 1
                question = b"question %d of %d" % (number, caller)
                try:
                    answer = await client.call(_CALLS, question, timeout=_CALL_TIMEOUT_S)
                except _NO_ANSWER as error:
                    self.seen.calls[type(error).__name__] += 1
                else:
                    self.seen.calls["answered"] += 1
                    self.seen.wrong_answers += answer.body != b"answer to " + question
                await trio.sleep(_CALL_PAUSE_S)


async def run_kills(there: There, *, kills: int, messages: int, seed: int, show: Callable[[str], None]) -> KillsOutcome:
    """`messages` of each publisher, spread over the kills."""
    random, began_at = Random(seed), trio.current_time()
    share = len(_PLACES) * messages // (kills + 1)
    moments = [kill * share - random.randrange(share // 2) for kill in range(1, kills + 1)]
    run = _Run(there, messages, show)
    is_complete = await run.perform(moments)
    return KillsOutcome(
        kills=kills,
        elapsed_s=trio.current_time() - began_at,
        seen=run.seen,
        is_atomic=there.foreign.is_atomic,
        has_stalled=not is_complete,
    )
