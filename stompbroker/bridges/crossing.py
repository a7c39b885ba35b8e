"""One direction of a bridge: what is on its way, what may be settled where it comes from, and how it goes.

Law: synchronous, without I/O and without a clock. A message is settled at its source when everything before it, from
the same subscription, is settled or refused too: so one ACK can stand for a run, and nothing is settled that the target
has not confirmed. After a failure everything on its way is forgotten here: it was not settled, so it comes again, and
the target knows what it has already.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from stompbroker.bridges.plan import BridgePlan, Direction
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Characters of a reason that are kept.
MAX_REASON: Final = 500


@final
class CrossingState(Enum):
    CONNECTING = "connecting"
    CONNECTED = "connected"
    RETRYING = "retrying"


@final
class Verdict(Enum):
    #: The target has it, or had it before.
    ACK = "it is there"
    NACK = "it was refused"


class Settlement(NamedTuple):
    #: As the source's client knows it. From a broker of ours an ACK is for everything before it, too.
    message: Any
    verdict: Verdict
    reason: str = ""


@final
@dataclass(slots=True, eq=False)
class Passing:
    """One message between the brokers."""

    message: Any
    #: When it was sent, or when it was first seen that the one before it is decided.
    waits_since_s: float
    published_ms: int | None
    #: What the target has said; None until then.
    verdict: Verdict | None = None
    reason: str = ""


@final
@dataclass(slots=True, eq=False)
class Flow:
    """What is on its way from one subscription.

    Invariants:
        after `take_settled` the first of `_passing` is not decided
        it has at most as many as the subscription's prefetch, which the source keeps to
    """

    _crossing: Crossing
    #: A queue's message that comes back in a circle is not dropped: nobody else has it.
    is_queue: bool
    #: Woken when the first one is decided.
    decided: Signal = field(default_factory=Signal)
    _passing: deque[Passing] = field(default_factory=deque)
    #: Whether the first one has been another since this was last asked for.
    _has_moved: bool = False

    def __len__(self) -> int:
        return len(self._passing)

    @property
    def oldest(self) -> Passing | None:
        return self._passing[0] if self._passing else None

    @property
    def is_decided(self) -> bool:
        return bool(self._passing) and self._passing[0].verdict is not None

    def add(self, message: Any, now_s: float, published_ms: int | None) -> Passing:
        """It is about to be sent to the target."""
        passing = Passing(message, now_s, published_ms)
        self._passing.append(passing)
        self._crossing.received += 1
        return passing

    def confirmed(self, passing: Passing, receipt: Mapping[str, str]) -> None:
        """The target's RECEIPT has come."""
        crossing, passing.verdict = self._crossing, Verdict.ACK
        if receipt.get("circle") != "true":
            is_duplicate = receipt.get("duplicate") == "true"
            crossing.duplicates += is_duplicate
            crossing.sent += not is_duplicate
        elif self.is_queue:
            passing.verdict, passing.reason = Verdict.NACK, "it has come back in a circle of bridges"
            crossing.refused += 1
            crossing.problem = f"A message of the queue {passing.message.destination} has come back in a circle."
        else:
            crossing.circles += 1
        self._note_decided(passing)

    def refused(self, passing: Passing, reason: str) -> None:
        """The target takes others, but not this one."""
        passing.verdict, passing.reason = Verdict.NACK, in_short(reason)
        self._crossing.refused += 1
        self._note_decided(passing)

    def _note_decided(self, passing: Passing) -> None:
        if self._passing and self._passing[0] is passing:
            self.decided.wake()

    def take_settled(self) -> list[Settlement]:
        """What is to be said at the source, in this order: an ACK for each run; or for each message, since RabbitMQ
        would take an ACK of a run for everything on the connection, also what came from other subscriptions."""
        said: list[Settlement] = []
        last: Passing | None = None
        while self.is_decided:
            passing = self._passing.popleft()
            self._has_moved = True
            if passing.verdict is Verdict.ACK and self._crossing.is_from_ours:
                last = passing
                continue
            if passing.verdict is Verdict.ACK:
                said.append(Settlement(passing.message, Verdict.ACK))
                continue
            if last is not None:
                said.append(Settlement(last.message, Verdict.ACK))
                last = None
            said.append(Settlement(passing.message, Verdict.NACK, passing.reason))
        if last is not None:
            said.append(Settlement(last.message, Verdict.ACK))
        return said

    def waits_since_s(self, now_s: float) -> float:
        """Since when nothing has been decided, as far as this was asked: a slow network brings one receipt after the
        other, the last of them long after everything was sent."""
        if self._passing and self._has_moved:
            self._passing[0].waits_since_s = now_s
        self._has_moved = False
        return self._passing[0].waits_since_s if self._passing else now_s

    def check_invariants(self) -> None:
        assert len(self._passing) <= self._crossing.plan.prefetch


@final
@dataclass(slots=True, eq=False)
class Crossing:
    """
    Invariants:
        there are flows only while it is connected
        received == sent + duplicates + circles + refused + what is on its way, until the first failure
    """

    plan: BridgePlan
    direction: Direction
    state: CrossingState = CrossingState.CONNECTING
    #: When it came into that state.
    since_ns: int = 0
    #: Why it was last disconnected, or what is wrong although it is not; None if nothing ever was.
    problem: str | None = None
    #: Connections made, and attempts in a row that failed.
    connections: int = 0
    failures: int = 0
    #: Messages taken from the source, and confirmed by the target as new.
    received: int = 0
    sent: int = 0
    #: Confirmed, but they had come another way, or before a failure; dropped, since they had been there already.
    duplicates: int = 0
    circles: int = 0
    refused: int = 0
    flows: list[Flow] = field(default_factory=list)

    @property
    def is_from_ours(self) -> bool:
        return self.plan.is_ours or self.direction is Direction.SEND

    @property
    def is_to_ours(self) -> bool:
        return self.plan.is_ours or self.direction is Direction.RECEIVE

    @property
    def in_flight(self) -> int:
        return sum(map(len, self.flows))

    @property
    def oldest_published_ms(self) -> int | None:
        """Of what is on its way, as far as the source says that."""
        times = [flow.oldest.published_ms for flow in self.flows if flow.oldest is not None]
        return min((time for time in times if time is not None), default=None)

    def flow(self, pattern: str) -> Flow:
        """A new one. It counts as connected once all patterns have theirs."""
        flow = Flow(self, is_queue=pattern.startswith("/queue/"))
        self.flows.append(flow)
        return flow

    def connected(self, now_ns: int) -> None:
        self.state, self.since_ns = CrossingState.CONNECTED, now_ns
        self.connections += 1
        self.failures = 0

    def failed(self, reason: str, now_ns: int) -> None:
        """It is over for now. What was on its way comes again."""
        if self.state is not CrossingState.RETRYING:
            self.state, self.since_ns = CrossingState.RETRYING, now_ns
        self.problem = in_short(reason)
        self.failures += 1
        self.flows = []

    def overdue(self, now_s: float) -> str | None:
        """Why it should be given up for now; None while receipts come in time."""
        limit_s = self.plan.receipt_timeout_s
        if any(flow.waits_since_s(now_s) + limit_s <= now_s for flow in self.flows):
            return f"A receipt has not come for {limit_s:g} seconds."
        return None

    def check_invariants(self) -> None:
        for flow in self.flows:
            flow.check_invariants()
        if not self.failures and self.connections <= 1:
            done = self.sent + self.duplicates + self.circles + self.refused
            assert 0 <= self.received - done <= self.in_flight


def in_short(reason: str) -> str:
    """A reason in one line, as it is shown and logged."""
    lines = (line.strip().removesuffix(".") for line in reason.splitlines())
    text = "; ".join(filter(None, lines)) if "\n" in reason else reason
    return text[:MAX_REASON]


def crossings_of(plans: Iterable[BridgePlan], now_ns: int) -> list[Crossing]:
    """One for each direction that has patterns."""
    return [
        Crossing(plan, direction, since_ns=now_ns)
        for plan in plans
        for direction in Direction
        if plan.patterns(direction)
    ]
