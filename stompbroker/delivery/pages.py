"""Pieces of stored topics for those who read behind the window.

Law: a page holds what the store has of [start, stop), and is complete for that range: an offset that is not in it
does not exist. Whoever finds no page asks for it and is told when it has come; the page reader takes the requests.
Pages end at multiples of PAGE_MESSAGES, so that those who read the same stretch share them. Their bytes are charged
to the memory budget and bounded; the page that was not used for longest goes first, and can always be read again.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from stompbroker.ids import Offset
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.commitlog import Log
    from stompbroker.memory_budget import MemoryBudget

__all__ = ["PAGE_MESSAGES", "PageRequest", "Pages"]

#: Offsets in a page, and so the most messages.
PAGE_MESSAGES: Final = 1000
#: All pages together, as a divisor of the memory limit, and what they may have in any case: enough for a few readers.
SHARE_DIVISOR: Final = 16
MIN_BYTES: Final = 8 * 1024 * 1024


class Paged(Protocol):
    """What has to be known of a topic in the store."""

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Log: ...

    @property
    def store_id(self) -> int | None: ...

    @property
    def is_removed(self) -> bool: ...


class PageRequest(NamedTuple):
    topic: Paged
    start: Offset
    stop: Offset


@final
class _Page:
    __slots__ = ("log", "start", "topic", "was_used")

    def __init__(self, topic: Paged, start: Offset, log: Log) -> None:
        self.topic = topic
        self.start = start
        self.log = log
        self.was_used = True

    @property
    def stretch(self) -> tuple[Paged, int]:
        """Under which it is found: its topic, and the number of the aligned stretch it begins in."""
        return self.topic, self.start // PAGE_MESSAGES


@final
class Pages:
    """
    Invariants:
        size_bytes is the size of all pages, and is charged to the budget
        every page is found by its stretch, and stands in the order of use
    """

    __slots__ = ("_budget", "_by_stretch", "_max_bytes", "_outdated", "_pages", "_requests", "requested", "size_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._max_bytes = max(MIN_BYTES, budget.limit_bytes // SHARE_DIVISOR)
        #: The one used last stands last.
        self._pages: OrderedDict[_Page, None] = OrderedDict()
        self._by_stretch: dict[tuple[Paged, int], list[_Page]] = {}
        #: What is asked for, and whom to tell.
        self._requests: dict[PageRequest, list[Callable[[], None]]] = {}
        #: Those that may have been read before the store had less: what comes for them is read once more.
        self._outdated: set[PageRequest] = set()
        self.size_bytes = 0
        #: Woken when a page is asked for.
        self.requested = Signal()

    def find(self, topic: Paged, offset: Offset) -> Log | None:
        """The page that says what is at `offset` and behind it."""
        for page in self._by_stretch.get((topic, offset // PAGE_MESSAGES), ()):
            if page.start <= offset < page.log.end_offset:
                page.was_used = True
                self._pages.move_to_end(page)
                return page.log
        return None

    def read_ahead(self, topic: Paged, offset: Offset) -> None:
        """Somebody will soon read on from `offset`."""
        if offset < topic.log.start_offset and self.find(topic, offset) is None:
            self._request(topic, offset)

    def call_when_read(self, topic: Paged, offset: Offset, then: Callable[[], None]) -> None:
        """Somebody cannot go on before it is known what is at `offset`, and will look again when that has been read."""
        self._request(topic, offset).append(then)

    def _request(self, topic: Paged, start: Offset) -> list[Callable[[], None]]:
        stop = min((start // PAGE_MESSAGES + 1) * PAGE_MESSAGES, topic.log.end_offset)
        waiting = self._requests.setdefault(PageRequest(topic, start, Offset(stop)), [])
        self.requested.wake()
        return waiting

    @property
    def oldest_request(self) -> PageRequest | None:
        """It stands until `put` or `give_up`."""
        return next(iter(self._requests), None)

    async def wait_requests(self, count: int) -> list[PageRequest]:
        """The oldest requests, at most `count`, as soon as there is one."""
        while not self._requests:
            await self.requested.wait()
        return list(islice(self._requests, count))

    def put(self, request: PageRequest, log: Log) -> None:
        """The page that was asked for has come: whoever waits for it may go on. If the store has had less since it was
        read, the request stands, and it is read again."""
        if request in self._outdated:
            self._outdated.remove(request)
            return
        waiting = self._requests.pop(request)
        page = _Page(request.topic, request.start, log)
        self.size_bytes += log.size_bytes
        self._budget.adjust(log.size_bytes)
        self._pages[page] = None
        self._by_stretch.setdefault(page.stretch, []).append(page)
        while self.size_bytes > self._max_bytes and len(self._pages) > 1:
            self._drop(next(iter(self._pages)))
        for resume in waiting:
            resume()

    def abandon(self, request: PageRequest) -> None:
        """What was asked for is lost: whoever waits for it stops there, and is not told to go on. If the store has had
        less since it was read, the request stands, and it is read again."""
        if request in self._outdated:
            self._outdated.remove(request)
        else:
            del self._requests[request]

    def give_up(self, request: PageRequest) -> None:
        """Nobody will get this page: its topic is gone."""
        self._outdated.discard(request)
        for resume in self._requests.pop(request):
            resume()

    def forget(self, topic: Paged) -> None:
        """What the store has of a topic has become less: its pages are to be read again."""
        for page in [page for page in self._pages if page.topic is topic]:
            self._drop(page)
        self._outdated.update(request for request in self._requests if request.topic is topic)

    def forget_unused(self) -> None:
        """Drop the pages nobody has used since the last time."""
        for page in list(self._pages):
            if page.was_used:
                page.was_used = False
            else:
                self._drop(page)

    def _drop(self, page: _Page) -> None:
        del self._pages[page]
        beside = self._by_stretch[page.stretch]
        beside.remove(page)
        if not beside:
            del self._by_stretch[page.stretch]
        self.size_bytes -= page.log.size_bytes
        self._budget.adjust(-page.log.size_bytes)

    def check_invariants(self) -> None:
        assert self.size_bytes == sum(page.log.size_bytes for page in self._pages)
        assert set(self._pages) == {page for pages in self._by_stretch.values() for page in pages}
