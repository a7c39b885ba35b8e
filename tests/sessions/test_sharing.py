"""How members of a group or queue share its messages: by how fast they are, and one after another if it is exclusive.

Time here is turns: in each, a member acknowledges as many messages as it is fast. So all is counted, and no clock
decides.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client

GROUP: Final[dict[str, Any]] = {"destination": "/topic/jobs", "group": "workers", "auto_delete": "true"}
QUEUE: Final[dict[str, Any]] = {"destination": "/queue/jobs"}
#: What a fast member acknowledges in a turn.
FAST: Final = 10
TURNS: Final = 60

shared = pytest.mark.parametrize("headers", [GROUP, QUEUE], ids=["group", "queue"])


@final
class Member:
    """Acknowledges up to `speed` messages in each turn, the oldest first."""

    def __init__(self, client: Client, speed: int) -> None:
        self.client = client
        self.speed = speed
        self.held: list[Frame] = []
        self.acknowledged = 0

    async def take(self) -> None:
        while await self.client.has_more():
            self.held.append(await self.client.next_message())

    async def work(self) -> None:
        done, self.held = self.held[: self.speed], self.held[self.speed :]
        if done:
            await self.client.send_raw(b"".join(self.client.frame("ACK", id=each.headers["ack"]) for each in done))
            self.acknowledged += len(done)


async def members_of(broker: BrokerUnderTest, headers: dict[str, Any], speeds: Sequence[int]) -> list[Member]:
    return [Member(await broker.subscriber(ack="client-individual", **headers), speed) for speed in speeds]


async def publish(client: Client, numbers: range, destination: str) -> None:
    await client.publish(*(b"%d" % number for number in numbers), destination=destination)


async def take_a_turn(members: Sequence[Member], random: Random) -> None:
    """Each takes what has come and works; somebody else is first in each turn."""
    for member in random.sample(members, len(members)):
        await member.take()
        await member.work()


# Fair shares ----------------------------------------------------------------------------------------------------------


@shared
@pytest.mark.parametrize("prefetch", ["10", "100", "1000"])
async def test_members_of_equal_speed_get_within_a_tenth_of_each_other(
    autojump_clock: MockClock, headers: dict[str, Any], prefetch: str
) -> None:
    """What comes varies, and is less than they can do on average, so who gets it is the broker's choice."""
    random = Random(18)
    async with running_broker() as broker:
        members = await members_of(broker, {**headers, "prefetch_count": prefetch}, [FAST] * 4)
        publisher = await broker.client()
        sent = 0
        for _ in range(TURNS):
            count = random.randrange(2 * len(members) * FAST)
            await publish(publisher, range(sent, sent + count), headers["destination"])
            sent += count
            await take_a_turn(members, random)
        for _ in range(TURNS):
            await take_a_turn(members, random)

        got = [member.acknowledged for member in members]
        assert sum(got) == sent
        assert min(got) >= 0.9 * max(got), got


@shared
@pytest.mark.parametrize("speed", [1, 0], ids=["ten-times-slower", "acknowledges-nothing"])
@pytest.mark.parametrize("prefetch", ["20", "100"])
async def test_a_slow_member_slows_nobody_and_holds_no_more_than_its_prefetch(
    autojump_clock: MockClock, headers: dict[str, Any], prefetch: str, speed: int
) -> None:
    random = Random(18)
    async with running_broker() as broker:
        members = await members_of(broker, {**headers, "prefetch_count": prefetch}, [speed, FAST, FAST, FAST])
        publisher = await broker.client()
        await publish(publisher, range(len(members) * FAST * TURNS + 1000), headers["destination"])

        for _ in range(TURNS):
            await take_a_turn(members, random)
            assert len(members[0].held) <= int(prefetch)

        slow, *others = [member.acknowledged for member in members]
        assert slow == speed * TURNS
        assert min(others) >= 0.9 * FAST * TURNS, others


# One active member after another --------------------------------------------------------------------------------------

HAND_OVERS: Final = 1000
WAYS: Final = ("UNSUBSCRIBE", "DISCONNECT", "lost")


@final
class Line:
    """Members of an exclusive queue in the order in which they came; the first is the active one.

    Whoever is active must be sent what is not settled, in order, up to its prefetch; the others nothing.
    """

    PREFETCH: Final = 8
    LENGTH: Final = 4

    def __init__(self, broker: BrokerUnderTest, random: Random) -> None:
        self._broker = broker
        self._random = random
        self._members: list[Client] = []
        #: What is not settled, and how much of that the active member has been sent, from the start.
        self._unsettled: list[int] = []
        self._sent: list[Frame] = []
        self._published = 0

    @property
    def is_empty(self) -> bool:
        return not self._unsettled

    async def fill(self) -> None:
        while len(self._members) < self.LENGTH:
            await self._join(await self._broker.client())

    async def _join(self, client: Client) -> None:
        await client.subscribe(**QUEUE, ack="client-individual", exclusive="true", prefetch_count=str(self.PREFETCH))
        self._members.append(client)

    async def publish(self, publisher: Client, count: int) -> None:
        """Without waiting for anything."""
        numbers = range(self._published, self._published + count)
        self._published += count
        self._unsettled += numbers
        await publish(publisher, numbers, QUEUE["destination"])

    async def check(self) -> None:
        """The active member has been sent the oldest of what is not settled, and nobody else has been sent anything."""
        active, *others = self._members
        await wait_all_tasks_blocked()
        while await active.has_more():
            self._sent.append(await active.next_message())
        assert [int(each.body) for each in self._sent] == self._unsettled[: self.PREFETCH]
        for other in others:
            assert not await other.has_more()

    def _some_answers(self) -> bytes:
        """Of the active member, some of what it was sent, in any order."""
        chosen = self._random.sample(range(len(self._sent)), self._random.randint(0, len(self._sent)))
        frames = b"".join(self._members[0].frame("ACK", id=self._sent[place].headers["ack"]) for place in chosen)
        settled = {int(self._sent[place].body) for place in chosen}
        self._sent = [each for each in self._sent if int(each.body) not in settled]
        self._unsettled = [number for number in self._unsettled if number not in settled]
        return frames

    async def work(self) -> None:
        await self._members[0].send_raw(self._some_answers())

    async def hand_over(self, way: str) -> None:
        """With its last answers the active member leaves; it or another one queues up behind."""
        active = self._members[0]
        answers = self._some_answers()
        if way == "UNSUBSCRIBE":
            await active.send_raw(answers + active.frame("UNSUBSCRIBE", id="0", receipt="left"))
        elif way == "DISCONNECT":
            await active.send_raw(answers + active.frame("DISCONNECT", receipt="left"))
        else:
            await active.send_raw(answers)
            await active.stream.aclose()
        self._members.pop(0)
        self._sent.clear()
        if way == "lost":
            return
        # What came before it left was never looked at.
        while (frame := await active.next_frame()).command == "MESSAGE":
            pass
        assert frame.headers == {"receipt-id": "left"}
        if way == "UNSUBSCRIBE":
            await self._join(active)
        else:
            await active.expect_closed()


async def test_over_a_thousand_hand_overs_no_message_is_with_two_members_and_none_out_of_order(
    autojump_clock: MockClock,
) -> None:
    """Answers, departures and new messages are on their way at the same time; what each member is sent is known."""
    random = Random(18)
    async with running_broker() as broker:
        publisher = await broker.client()
        line = Line(broker, random)
        for number in range(HAND_OVERS):
            await line.fill()
            await line.publish(publisher, random.randint(0, 8))
            if random.random() < 0.5:
                await line.check()
                await line.work()
            await line.check()
            await line.publish(publisher, random.randint(0, 3))
            await line.hand_over(random.choice(WAYS))
            if number % 100 == 0:
                broker.check_invariants()
        await line.fill()
        while not line.is_empty:
            await line.check()
            await line.work()
