"""Tells publishers that ask (`outcome-to`) what became of their messages.

Law: a delivery that has ended becomes one small message, made in that moment; the journal stores it in the batch that
stores the end, as it does with records of the ledger. So what is told and what is so never differ, whatever is killed.
No settlement waits for a publisher or fails because of one: an outcome whose destination is gone, full or refused by
the store is lost, and counted. An outcome asks nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.changes.effects import SettledDeliveries, Told
from stompbroker.changes.journal import Unit
from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import DestinationKind, Pattern, Untold
from stompbroker.errors import PeerViolation
from stompbroker.ids import ConnectionId
from stompbroker.message import Message, Origin, size_of_all
from stompbroker.stomp import message_tail, render_headers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from stompbroker.changes.journal import Journal
    from stompbroker.changes.queues import Queues
    from stompbroker.clock import Clock
    from stompbroker.counting import Totals
    from stompbroker.delivery import Ended, Registry, Subscription, Topic
    from stompbroker.log_throttle import LogThrottle
    from stompbroker.message import MessageIds

#: Begins the destination of an outcome in a temporary one. The name behind it lets nobody send there.
_REPLY_QUEUE: Final = "/reply-queue/"
#: No connection has this number: what the broker sends is nobody's own.
_BROKER: Final = ConnectionId(0)
_NS_PER_MS: Final = NANOSECONDS // 1000


@final
@dataclass(frozen=True, slots=True)
class Outcomes:
    _registry: Registry
    _journal: Journal
    _queues: Queues
    _message_ids: MessageIds
    _clock: Clock
    _totals: Totals
    _throttle: LogThrottle

    def render(self, ended: Iterable[Ended]) -> list[Untold]:
        """A message about each; queues for them are made if need be. Those that nobody can be told of are lost."""
        now_ns = self._clock.now_ns()
        found: list[Untold] = []
        for one in ended:
            topic = self._find(one.asked.to, now_ns)
            if topic is None:
                self.note_lost(one.asked.to, 1, "there is no such destination any more")
            else:
                topic.last_used_at_ns = now_ns  # it must not go before the journal comes to this
                found.append(Untold(one.asked.to, self._message(one, topic, now_ns)))
        return found

    def _find(self, to: str, now_ns: int) -> Topic | None:
        topic = self._registry.topics.get(to)
        if topic is not None and not topic.is_gone:
            return topic
        name = Pattern.keyed(to)
        if name.kind is DestinationKind.TEMPORARY:
            return None
        try:
            return self._queues.topic(name, now_ns)
        except PeerViolation:  # there are too many topics
            return None

    def _message(self, ended: Ended, topic: Topic, now_ns: int) -> Message:
        asked, name = ended.asked, topic.destination
        headers = {
            "destination": _REPLY_QUEUE + topic.name if name.kind is DestinationKind.TEMPORARY else str(name),
            "outcome": ended.outcome.value,
            "outcome-of": asked.message_id.decode(),
            "outcome-destination": ended.destination,
            "outcome-subscription": ended.subscription,
            "attempts": str(ended.attempts),
        }
        if ended.reason:
            headers["reason"] = ended.reason
        block = render_headers(headers.items()) + asked.correlation_id
        lifetime_ns = topic.policy.message_ttl_ms * _NS_PER_MS or None
        topic.is_choosy = topic.is_choosy or lifetime_ns is not None
        publisher = self._message_ids.connection_name(_BROKER)
        origin = Origin(publisher, is_plain=b"\\r" not in block, lifetime_ns=lifetime_ns)
        return Message(0, message_tail(self._message_ids.make(), block, b""), origin, now_ns)

    def unit(self, untold: Iterable[Untold], created: Collection[Subscription], *, has_room: bool) -> Unit:
        """Beside the cursors that say what these tell. `created`: the subscriptions that begin with the same batch."""
        return Unit([*self._effects(untold, created, has_room=has_room)], owes_receipt=False)

    def go_with(self, unit: Unit, created: Collection[Subscription], *, has_room: bool) -> None:
        """A unit that settles deliveries also tells publishers."""
        untold: list[Untold] = []
        for effect in unit.effects:
            if isinstance(effect, SettledDeliveries) and effect.untold:
                untold += effect.untold
                effect.untold = []
        unit.effects += self._effects(untold, created, has_room=has_room)

    def _effects(self, untold: Iterable[Untold], created: Collection[Subscription], *, has_room: bool) -> list[Told]:
        """One for each destination."""
        runs: dict[str, list[Message]] = {}
        for to, message in untold:
            runs.setdefault(to, []).append(message)
        found: list[Told] = []
        now_ns = self._clock.now_ns()
        for to, messages in runs.items():
            topic, room, why = self._find(to, now_ns), 0, "there is no such destination any more"
            if topic is not None:
                room, why = self._room_in(topic, len(messages), created) if has_room else (0, "the store is full")
            if room < len(messages):
                self.note_lost(to, len(messages) - room, why)
            if topic is not None and room:
                found.append(Told(topic, messages[:room], _totals=self._totals, _note_lost=self.note_lost))
        return found

    @staticmethod
    def _room_in(topic: Topic, wanted: int, created: Collection[Subscription]) -> tuple[int, str]:
        """For how many of so many there is room; otherwise the reason."""
        if topic.gate.is_blocked:
            return 0, topic.gate.why
        if topic.is_queue:
            if not topic.readings and not any(each.pattern == topic.destination for each in created):
                return 0, "it is only just being made"
            limit = topic.policy.queue_max_messages
            held = sum(reading.unsettled for reading in topic.readings.values())
            if limit and held + wanted > limit:
                return max(0, limit - held), f"it may hold {limit} messages (queue_max_messages)"
        return wanted, ""

    def note_lost(self, to: str, count: int, why: str) -> None:
        self._totals.outcomes_lost += count
        shown = "/temporary" if to.startswith("/temporary/") else to  # each has its own
        self._throttle.log(
            "warning", "a publisher is not told what became of its messages", (shown,), destination=shown, reason=why
        )

    # Of what no store has -------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Until there is something to tell at once."""
        while not self._registry.telling.at_once:
            await self._registry.telling.filled.wait()

    def tell_at_once(self) -> None:
        untold = self._registry.telling.take()
        self._registry.budget.adjust(-size_of_all([each.message for each in untold]))
        self._journal.submit(self.unit(untold, (), has_room=True))
