"""What topics keep, wherever that is.

Law: reads, in a thread where it has to be the store, and changes nothing. For whoever asks, not for delivery: nothing
of it is remembered.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, final

import trio

from stompbroker.control.request import Unavailable
from stompbroker.storage import StoreFailing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stompbroker.commitlog import Log
    from stompbroker.control.looking import Looking
    from stompbroker.delivery import Registry, Topic
    from stompbroker.ids import Offset
    from stompbroker.message import Message
    from stompbroker.storage import Extent, Store

__all__ = ["KeptMessages", "Place", "stored_messages"]

#: Messages of a log that are searched between two looks at the time.
STEP_MESSAGES: Final = 200
#: Places that are looked up in the store before others may ask it.
PLACES_AT_ONCE: Final = 50

T = TypeVar("T")


class Place(NamedTuple):
    topic: Topic
    offset: Offset


def stored_messages(topic: Topic) -> int:
    """How many messages the store has of a topic, as far as that is known without asking it: what was taken out from
    among others, as purged dead letters are, is known of topics only that count what they retain."""
    retained = topic.retained
    return topic.stored_messages if retained is None or not retained.is_counted else retained.messages


@final
class KeptMessages:
    __slots__ = ("_limiter", "_looking", "_registry", "_store")

    def __init__(self, registry: Registry, store: Store | None, looking: Looking) -> None:
        self._registry = registry
        self._looking = looking
        self._store = store
        self._limiter = trio.CapacityLimiter(1)

    async def page(self, topic: Topic, start: int, stop: int, *, max_messages: int = 1000) -> Log:
        """Messages at offsets from `start` on; the log's end says how far was looked."""
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
        """When the first message at or behind each place was published. Places are left out behind which there is
        none, and those of which the store cannot tell now."""
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
        """The offset of the first message that was published at or after that time; the next one's if there is none."""
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
        """How much the store has of a topic; None if it is not there."""
        store, topic_id = self._store, topic.store_id
        if store is None or topic_id is None:
            return None
        return await self._in_thread(lambda: store.surveys.extent(topic_id, start, stop))

    async def find(self, message_id: str) -> list[Place]:
        """Where a message lies, and dead letters about it. Looks at everything there is."""
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
                # The log may change between two steps, so what it holds is listed first.
                for number, (offset, message) in enumerate(list(topic.log) if topic.log.message_count else ()):
                    is_about = topic.is_of_dead_letters and about in message.tail[: -1 - message.body_bytes]
                    if is_about or message.tail.startswith(beginning):
                        found.append(Place(topic, offset))
                    if number % STEP_MESSAGES == 0 and look.is_over:
                        await look.pause()
        return found

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            return await trio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)
        except StoreFailing as failure:
            raise Unavailable(f"the store cannot be read: {failure}") from failure
