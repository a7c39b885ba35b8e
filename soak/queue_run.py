"""A queue and a durable group under kills: each message goes to one of several members, and one of them settles it.

Members come and go by UNSUBSCRIBE, DISCONNECT and reset, refuse some messages, and acknowledge the others in random
order, each with a receipt. Most messages have one of a thousand keys. All members of a group share one history.
`Holdings` sees who has what, and whether the order of each key holds; `verdict` judges the rest. The broker itself says
when nothing is left; the embedded database says what the ledger has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import trio

from soak.body import publication_in
from soak.crash_run import Cast, CrashOutcome, CrashSettings, run_crashes
from soak.history import AckConfirmed, Delivered, Publication, SubscriberHistory
from soak.kill_plan import Moment
from soak.ledger_run import LedgerOutcome, in_database, in_lake
from soak.publisher import Publisher
from soak.stomp_client import Misbehaved, StompClient, connected, encoded
from soak.verdict import Fault, Finding
from stompbroker.cli.control_client import connect
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from soak.history import PublisherHistory
    from soak.scene import Scene
    from soak.victim import Victim
    from stompbroker.stomp import Frame
    from tests.support.broker_process import Address, BrokerProcess

#: Settings of the broker. Refused messages come again soon, and never become dead letters.
SETTINGS: Final[dict[str, Any]] = {"redelivery_first_delay_ms": 5, "redelivery_max_delay_ms": 50, "max_attempts": 0}

#: What is subscribed to, and the broker's name for the subscription.
_GROUPS: Final = (
    ({"destination": "/queue/soak"}, "/queue/soak"),
    ({"destination": "/topic/soak", "group": "workers"}, "group:workers @ soak"),
)
_PUBLISHERS_PER_GROUP: Final = 2
_MEMBERS: Final = 5
_PREFETCHES: Final = ("1", "7", "100", "400")
_NACK_PROBABILITY: Final = 0.03
_HOLD_BACK_PROBABILITY: Final = 0.1
#: How many buffers a member stays for, and how many receipts for SENDs it misses while it is away. Members that stayed
#: for longer left so rarely that a broker that mixed up what they had went unnoticed.
_MOST_BUFFERS: Final = 12
_MOST_MISSED: Final = 300
#: Keys of a publisher, and how many messages in a row have one key, so that some always wait for others.
_KEYS: Final = 1000
_IN_A_ROW: Final = 3
#: One row in so many has no key.
_KEYLESS_EVERY: Final = 10
_PRAISE: Final = (
    "Nothing lost, nothing settled twice, nothing with two members at once, no key out of order, nothing left."
)
#: Seconds between two looks at what is left.
_LOOK_S: Final = 0.1


def key_of(number: int) -> str | None:
    row = number // _IN_A_ROW
    return None if row % _KEYLESS_EVERY == 0 else str(row % _KEYS)


def before(number: int) -> int:
    """The last message before it with the same key; below 1 if there is none."""
    return number - 1 if number % _IN_A_ROW else number - 1 - (_KEYS - 1) * _IN_A_ROW


async def run_queues(
    settings: CrashSettings,
    broker: BrokerProcess,
    victim: Victim,
    *,
    watch: Callable[[Scene], None] = lambda _scene: None,
) -> CrashOutcome:
    """As `run_crashes`, with the members of a queue and of a group instead of subscribers."""
    groups: list[Group] = []
    publishers: list[Publisher] = []

    def make_cast(settings: CrashSettings, scene: Scene, random: Random) -> Cast:
        for number in range(settings.publishers):
            destination = _GROUPS[number % len(_GROUPS)][0]["destination"]
            publishers.append(
                Publisher(
                    number, destination, Random(random.random()), scene, messages=settings.messages, key_of=key_of
                )
            )
        for number, (headers, key) in enumerate(_GROUPS):
            own = publishers[number :: len(_GROUPS)]
            groups.append(Group(key, headers, own, Random(random.random()), scene, broker))
        return Cast(scene, publishers, groups)

    settings = replace(settings, publishers=len(_GROUPS) * _PUBLISHERS_PER_GROUP)
    outcome = await run_crashes(settings, broker, victim, watch=watch, make_cast=make_cast)
    histories = [publisher.history for publisher in publishers]
    found = [finding for group in groups for finding in group.holdings.findings(histories)]
    misfortunes = outcome.misfortunes
    if not misfortunes and (broker.data / "stompbroker.db").exists():
        misfortunes = await trio.to_thread.run_sync(_ledger_complaints, broker, groups)
    remarks = [group.describe() for group in groups]
    return replace(outcome, findings=outcome.findings + found, misfortunes=misfortunes, praise=_PRAISE, remarks=remarks)


def _ledger_complaints(broker: BrokerProcess, groups: Iterable[Group]) -> list[str]:
    """Nothing is left, so each message that was acknowledged has one record, whether its receipt has come or not."""
    broker.stop()
    acknowledged: set[str] = set()
    for group in groups:
        ids = dict(event for event in group.history.events if isinstance(event, Delivered))
        acknowledged.update(ids[publication] for publication in group.holdings.acknowledged)
    outcome = LedgerOutcome(
        kills=0,
        confirmed=frozenset(acknowledged),
        answered=frozenset(acknowledged),
        in_lake=tuple(in_lake(broker.data)),
        in_database=tuple(in_database(broker.data)),
    )
    broker.restart()
    return outcome.complaints()


@final
class Holdings:
    """Which member has which message, and what has been acknowledged.

    A member holds a message from when it has read it until its ACK is confirmed, it refuses the message, or it leaves:
    each of these it knows before the broker can give the message to another. What it reads while it leaves, or from a
    broker that has been killed since, it never had.
    """

    def __init__(self, group: str, publishers: frozenset[int]) -> None:
        self.history = SubscriberHistory(subscriber=group, publishers=publishers, is_ordered=False)
        self.acknowledged: set[Publication] = set()
        self.confirmed: set[Publication] = set()
        #: Publisher and number of what was acknowledged, in any copy.
        self._numbers: set[tuple[int, int]] = set()
        self._holders: dict[Publication, str] = {}
        #: In which life of the broker each message was last delivered.
        self._lives: dict[Publication, int] = {}
        self._found: list[Finding] = []

    def take(self, member: str, publication: Publication, message_id: str, *, life: int, is_marked: bool) -> None:
        self.history.events.append(Delivered(publication, message_id))
        if self._lives.get(publication) == life:
            if publication in self._holders:
                self._complain(Fault.HELD_TWICE, publication)
            if not is_marked:
                self._complain(Fault.UNMARKED, publication)
        earlier = before(publication.number)
        is_next = earlier < 1 or (publication.publisher, earlier) in self._numbers
        if key_of(publication.number) is not None and not is_next:
            self._complain(Fault.OVERTOOK, publication)
        self._holders[publication] = member
        self._lives[publication] = life

    def acknowledge(self, publication: Publication) -> None:
        self.acknowledged.add(publication)
        self._numbers.add((publication.publisher, publication.number))

    def confirm(self, publication: Publication) -> None:
        self.history.events.append(AckConfirmed(publication))
        if publication in self.confirmed:
            self._complain(Fault.SETTLED_TWICE, publication)
        self.confirmed.add(publication)

    def let_go(self, member: str, publications: Iterable[Publication]) -> None:
        for publication in publications:
            if self._holders.get(publication) == member:
                del self._holders[publication]

    def findings(self, publishers: Iterable[PublisherHistory]) -> list[Finding]:
        """What was wrong, when nothing is left. The copy with the receipt is the last one of a message."""
        unsettled = (
            Publication(each.publisher, number, each.copies[number - 1])
            for each in publishers
            if each.publisher in self.history.publishers
            for number in sorted(each.receipted)
        )
        for publication in unsettled:
            if publication not in self.acknowledged:
                self._complain(Fault.UNSETTLED, publication)
        return self._found

    def _complain(self, fault: Fault, publication: Publication) -> None:
        self._found.append(
            Finding(
                fault=fault,
                subscriber=self.history.subscriber,
                publisher=publication.publisher,
                number=publication.number,
            )
        )


@final
class Group:
    """All members of one queue or group."""

    def __init__(
        self,
        key: str,
        headers: Mapping[str, str],
        publishers: Sequence[Publisher],
        random: Random,
        scene: Scene,
        broker: BrokerProcess,
    ) -> None:
        self.headers = headers
        self.holdings = Holdings(key, frozenset(each.history.publisher for each in publishers))
        self._publishers = publishers
        self._scene = scene
        self._broker = broker
        self._members = [_Member(f"{key} {number}", self, Random(random.random()), scene) for number in range(_MEMBERS)]
        #: How often members left in which way, and with how many messages that they had not answered.
        self.departures: Counter[str] = Counter()
        self.left_behind = 0
        #: By what the broker said when everything was published; None before.
        self._left: int | None = None

    @property
    def history(self) -> SubscriberHistory:
        return self.holdings.history

    def is_published(self) -> bool:
        return all(publisher.is_done for publisher in self._publishers)

    def has_all(self, _last_numbers: Mapping[int, int]) -> bool:
        return self._left == 0 and not any(member.is_busy for member in self._members)

    def missing(self, last_numbers: Mapping[int, int]) -> int:
        sent = sum(last_numbers[publisher] for publisher in self.history.publishers)
        return self._left or sent - len({(each.publisher, each.number) for each in self.holdings.acknowledged})

    def describe(self) -> str:
        ways = ", ".join(f"{count:,} by {way}" for way, count in sorted(self.departures.items()))
        return f"{self.history.subscriber}: members left {self.left_behind:,} unanswered messages behind; {ways}"

    async def create(self) -> None:
        await self._scene.keep_connected(self._members[0].come_and_go)

    async def run(self) -> None:
        self._left = None
        async with trio.open_nursery() as nursery:
            for member in self._members:
                nursery.start_soon(member.run)
            while True:
                await trio.sleep(_LOOK_S)
                if self.is_published() and self._scene.is_up and self._left != 0:
                    await self._look()

    async def _look(self) -> None:
        try:
            async with connect(self._broker.data) as control:
                listed = (await control.call("subscriptions", durable=True))["subscriptions"]
        except OperatorError:
            return  # it has been killed meanwhile
        # A queue that is empty and not used for long is gone.
        found = [each for each in listed if each["key"] == self.history.subscriber]
        self._left = sum(each["backlog"] + each["in_flight"] for each in found)
        if not self._left:
            self._scene.move_on()


@final
class _Member:
    """Invariant: `_held` are the ids and messages it has not answered, `_unconfirmed` those whose ACK is on its way."""

    def __init__(self, name: str, group: Group, random: Random, scene: Scene) -> None:
        self._name = name
        self._group = group
        self._random = random
        self._scene = scene
        self._held: list[tuple[str, Publication]] = []
        self._unconfirmed: dict[str, Publication] = {}
        self._receipts = 0
        self._life = 0
        self._is_leaving = False

    @property
    def is_busy(self) -> bool:
        return bool(self._held or self._unconfirmed)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._scene.keep_connected(self._work)
            comes_back_at = self._scene.count(Moment.RECEIPTED) + self._random.randint(0, _MOST_MISSED)
            await self._scene.wait_until(
                lambda at=comes_back_at: (  # type: ignore[misc]
                    self._scene.count(Moment.RECEIPTED) >= at or self._group.is_published()
                )
            )

    async def come_and_go(self, address: Address) -> None:
        async with connected(address) as client:
            await self._subscribe(client)

    async def _work(self, address: Address) -> None:
        """Until the connection is lost, or it leaves without coming back on the same one."""
        self._life, self._is_leaving = self._scene.life, False
        async with connected(address) as client:
            try:
                while await self._stay(client):
                    pass
            finally:
                self._let_go()
                self._group.holdings.let_go(self._name, self._unconfirmed.values())
                self._unconfirmed.clear()

    async def _stay(self, client: StompClient) -> bool:
        """Subscribe, work for a while, and leave with the last buffer unanswered; whether it is still connected."""
        await self._subscribe(client)
        for _ in range(self._random.randint(0, _MOST_BUFFERS)):
            self._take(await client.wait_frames())
            await self._answer(client)
        self._take(await client.wait_frames())
        way = self._random.choice(("UNSUBSCRIBE", "DISCONNECT", "reset"))
        self._group.departures[way] += 1
        self._group.left_behind += len(self._held)
        self._let_go()
        if way == "reset":
            await client.reset()
            return False
        self._is_leaving = True
        await client.send(encoded(way, {"id": "0", "receipt": "left"}))
        while self._is_leaving or self._unconfirmed:
            self._take(await client.wait_frames())
        return way == "UNSUBSCRIBE"

    async def _subscribe(self, client: StompClient) -> None:
        headers = {"id": "0", "ack": "client-individual", "receipt": "subscribed", **self._group.headers}
        headers["prefetch-count"] = self._random.choice(_PREFETCHES)
        await client.request("SUBSCRIBE", headers, answer="RECEIPT")

    def _take(self, frames: Iterable[Frame]) -> None:
        delivered = confirmed = 0
        for frame in frames:
            receipt = frame.headers.get("receipt-id")
            if frame.command == "MESSAGE":
                if self._is_leaving or self._life != self._scene.life:
                    continue
                publication = publication_in(frame.body)
                self._group.holdings.take(
                    self._name,
                    publication,
                    frame.headers["message-id"],
                    life=self._life,
                    is_marked=frame.headers["redelivered"] == "true",
                )
                self._held.append((frame.headers["ack"], publication))
                delivered += 1
            elif receipt == "left":
                self._is_leaving = False
            elif receipt in self._unconfirmed:
                publication = self._unconfirmed.pop(receipt)
                self._group.holdings.confirm(publication)
                self._group.holdings.let_go(self._name, [publication])
                confirmed += 1
            else:
                raise Misbehaved(f"{frame.command} {frame.headers} for {self._name}")
        self._scene.note(Moment.DELIVERED, delivered)
        self._scene.note(Moment.ACK_CONFIRMED, confirmed)

    async def _answer(self, client: StompClient) -> None:
        """Most, in random order. It keeps some only if a receipt is to come, after which it answers again."""
        self._random.shuffle(self._held)
        holdings, frames = self._group.holdings, []
        kept: list[tuple[str, Publication]] = []
        for ack_id, publication in self._held:
            if self._unconfirmed and self._random.random() < _HOLD_BACK_PROBABILITY:
                kept.append((ack_id, publication))
            elif self._random.random() < _NACK_PROBABILITY:
                holdings.let_go(self._name, [publication])
                frames.append(encoded("NACK", {"id": ack_id}))
            else:
                self._receipts += 1
                receipt = f"ack {self._receipts}"
                holdings.acknowledge(publication)
                self._unconfirmed[receipt] = publication
                frames.append(encoded("ACK", {"id": ack_id, "receipt": receipt}))
        self._held = kept
        if frames:
            await client.send(b"".join(frames))
            self._scene.note(Moment.ACKNOWLEDGED, len(frames))

    def _let_go(self) -> None:
        """Of what it has not answered."""
        self._group.holdings.let_go(self._name, [publication for _, publication in self._held])
        self._held.clear()
