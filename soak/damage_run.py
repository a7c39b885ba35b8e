"""Damages a database file at random and starts the broker on it.

A real broker makes a store with messages, gaps, cursors with holes, failures and ledger batches. Each trial damages a
copy of its file, by the seed and the trial's number, and drains every subscription. Then each message must have been
delivered unaltered, or the broker must report the damage: by refusing to start with a reason, or by the state of its
store. Nothing altered may be delivered, and nothing may be settled that was not.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from tests.end_to_end.raw_client import RawClient, frame, send_frame
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS: Final = ["--set", "redelivery_first_delay_ms=0", "--set", "max_attempts=1000"]
TOPICS: Final = ("damage.0", "damage.1")
MESSAGES: Final = 800
#: One in so many messages needs overflow pages, its size, and one in so many is not stored.
LARGE_EVERY, LARGE_BYTES, UNSTORED_EVERY = 50, 20_000, 40
PAGE_BYTES: Final = 4096
#: Seconds without a message after which the broker is asked, and after which it is given up.
LOOK_S, GIVE_UP_S = 0.1, 15.0


class Published(NamedTuple):
    body: bytes
    header: str


@final
@dataclass(frozen=True, slots=True)
class Subscriber:
    name: str
    destination: str
    topics: tuple[str, ...]
    #: Messages still to be delivered: topic and number.
    expected: set[tuple[str, int]] = field(default_factory=set)


class Result(Enum):
    INTACT = "everything delivered, nothing told: the damage hit nothing that lives"
    TOLD = "the store is damaged"
    REFUSED = "the broker does not start"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageOutcome:
    results: Counter[tuple[str, Result]]
    #: Messages delivered, and held back in trials that reported damage.
    delivered: int
    kept_back: int
    complaints: list[str]


# Damages -------------------------------------------------------------------------------------------------------------


def flip_bytes(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 4, 64))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def zero_pages(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 2, 8))):
        start = chance.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES
        data[start : start + PAGE_BYTES] = bytes(PAGE_BYTES)


def scramble_page(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES
    data[start : start + PAGE_BYTES] = chance.randbytes(PAGE_BYTES)


def swap_pages(data: bytearray, chance: random.Random) -> None:
    """Like a disk that writes to the wrong place."""
    one, other = (chance.randrange(1, len(data) // PAGE_BYTES) * PAGE_BYTES for _ in range(2))
    data[one : one + PAGE_BYTES], data[other : other + PAGE_BYTES] = (
        data[other : other + PAGE_BYTES],
        data[one : one + PAGE_BYTES],
    )


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.choice((0, chance.randrange(len(data)), chance.randrange(len(data)))) :]


KINDS: Final[tuple[Callable[[bytearray, random.Random], None], ...]] = (
    flip_bytes,
    zero_pages,
    scramble_page,
    swap_pages,
    cut,
)


# The store -----------------------------------------------------------------------------------------------------------


def _publication(topic: str, number: int) -> Published:
    size = LARGE_BYTES if number % LARGE_EVERY == 0 else number * 37 % 300
    return Published(b"%s %d %s" % (topic.encode(), number, b"x" * size), f"{topic}-{number * 7919}")


def _attach(broker: BrokerProcess, subscriber: Subscriber) -> RawClient:
    client = RawClient.connected(broker.address, client_id=subscriber.name)
    client.subscribe(
        subscriber.destination, ack="client-individual", durable_subscription_name="all", prefetch_count="500"
    )
    return client


def make_store(directory: Path, *, is_killed: bool) -> list[Subscriber]:
    """Make the store in `directory`; its broker has ended, and the file holds everything."""
    subscribers = [
        Subscriber("one", f"/topic/{TOPICS[0]}", TOPICS[:1]),
        Subscriber("other", f"/topic/{TOPICS[1]}", TOPICS[1:]),
        Subscriber("both", "/topic/damage.>", TOPICS),
    ]
    broker = BrokerProcess(directory, SETTINGS)
    broker.start()
    try:
        for subscriber in subscribers:
            _attach(broker, subscriber).close()
        with RawClient.connected(broker.address) as publisher:
            for number in range(MESSAGES):
                for topic in TOPICS:
                    body, header = _publication(topic, number)
                    kind = {"persistent": "false"} if number % UNSTORED_EVERY == 1 else {}
                    publisher.send_raw(send_frame(f"/topic/{topic}", body, x_check=header, number=str(number), **kind))
            publisher.send("SEND", b"", destination="/topic/end", receipt="published")
            publisher.expect_receipt("published")
        for subscriber in subscribers:
            subscriber.expected.update(
                (topic, number)
                for topic in subscriber.topics
                for number in range(MESSAGES)
                if number % UNSTORED_EVERY != 1
            )
            _answer_some(broker, subscriber)
        broker.stop()
        if is_killed:
            broker.start()
            broker.kill()
    finally:
        broker.clean_up()
    return subscribers


def _answer_some(broker: BrokerProcess, subscriber: Subscriber) -> None:
    """Acknowledge every third, which leaves holes, and refuse some."""
    with _attach(broker, subscriber) as client:
        for count in range(300):
            message = client.next_message()
            if count % 3 == 0:
                client.send_raw(frame("ACK", id=message.headers["ack"]))
                topic = message.headers["destination"].removeprefix("/topic/")
                subscriber.expected.discard((topic, int(message.headers["number"])))
            elif count % 10 == 1:
                client.send_raw(frame("NACK", id=message.headers["ack"]))
        client.send("UNSUBSCRIBE", b"", id="0", receipt="answered")
        while client.next_frame().command != "RECEIPT":
            pass


# Trials --------------------------------------------------------------------------------------------------------------


def run_damages(directory: Path, *, trials: int, seed: int, show: Callable[[str], None]) -> DamageOutcome:
    stores = []
    for is_killed in (False, True):
        place = directory / f"store-{'killed' if is_killed else 'closed'}"
        place.mkdir()
        stores.append((place, make_store(place, is_killed=is_killed)))
    results: Counter[tuple[str, Result]] = Counter()
    complaints: list[str] = []
    delivered = kept_back = 0
    for number in range(trials):
        show(f"trial {number} of {trials}: {len(complaints)} complaints")
        kind = KINDS[number % len(KINDS)]
        place, subscribers = stores[number // len(KINDS) % 2]
        trial = _Trial(directory / "trial", place, subscribers)
        trial.damage(kind, random.Random(f"{seed} {number}"))
        result = trial.run()
        results[kind.__name__, result] += 1
        delivered += trial.delivered
        kept_back += trial.kept_back
        complaints += [f"trial {number} ({kind.__name__}, {result.name}): {text}" for text in trial.complaints]
    return DamageOutcome(results=results, delivered=delivered, kept_back=kept_back, complaints=complaints)


@final
class _Trial:
    def __init__(self, directory: Path, store: Path, subscribers: list[Subscriber]) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(store / "data", directory / "data", ignore=shutil.ignore_patterns("*.sock", "lake"))
        self._broker = BrokerProcess(directory, SETTINGS)
        self._subscribers = subscribers
        self.complaints: list[str] = []
        self.delivered = 0
        self.kept_back = 0

    def damage(self, kind: Callable[[bytearray, random.Random], None], chance: random.Random) -> None:
        file = self._broker.data / "stompbroker.db"
        data = bytearray(file.read_bytes())
        kind(data, chance)
        file.write_bytes(data)

    def run(self) -> Result:
        broker = self._broker
        try:
            try:
                broker.start()
            except AssertionError:
                if "Restore it from one backup" not in broker.log() or "Traceback" in broker.log():
                    self.complaints.append(f"UNCLEAR: it does not start, and says\n{broker.end_of_log()}")
                return Result.REFUSED
            left = {subscriber.name: self._drain(subscriber) for subscriber in self._subscribers}
            state = self._settled_state()
            is_told = state["store"]["state"] != "ok"
            self._judge(left, state, is_told=is_told)
            if "Traceback" in broker.log():
                self.complaints.append(f"CRASHED:\n{broker.end_of_log()}")
        finally:
            broker.clean_up()
        return Result.TOLD if is_told else Result.INTACT

    def _settled_state(self) -> Any:
        """The store's state once the broker has checked everything."""
        gives_up_at = time.monotonic() + GIVE_UP_S
        while (found := self._broker.statistics())["store"]["check"] == "running" and time.monotonic() < gives_up_at:
            time.sleep(LOOK_S)
        return found

    def _drain(self, subscriber: Subscriber) -> set[tuple[str, int]]:
        """Messages that it should have got and did not."""
        left = set(subscriber.expected)
        gives_up_at = time.monotonic() + GIVE_UP_S
        try:
            client = _attach(self._broker, subscriber)
        except (AssertionError, OSError) as error:
            if self._broker.statistics()["store"]["state"] == "ok":
                self.complaints.append(f"{subscriber.name} is not let in: {error}")
            return left
        with client:
            client.socket.settimeout(LOOK_S)
            while left:
                try:
                    message = client.next_frame()
                except TimeoutError:
                    is_told = self._broker.statistics()["store"]["state"] != "ok"
                    if is_told or time.monotonic() > gives_up_at:
                        break
                    continue
                if message.command != "MESSAGE":
                    self.complaints.append(f"{subscriber.name} gets {message.command}: {message.headers}")
                    break
                self._take(subscriber, message.headers, message.body, left)
                client.send_raw(frame("ACK", id=message.headers["ack"]))
            client.socket.settimeout(GIVE_UP_S)
            client.send("UNSUBSCRIBE", b"", id="0")
        return left

    def _take(self, subscriber: Subscriber, headers: dict[str, str], body: bytes, left: set[tuple[str, int]]) -> None:
        self.delivered += 1
        topic, number = headers.get("destination", "").removeprefix("/topic/"), headers.get("number", "")
        if topic not in subscriber.topics or not number.isdigit():
            self.complaints.append(f"ALTERED: {subscriber.name} gets {headers}")
            return
        if (body, headers.get("x-check")) != _publication(topic, int(number)):
            self.complaints.append(f"ALTERED: {subscriber.name} gets {topic} {number} otherwise than it was published")
        elif (topic, int(number)) not in subscriber.expected:
            self.complaints.append(f"RESURRECTED: {subscriber.name} gets {topic} {number}, which it had acknowledged")
        left.discard((topic, int(number)))

    def _judge(self, left: dict[str, set[tuple[str, int]]], state: Any, *, is_told: bool) -> None:
        unsettled = {
            each["key"].partition("/")[0]: each["backlog"] + each["in_flight"]
            for each in state["subscriptions"]
            if each["durable"]
        }
        for name, missing in left.items():
            self.kept_back += len(missing)
            if missing and not is_told:
                self.complaints.append(f"UNNOTICED: {name} misses {len(missing)} messages, and nobody says why")
            if unsettled.get(name, 0) < len(missing):
                self.complaints.append(
                    f"SETTLED: {name} has {unsettled.get(name)} unsettled, and misses {len(missing)} messages"
                )
