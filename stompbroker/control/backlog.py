"""How far behind each durable subscription is, in each of its topics.

Law: looks in short steps, and asks the store once for each topic in which somebody is behind; changes nothing. What the
store cannot tell now is left out, so that the rest is told in time.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from stompbroker.control.request import Unavailable
from stompbroker.ids import Offset
from stompbroker.ledger import Behind

if TYPE_CHECKING:
    from stompbroker.control.kept import KeptMessages
    from stompbroker.delivery import Reading, Registry, Topic

__all__ = ["BacklogLook"]

#: How long readings are looked at between two checkpoints.
STEP_S: Final = 0.001


class _Seen(NamedTuple):
    """A reading at one moment, without what only the store knows."""

    behind: Behind
    topic: Topic
    #: The lowest unsettled offset; none if everything is settled.
    lowest: Offset | None
    end: Offset


@final
class BacklogLook:
    def __init__(self, registry: Registry, kept: KeptMessages) -> None:
        self._registry = registry
        self._kept = kept

    async def take(self) -> list[Behind]:
        seen: list[_Seen] = []
        began_at_s = perf_counter()
        for subscription in list(self._registry.durable.values()):
            for reading in list(subscription.readings.values()):
                if subscription.is_closed or not subscription.has_begun or reading.topic.is_removed:
                    continue
                seen.append(_seen(reading))
                if perf_counter() - began_at_s > STEP_S:
                    await trio.lowlevel.checkpoint()
                    began_at_s = perf_counter()
        behind: dict[Topic, list[_Seen]] = {}
        for one in seen:
            if one.lowest is not None:
                behind.setdefault(one.topic, []).append(one)
        found = [one.behind for one in seen if one.lowest is None]
        for topic, those in behind.items():
            found += await self._with_store(topic, those)
        return found

    async def _with_store(self, topic: Topic, behind: list[_Seen]) -> list[Behind]:
        """Between the places of two subscriptions it is asked once, however many there are: what it keeps for the one
        that is further behind is that and what it keeps for the other."""
        by_place = sorted({one.lowest for one in behind if one.lowest is not None}, reverse=True)
        stop = max(one.end for one in behind)
        told: dict[Offset, tuple[int | None, int | None]] = {}
        pinned_bytes: int | None = 0
        oldest_ns: int | None = None
        for lowest in by_place:
            try:
                extent = await self._kept.extent(topic, lowest, stop)
                published_ns = None if extent is None else extent.first_published_at_ns
            except Unavailable:
                extent = published_ns = None
            pinned_bytes = None if extent is None or pinned_bytes is None else pinned_bytes + extent.tail_bytes
            message = topic.log.get(lowest)
            oldest_ns = message.published_at_ns if message is not None else published_ns or oldest_ns
            told[lowest] = oldest_ns, pinned_bytes
            stop = lowest
        found = []
        for one in behind:
            assert one.lowest is not None
            oldest_ns, pinned_bytes = told[one.lowest]
            found.append(one.behind._replace(oldest_published_ns=oldest_ns, pinned_bytes=pinned_bytes))
        return found


def _seen(reading: Reading) -> _Seen:
    subscription, cursor = reading.subscription, reading.cursor
    identity = subscription.identity
    assert identity is not None
    ranges = reading.unsettled_ranges()
    return _Seen(
        Behind(
            topic=reading.topic.name,
            subscription=identity.key,
            client_id=identity.client_id,
            subscription_name=identity.name,
            lag_messages=reading.backlog + cursor.in_flight + cursor.pending_count,
            oldest_published_ns=None,
            in_flight=cursor.in_flight,
            waiting=cursor.waiting_count,
            pinned_bytes=0,
            kind=reading.topic.destination.kind.value,
        ),
        reading.topic,
        Offset(ranges[0][0]) if ranges else None,
        reading.topic.log.end_offset,
    )
