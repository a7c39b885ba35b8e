"""What topics keep, in memory or in the store, and how far behind that durable subscriptions are.

Law: reads, the store in a thread, and neither changes nor caches anything. It answers questions; delivery does not use
it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, final

import trio

from stompbroker.control.request import Unavailable
from stompbroker.ids import Offset
from stompbroker.ledger import Behind
from stompbroker.storage import StoreFailing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stompbroker.commitlog import Log
    from stompbroker.control.looking import Looking
    from stompbroker.delivery import Reading, Registry, Topic
    from stompbroker.message import Message
    from stompbroker.storage import Extent, Store

#: Messages of a log that are searched between two looks at the time.
STEP_MESSAGES: Final = 200
#: Places that are looked up in the store before others may ask it.
PLACES_AT_ONCE: Final = 50
T = TypeVar("T")


class Place(NamedTuple):
    topic: Topic
    offset: Offset


class _Seen(NamedTuple):
    """A reading at one moment, without what only the store knows."""

    behind: Behind
    #: The lowest unsettled offset; the log's end if everything is settled.
    lowest: Offset
    end: Offset


def stored_messages(topic: Topic) -> int:
    """How many messages the store has of a topic, without asking it. What was deleted from between others, such as
    purged dead letters, is known only of topics that count what they retain."""
    retained = topic.retained
    return topic.stored_messages if retained is None or not retained.is_counted else retained.messages


def dead_letter_count(topic: Topic) -> int:
    """How many letters are in a topic of dead letters, without asking the store. Those of a queue can be consumed, and
    then are gone, although the collector has not been there."""
    if topic.is_queue:
        return sum(group.unsettled for group in topic.readings)
    return stored_messages(topic) or topic.log.message_count


@final
@dataclass(frozen=True, slots=True, eq=False)
class KeptMessages:
    _registry: Registry
    _store: Store | None
    _looking: Looking
    _limiter: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(1))

    async def page(self, topic: Topic, start: int, stop: int, *, max_messages: int = 1000) -> Log:
        """Messages from offset `start` on; the log's end says how far was looked."""
        store, topic_id = self._store, topic.store_id
        if store is None or topic_id is None:
            return topic.log
        return await self._in_thread(lambda: store.read_page(topic_id, start, stop, max_rows=max_messages))

    async def get(self, topic: Topic, offset: Offset) -> Message | None:
        found = topic.log.get(offset)
        return found or (await self.page(topic, offset, offset + 1)).get(offset)

    async def first_from(self, topic: Topic, offset: Offset) -> Message | None:
        """The first message at or behind `offset`."""
        page = await self.page(topic, offset, topic.log.end_offset, max_messages=1)
        _, found = page.read(offset, 1)
        return found[0] if found else None

    async def first_published_ns(self, places: Iterable[Place], *, asks_store: bool) -> dict[Place, int]:
        """When the first message at or behind each place was published. A place is left out if there is no message, or
        the store cannot tell now."""
        found: dict[Place, int] = {}
        unknown: list[tuple[Place, int, Offset]] = []
        for place in dict.fromkeys(places):
            topic, offset = place
            message = topic.log.get(offset)
            if message is not None:
                found[place] = message.published_at_ns
            elif topic.store_id is not None:
                unknown.append((place, topic.store_id, topic.log.end_offset))
            elif messages := topic.log.read(offset, 1)[1]:
                found[place] = messages[0].published_at_ns
        store = self._store
        if store is None or not asks_store:
            return found

        def read(some: list[tuple[Place, int, Offset]]) -> None:
            for place, topic_id, end in some:
                _, messages = store.read_page(topic_id, place.offset, end, max_rows=1).read(place.offset, 1)
                if messages:
                    found[place] = messages[0].published_at_ns

        with suppress(Unavailable):
            # Many at once: waiting for the thread takes longer than reading.
            for start in range(0, len(unknown), PLACES_AT_ONCE):
                await self._in_thread(partial(read, unknown[start : start + PLACES_AT_ONCE]))
        return found

    async def first_since(self, topic: Topic, since_ns: int) -> Offset:
        """The offset of the first message published at or after that time; the log's end if there is none."""
        store, topic_id, end = self._store, topic.store_id, topic.log.end_offset
        if store is None or topic_id is None:
            return next((offset for offset, message in topic.log if message.published_at_ns >= since_ns), end)
        start = topic.collected_up_to
        if topic.retained is not None:
            start = max(start, topic.retained.offset_before(since_ns))
        while start < end:
            page = await self.page(topic, start, end)
            for offset, message in page:
                if message.published_at_ns >= since_ns:
                    return offset
            start = page.end_offset
        return end

    async def extent(self, topic: Topic, start: int, stop: int) -> Extent | None:
        """How much the store has of a topic; None if the topic is not stored."""
        store, topic_id = self._store, topic.store_id
        if store is None or topic_id is None:
            return None
        return await self._in_thread(lambda: store.surveys.extent(topic_id, start, stop))

    async def find(self, message_id: str) -> list[Place]:
        """Where a message lies, and dead letters about it. Searches everything."""
        found = dict.fromkeys(await self._find_in_logs(message_id))
        store = self._store
        if store is not None:
            by_id = {topic.store_id: topic for topic in self._registry.topics.values() if topic.store_id is not None}
            letter_topics = [topic_id for topic_id, topic in by_id.items() if topic.is_of_dead_letters]
            places = await self._in_thread(lambda: store.surveys.find_messages(message_id, letter_topics))
            found |= dict.fromkeys(Place(by_id[topic], offset) for topic, offset in places if topic in by_id)
        return list(found)

    async def _find_in_logs(self, message_id: str) -> list[Place]:
        beginning = b"message-id:%b\n" % message_id.encode()
        about = b"\ndead-letter-message-id:%b\n" % message_id.encode()
        found = []
        async with self._looking.at_once() as look:
            for topic in list(self._registry.topics.values()):
                # Listed first: the log may change between two steps.
                for number, (offset, message) in enumerate(list(topic.log) if topic.log.message_count else ()):
                    is_about = topic.is_of_dead_letters and about in message.tail[: -1 - message.body_bytes]
                    if is_about or message.tail.startswith(beginning):
                        found.append(Place(topic, offset))
                    if number % STEP_MESSAGES == 0:
                        await look.pause_if_over()
        return found

    async def backlog(self) -> list[Behind]:
        """How far behind each durable subscription is, in each of its topics. What the store cannot tell now is left
        out, so that the rest is told in time."""
        behind: dict[Topic, list[_Seen]] = {}
        found: list[Behind] = []
        async with self._looking.by_and_by() as look:
            for subscription in list(self._registry.durable.values()):
                for reading in list(subscription.readings.values()):
                    if subscription.is_closed or not subscription.has_begun or reading.topic.is_removed:
                        continue
                    seen = _seen(reading)
                    if seen.lowest < seen.end:
                        behind.setdefault(reading.topic, []).append(seen)
                    else:
                        found.append(seen.behind)
                    await look.pause_if_over()
        for topic, those in behind.items():
            found += await self._with_store(topic, those)
        return found

    async def _with_store(self, topic: Topic, behind: list[_Seen]) -> list[Behind]:
        """The store is asked once between the places of two subscriptions, however many there are: what it keeps for
        one is that, plus what it keeps for the next one that is less far behind."""
        stop = max(seen.end for seen in behind)
        told: dict[Offset, dict[str, Any]] = {}
        pinned_bytes: int | None = 0
        oldest_ns: int | None = None
        for lowest in sorted({seen.lowest for seen in behind}, reverse=True):
            try:
                extent = await self.extent(topic, lowest, stop)
                published_ns = None if extent is None else extent.first_published_at_ns
            except Unavailable:
                extent = published_ns = None
            pinned_bytes = None if extent is None or pinned_bytes is None else pinned_bytes + extent.tail_bytes
            message = topic.log.get(lowest)
            oldest_ns = message.published_at_ns if message is not None else published_ns or oldest_ns
            told[lowest] = {"oldest_published_ns": oldest_ns, "pinned_bytes": pinned_bytes}
            stop = lowest
        return [seen.behind._replace(**told[seen.lowest]) for seen in behind]

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            return await trio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)
        except StoreFailing as failure:
            raise Unavailable(f"the store cannot be read: {failure}") from failure


def _seen(reading: Reading) -> _Seen:
    cursor, identity = reading.cursor, reading.subscription.identity
    assert identity is not None
    ranges, end = reading.unsettled_ranges(), reading.topic.log.end_offset
    behind = Behind(
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
    )
    return _Seen(behind, Offset(ranges[0][0]) if ranges else end, end)
