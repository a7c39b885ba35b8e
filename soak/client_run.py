"""Our client against `stompbroker spotty`: publishers, subscribers, callers and servers, all in this process.

Publishing is paced over the interruptions; whoever was held up catches up. When there were enough of both and everybody
has everything, spotty is stopped and an ordinary broker is started on its data. A fresh client then reads what is left,
up to an end marker, so that acknowledgements which were lost with a connection are made again. What is judged is the
ledger (one record per message and subscription, with its offset) and what everybody has seen.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import trio

from soak.ledger_run import records_in_database, records_in_lake
from stompbroker.client import (
    AnswerUnreachable,
    BackOff,
    ClientError,
    NoAnswer,
    NobodyListens,
    OutboxFull,
    Unconfirmed,
    connect,
)
from stompbroker.signals import Signal
from tests.support.broker_process import running_broker, wait_until
from tests.support.prepared_process import PYTHON, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from stompbroker.client import Client, Message

#: Of the broker: nothing is given up, and what was in flight comes again soon.
SETTINGS: Final[dict[str, Any]] = {
    "max_attempts": 0,
    "redelivery_first_delay_ms": 5,
    "redelivery_max_delay_ms": 50,
    "lake_export_interval_s": 86_400,
}
UP: Final = "0.3..2"
DOWN: Final = "0.1..1.5"
#: From one interruption to the next, in seconds, with the start after a kill: over that, publishing is paced.
_CYCLE_S: Final = 2.5
_TOPIC: Final = "/topic/client"
_QUEUE: Final = "/queue/client"
#: Who has a durable subscription to the topic: one reads all the time, the other only at the end.
_READER: Final = "reader"
_AUDITOR: Final = "auditor"
_REQUESTS: Final = ("/topic/requests", "/queue/requests")
_END: Final = b"end"
#: Messages of a publisher in one go, so that interruptions find something on its way; and in one transaction.
_MOST_AT_ONCE: Final = 200
_IN_TRANSACTION: Final = 10
_PAUSE_S: Final = 0.02
_CALL_TIMEOUT_S: Final = 10.0
_STALL_S: Final = 60.0
_READY: Final = re.compile(r"is ready at stomp://([^\s:]+:\d+)")
#: What a call may end with instead of an answer.
_NO_ANSWER: Final = (AnswerUnreachable, NoAnswer, NobodyListens, OutboxFull, Unconfirmed)


class Sent(NamedTuple):
    publisher: int
    #: From 1, without gaps.
    number: int

    def body(self) -> bytes:
        return b"%d %d" % self


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    #: Of each publisher, at least.
    messages: int
    interruptions: int
    seed: int


@final
@dataclass(slots=True, kw_only=True)
class Seen:
    """What the clients of a run have done and got."""

    #: By publisher; confirmed.
    published: dict[int, int] = field(default_factory=dict)
    #: By destination.
    publishers: dict[str, list[int]] = field(default_factory=lambda: {_TOPIC: [], _QUEUE: []})
    #: Message id → body, of each subscription.
    bodies: dict[str, dict[str, bytes]] = field(default_factory=lambda: {_READER: {}, _AUDITOR: {}, _QUEUE: {}})
    deliveries: int = 0
    #: What became of calls, and how many answers were another's.
    calls: Counter[str] = field(default_factory=Counter)
    wrong_answers: int = 0
    connections: int = 0
    repeats: int = 0

    def take(self, subscription: str, message: Message) -> None:
        self.deliveries += 1
        self.bodies[subscription][message.id] = message.body


class Record(NamedTuple):
    """Of the ledger."""

    destination: str
    subscription: str
    offset: int
    message_id: str
    outcome: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOutcome:
    interruptions: Counter[str]
    elapsed_s: float
    seen: Seen
    records: int
    complaints: list[str]

    def lines(self) -> list[str]:
        modes = ", ".join(f"{count} {mode}" for mode, count in sorted(self.interruptions.items()))
        ends = ", ".join(f"{count:,} {name}" for name, count in self.seen.calls.most_common())
        return [
            f"{self.interruptions.total()} interruptions ({modes}) in {self.elapsed_s:.0f} s",
            f"{sum(self.seen.published.values()):,} messages published, {self.seen.repeats:,} of them confirmed as a "
            f"repeat, over {self.seen.connections:,} connections",
            f"{self.seen.deliveries:,} deliveries, {self.records:,} records in the ledger",
            f"calls: {ends}",
        ]


# The verdict ----------------------------------------------------------------------------------------------------------


def judge(seen: Seen, records: Iterable[Record]) -> list[str]:
    """What was promised and is not so, in words."""
    complaints: list[str] = []
    by_subscription: dict[str, list[Record]] = {name: [] for name in seen.bodies}
    for record in records:
        name = _QUEUE if record.destination == _QUEUE else record.subscription
        if record.destination in seen.publishers:
            by_subscription[name].append(record)
    for name, found in by_subscription.items():
        publishers = seen.publishers[_QUEUE if name == _QUEUE else _TOPIC]
        complaints += _judge_one(name, found, seen.bodies[name], {each: seen.published[each] for each in publishers})
    if seen.wrong_answers:
        complaints.append(f"WRONG: {seen.wrong_answers:,} calls got another's answer")
    return complaints


def _judge_one(name: str, records: list[Record], bodies: dict[str, bytes], published: dict[int, int]) -> Iterator[str]:
    counts = Counter(record.message_id for record in records)
    acknowledged = {record.message_id for record in records if record.outcome == "acked"}
    faults: dict[str, list[Any]] = {
        "RECORDED TWICE": [id for id, count in counts.items() if count > 1],
        "UNACKNOWLEDGED": [id for id in bodies if id not in acknowledged],
        "INVENTED": [id for id in counts if id not in bodies],
    }
    log = [
        bodies[each.message_id] for each in sorted(records, key=lambda each: each.offset) if each.message_id in bodies
    ]
    numbers: dict[int, list[int]] = {publisher: [] for publisher in published}
    for body in log:
        if body != _END:
            publisher, number = map(int, body.split())
            numbers[publisher].append(number)
    for publisher, found in numbers.items():
        times = Counter(found)
        faults |= {
            f"LOST of publisher {publisher}": [n for n in range(1, published[publisher] + 1) if n not in times],
            f"DOUBLED of publisher {publisher}": [n for n, count in times.items() if count > 1],
            f"DISORDERED of publisher {publisher}": [n for before, n in pairwise(found) if n < before],
        }
    for fault, messages in faults.items():
        if messages:
            yield f"{fault}, {name}: {len(messages):,} messages, {messages[0]} for instance"


# The run --------------------------------------------------------------------------------------------------------------


@final
class Interrupted:
    """A running spotty."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self._log = log

    def over(self) -> Counter[str]:
        """Interruptions that are over, by mode."""
        entries = [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return Counter(entry["mode"] for entry in entries if entry["event"] == "up")


@contextmanager
def running_spotty(directory: Path, seed: int) -> Iterator[Interrupted]:
    said, log = directory / "spotty", directory / "outages.jsonl"
    settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    command = [*PYTHON, "-m", "stompbroker", "spotty", "--seed", str(seed), "--up", UP, "--down", DOWN]
    command += [
        "--log",
        str(log),
        "--",
        "--port",
        "0",
        "--http-port",
        "0",
        "--data",
        str(directory / "data"),
        *settings,
    ]
    with said.open("wb") as output, (directory / "log").open("ab") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=clean_environment())
    try:
        wait_until(lambda: _READY.search(said.read_text()) or process.poll() is not None, "spotty is ready")
        found = _READY.search(said.read_text())
        assert found, f"spotty did not start:\n{(directory / 'log').read_text()}"
        yield Interrupted(process, f"stomp://{found[1]}", log)
        process.send_signal(signal.SIGINT)
        assert process.wait(_STALL_S) == 0, "spotty did not end as asked"
    finally:
        process.kill()
        process.wait()


def run_client(
    settings: ClientSettings, directory: Path, *, show: Callable[[str], None] = lambda _text: None
) -> ClientOutcome:
    """Needs an empty directory."""
    began_at, seen = time.monotonic(), Seen()
    complaints: list[str] = []
    with running_spotty(directory, settings.seed) as spotty:
        run = _Run(settings, spotty, seen, show)
        try:
            trio.run(run.perform)
        except* (ClientError, trio.TooSlowError) as group:
            complaints += [f"FAILED: {type(error).__name__}: {error}" for error in _leaves(group)]
        interruptions = spotty.over()
        if spotty.process.poll() is not None:
            complaints.append("DIED: spotty has ended by itself")
    with running_broker(directory, **SETTINGS) as broker:
        show("reading what is left")
        trio.run(_read_the_rest, f"stomp://127.0.0.1:{broker.address.port}", seen)
    records = [
        Record(
            f"/{row['kind']}/{row['topic']}", row["subscription_name"], row["offset"], row["message_id"], row["outcome"]
        )
        for row in chain(records_in_lake(broker.data), records_in_database(broker.data))
    ]
    complaints += judge(seen, records)
    if "Traceback" in (directory / "log").read_text():
        complaints.append(f"TRACEBACK: the broker has logged one, see {directory / 'log'}")
    return ClientOutcome(
        interruptions=interruptions,
        elapsed_s=time.monotonic() - began_at,
        seen=seen,
        records=len(records),
        complaints=complaints,
    )


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


async def _read_the_rest(url: str, seen: Seen) -> None:
    with trio.fail_after(10 * _STALL_S):
        for name, destination in ((_READER, _TOPIC), (_AUDITOR, _TOPIC), (_QUEUE, _QUEUE)):
            async with connect(url, client_id=f"client-{name.strip('/')}") as client:
                await client.publish(destination, _END)
                durable = None if name == _QUEUE else name
                has_ended = False
                async with client.subscribe(destination, durable=durable, prefetch=1000) as messages:
                    while not has_ended or len(seen.bodies[name]) == 0:
                        for message in await messages.take():
                            seen.take(name, message)
                            has_ended = has_ended or message.body == _END
                            await message.ack_confirmed() if message.body == _END else message.ack()


@final
class _Run:
    def __init__(self, settings: ClientSettings, spotty: Interrupted, seen: Seen, show: Callable[[str], None]) -> None:
        self._settings = settings
        self._spotty = spotty
        self._seen = seen
        self._show = show
        self._interruptions = 0
        self._made = [0, 0, 0, 0]
        self._rate = settings.messages / (max(1, settings.interruptions) * _CYCLE_S)
        self._received = Signal()
        self._clients: list[Client] = []

    def _client(self, name: str | None = None) -> Client:
        place = len(self._clients)
        client = connect(
            self._spotty.url,
            client_id=name,
            heart_beat=1.0,
            back_off=BackOff(first_s=0.05, longest_s=0.5, seed=self._settings.seed + place),
        )
        self._clients.append(client)
        return client

    async def perform(self) -> None:
        async with trio.open_nursery() as everybody:
            everybody.start_soon(self._watch)
            async with self._client(f"client-{_AUDITOR}") as auditor:
                async with auditor.subscribe(_TOPIC, durable=_AUDITOR, prefetch=1):
                    pass  # nothing is published yet
            await everybody.start(self._subscribe, _READER, _TOPIC)
            for _ in range(2):
                await everybody.start(self._subscribe, _QUEUE, _QUEUE)
            for destination in _REQUESTS:
                await everybody.start(self._serve, destination)
            async with trio.open_nursery() as publishers:
                for publisher in range(4):
                    publishers.start_soon(self._publish, publisher)
                for caller in range(4):
                    publishers.start_soon(self._call, caller)
            while not self._has_all():
                await self._received.wait()
            self._note_statistics()
            everybody.cancel_scope.cancel()

    def _note_statistics(self) -> None:
        self._seen.connections = sum(client.statistics.connections for client in self._clients)

    def _has_all(self) -> bool:
        """Whether whoever reads all the time has got everything."""
        return all(
            len(self._seen.bodies[name])
            >= sum(self._seen.published[each] for each in self._seen.publishers[destination])
            for name, destination in ((_READER, _TOPIC), (_QUEUE, _QUEUE))
        )

    def _is_over(self) -> bool:
        return self._interruptions >= self._settings.interruptions and min(self._made) >= self._settings.messages

    async def _watch(self) -> None:
        """Counts interruptions and says how far it is. Raises TooSlowError."""
        progress, moved_at = -1, trio.current_time()
        while True:
            self._interruptions = self._spotty.over().total()
            seen = self._seen
            made, answered = sum(self._made), seen.calls["answered"]
            self._show(
                f"{self._interruptions} of {self._settings.interruptions} interruptions: {made:,} of "
                f"{4 * self._settings.messages:,} sent, {seen.deliveries:,} deliveries, {answered:,} calls answered"
            )
            if made + seen.deliveries + answered != progress:
                progress, moved_at = made + seen.deliveries + answered, trio.current_time()
            elif trio.current_time() - moved_at > _STALL_S:
                raise trio.TooSlowError(f"STALLED for {_STALL_S:g} s: {[each.statistics for each in self._clients]}")
            await trio.sleep(0.25)

    async def _publish(self, publisher: int) -> None:
        """Publishers 0 and 1 to the topic, 2 and 3 to the queue; every second one in transactions."""
        destination = _TOPIC if publisher < 2 else _QUEUE
        self._seen.publishers[destination].append(publisher)
        self._seen.published[publisher] = 0
        began_at, chance = trio.current_time(), random.Random(self._settings.seed * 10 + publisher)
        async with self._client() as client:
            while not self._is_over():
                count = chance.randrange(_IN_TRANSACTION, _MOST_AT_ONCE)
                await trio.sleep_until(began_at + (self._made[publisher] + count) / self._rate)
                if publisher % 2:
                    for _ in range(count // _IN_TRANSACTION):
                        async with client.transaction() as transaction:
                            for _ in range(_IN_TRANSACTION):
                                transaction.publish(destination, self._next(publisher))
                else:
                    sent = [await client.publish_soon(destination, self._next(publisher)) for _ in range(count)]
                    for each in sent:
                        self._seen.repeats += "duplicate" in await each.wait()
            await client.flush()
            self._seen.published[publisher] = self._made[publisher]

    def _next(self, publisher: int) -> bytes:
        self._made[publisher] += 1
        return Sent(publisher, self._made[publisher]).body()

    async def _subscribe(
        self, name: str, destination: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        durable = None if name == _QUEUE else name
        async with self._client(None if durable is None else f"client-{name}") as client:
            async with client.subscribe(destination, durable=durable) as messages:
                task_status.started()
                while True:
                    for message in await messages.take():
                        self._seen.take(name, message)
                        message.ack()
                    self._received.wake()

    async def _serve(self, destination: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async def answer(request: Message) -> bytes:
            return b"answer to " + request.body

        group = "servers" if destination.startswith("/topic/") else None
        async with self._client() as client, client.serve(destination, answer, group=group, at_once=4):
            task_status.started()
            await client.wait_ended()

    async def _call(self, caller: int) -> None:
        chance, number = random.Random(self._settings.seed * 10 + caller), 0
        async with self._client() as client:
            while not self._is_over():
                number += 1
                question = b"question %d of caller %d" % (number, caller)
                try:
                    answer = await client.call(chance.choice(_REQUESTS), question, timeout=_CALL_TIMEOUT_S)
                except _NO_ANSWER as error:
                    self._seen.calls[type(error).__name__] += 1
                else:
                    self._seen.calls["answered"] += 1
                    self._seen.wrong_answers += answer.body != b"answer to " + question
                await trio.sleep(_PAUSE_S)
