"""Pages of stored topics, for readers that are behind the window.

Law: a page has all that the store has of [start, stop). A reader without a page requests it and is called when it has
come; the page reader takes the requests. Pages end at multiples of PAGE_MESSAGES, so that readers share them. They are
charged to the memory budget; the least recently used one goes first.
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

#: Offsets in a page, and so the most messages.
PAGE_MESSAGES: Final = 1000
#: All pages together may have the memory limit divided by this, but at least MIN_BYTES: enough for a few readers.
SHARE_DIVISOR: Final = 16
MIN_BYTES: Final = 8 * 1024 * 1024


class Paged(Protocol):
    """A topic in the store."""

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
        """Its key: its topic, and the number of the aligned stretch it begins in."""
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
        #: Least recently used first.
        self._pages: OrderedDict[_Page, None] = OrderedDict()
        self._by_stretch: dict[tuple[Paged, int], list[_Page]] = {}
        #: The requests, and whom to call.
        self._requests: dict[PageRequest, list[Callable[[], None]]] = {}
        #: Requests that may be under way since before something was deleted: they are read once more.
        self._outdated: set[PageRequest] = set()
        self.size_bytes = 0
        self.requested = Signal()

    def find(self, topic: Paged, offset: Offset) -> Log | None:
        """The page that has `offset`."""
        for page in self._by_stretch.get((topic, offset // PAGE_MESSAGES), ()):
            if page.start <= offset < page.log.end_offset:
                page.was_used = True
                self._pages.move_to_end(page)
                return page.log
        return None

    def read_ahead(self, topic: Paged, offset: Offset) -> None:
        """A reader will soon need the page at `offset`."""
        if offset < topic.log.start_offset and self.find(topic, offset) is None:
            self._request(topic, offset)

    def call_when_read(self, topic: Paged, offset: Offset, then: Callable[[], None]) -> None:
        """A reader cannot go on without the page at `offset`: call it when it has come."""
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
        """The requested page has come: call the readers that wait for it. If it is outdated, it is read again."""
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
        """What was requested is lost: readers that wait for it stop there. If it is outdated, it is read again."""
        if request in self._outdated:
            self._outdated.remove(request)
        else:
            del self._requests[request]

    def give_up(self, request: PageRequest) -> None:
        """The topic is gone: call the readers that wait for the page."""
        self._outdated.discard(request)
        for resume in self._requests.pop(request):
            resume()

    def forget(self, topic: Paged) -> None:
        """Something of the topic was deleted: its pages have to be read again."""
        for page in [page for page in self._pages if page.topic is topic]:
            self._drop(page)
        self._outdated.update(request for request in self._requests if request.topic is topic)

    def forget_unused(self) -> None:
        """Drop the pages that were not used since the last call."""
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
