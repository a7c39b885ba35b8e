"""One run: publishers, durable subscribers, and kills.

Subscriptions are made before the first message. Then everything runs until the plan is done and every message has its
receipt and has reached everybody. A last kill follows when nobody waits for anything: after it only new messages may
arrive, and those never acknowledged with a receipt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from soak.kill_plan import KillPlan, plan_kills
from soak.publisher import Publisher
from soak.scene import Reachable, Scene
from soak.stomp_client import Misbehaved
from soak.subscriber import Subscriber
from soak.verdict import Finding, Tally, findings, tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from soak.history import SubscriberHistory
    from soak.victim import Victim

_TOPICS: Final = 2
_ALL_TOPICS: Final = "/topic/crash.>"
_SHOWN_FINDINGS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashSettings:
    #: Per publisher, at least.
    messages: int
    kills: int
    seed: int = 1
    publishers: int = 3
    subscribers: int = 3
    #: Seconds without progress after which the run is aborted.
    stall_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashOutcome:
    findings: list[Finding]
    tally: Tally
    kills: int
    #: Why the run was aborted: a stall, or a broker that misbehaved.
    misfortunes: list[str]
    #: What the subscribers saw.
    histories: Sequence[SubscriberHistory] = ()
    #: What else there was to judge.
    remarks: list[str] = field(default_factory=list)
    #: What to say if nothing went wrong.
    praise: str = "Nothing lost, nothing out of order, nothing acknowledged came again."

    def complaints(self) -> list[str]:
        """What went wrong; empty if nothing did."""
        shown = [str(finding) for finding in self.findings[:_SHOWN_FINDINGS]]
        if len(self.findings) > _SHOWN_FINDINGS:
            shown.append(f"… and {len(self.findings) - _SHOWN_FINDINGS:,} more")
        return [*self.misfortunes, *shown]


async def run_crashes(
    settings: CrashSettings,
    broker: Reachable,
    victim: Victim,
    *,
    watch: Callable[[Scene], None] = lambda _scene: None,
    make_cast: Callable[[CrashSettings, Scene, Random], Cast] | None = None,
) -> CrashOutcome:
    """The broker must be running, and still runs at the end unless it misbehaved. Without `make_cast` the subscribers
    are durable ones."""
    random = Random(settings.seed)
    messages = settings.messages * settings.publishers
    plan = KillPlan(plan_kills(random, kills=settings.kills, messages=messages))
    scene = Scene(broker, victim, plan, stall_s=settings.stall_s, watch=watch)
    cast = (make_cast or _durable_cast)(settings, scene, random)
    misfortunes: list[str] = []
    try:
        await cast.perform()
    except* Misbehaved as misbehaved:
        misfortunes += [f"MISBEHAVED: {each}" for each in _leaves(misbehaved)]
    if cast.scene.patience.cancelled_caught:
        misfortunes.append(f"STALLED for {settings.stall_s:g} s: {cast.describe()}")
    histories = [each.history for each in cast.publishers], [each.history for each in cast.subscribers]
    return CrashOutcome(
        findings=findings(*histories),
        tally=tally(*histories),
        kills=cast.scene.kills,
        misfortunes=misfortunes,
        histories=histories[1],
    )


class Receiving(Protocol):
    """A durable subscriber, or the members of a group."""

    @property
    def history(self) -> SubscriberHistory: ...
    def has_all(self, last_numbers: Mapping[int, int]) -> bool:
        """Whether it has all messages up to these, and every requested confirmation."""

    def missing(self, last_numbers: Mapping[int, int]) -> int: ...
    async def create(self) -> None:
        """Make the subscription, and leave."""

    async def run(self) -> None:
        """Until cancelled."""


@final
class Cast:
    """Who takes part."""

    def __init__(self, scene: Scene, publishers: Sequence[Publisher], subscribers: Sequence[Receiving]) -> None:
        self.scene = scene
        self.publishers = publishers
        self.subscribers = subscribers

    async def perform(self) -> None:
        with self.scene.patience:
            self.scene.move_on()
            for subscriber in self.subscribers:
                await subscriber.create()
            await self._play()
            self.scene.kill()
            for publisher in self.publishers:
                publisher.messages = publisher.last_number + 1
            await self._play()

    async def _play(self) -> None:
        """Until everybody has everything."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.scene.bring_back_for_ever)
            for subscriber in self.subscribers:
                nursery.start_soon(subscriber.run)
            for publisher in self.publishers:
                nursery.start_soon(publisher.run)
            await self.scene.wait_until(self._is_complete)
            nursery.cancel_scope.cancel()

    def _last_numbers(self) -> dict[int, int]:
        return {publisher.history.publisher: publisher.last_number for publisher in self.publishers}

    def _is_complete(self) -> bool:
        if not self.scene.is_up or not all(publisher.is_done for publisher in self.publishers):
            return False
        last_numbers = self._last_numbers()
        return all(subscriber.has_all(last_numbers) for subscriber in self.subscribers)

    def describe(self) -> str:
        last_numbers = self._last_numbers()
        waiting = [
            f"publisher {each.history.publisher} has {len(each.history.receipted):,} receipts for {each.last_number:,}"
            for each in self.publishers
        ]
        waiting += [
            f"{each.history.subscriber} misses {each.missing(last_numbers):,} messages" for each in self.subscribers
        ]
        return f"{self.scene.kills} kills, up: {self.scene.is_up}, " + ", ".join(waiting)


def _durable_cast(settings: CrashSettings, scene: Scene, random: Random) -> Cast:
    """Every second subscriber has the first topic, the others a wildcard; every third one wanders."""
    publishers = [
        Publisher(number, _topic(number), Random(random.random()), scene, messages=settings.messages)
        for number in range(settings.publishers)
    ]
    subscribers = []
    for number in range(settings.subscribers):
        destination = _topic(0) if number % 2 else _ALL_TOPICS
        subscribers.append(
            Subscriber(
                f"subscriber-{number}",
                destination,
                Random(random.random()),
                scene,
                publishers=[
                    publisher for publisher in range(len(publishers)) if destination in (_ALL_TOPICS, _topic(publisher))
                ],
                wanders=number % 3 == 2,
                is_published=lambda: all(publisher.is_done for publisher in publishers),
            )
        )
    return Cast(scene, publishers, subscribers)


def _topic(publisher: int) -> str:
    return f"/topic/crash.{publisher % _TOPICS}"


def _leaves(group: BaseExceptionGroup[Misbehaved]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for each in group.exceptions:
        leaves += _leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return leaves
