"""Pages of stored topics, for readers that are behind the window.

Law: a page has all that the store has of [start, stop). A reader without a page requests it and is called when it has
come; the page reader takes the requests. Pages end at multiples of PAGE_MESSAGES, so that readers share them. They are
charged to the memory budget; the least recently used one goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
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


class _Waiter(NamedTuple):
    #: Called when the page has come, or its topic is gone.
    resume: Callable[[], None]
    #: Called if it is lost; otherwise the reader stops.
    stop: Callable[[], None] | None


class PageRequest(NamedTuple):
    topic: Paged
    start: Offset
    stop: Offset


@final
@dataclass(slots=True, eq=False)
class _Page:
    topic: Paged
    start: Offset
    log: Log
    was_used: bool = True

    @property
    def stretch(self) -> tuple[Paged, int]:
        """Its key: its topic, and the number of the aligned stretch it begins in."""
        return self.topic, self.start // PAGE_MESSAGES


@final
@dataclass(slots=True, eq=False)
class Pages:
    """
    Invariants:
        size_bytes is the size of all pages, and is charged to the budget
        every page is found by its stretch, and stands in the order of use
    """

    _budget: MemoryBudget
    #: Least recently used first.
    _pages: OrderedDict[_Page, None] = field(default_factory=OrderedDict)
    _by_stretch: dict[tuple[Paged, int], list[_Page]] = field(default_factory=dict)
    #: Oldest first, and whom to call. A request stands until `put`, `abandon` or `give_up`.
    requests: dict[PageRequest, list[_Waiter]] = field(default_factory=dict)
    #: Requests that may be under way since before something was deleted: they are read once more.
    _outdated: set[PageRequest] = field(default_factory=set)
    size_bytes: int = 0
    requested: Signal = field(default_factory=Signal)

    def find(self, topic: Paged, offset: Offset) -> Log | None:
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

    def call_when_read(
        self, topic: Paged, offset: Offset, then: Callable[[], None], *, if_lost: Callable[[], None] | None = None
    ) -> None:
        """A reader cannot go on without the page at `offset`: call it when it has come, or is lost."""
        self._request(topic, offset).append(_Waiter(then, if_lost))

    def _request(self, topic: Paged, start: Offset) -> list[_Waiter]:
        stop = min((start // PAGE_MESSAGES + 1) * PAGE_MESSAGES, topic.log.end_offset)
        waiting = self.requests.setdefault(PageRequest(topic, start, Offset(stop)), [])
        self.requested.wake()
        return waiting

    async def wait_requests(self, count: int) -> list[PageRequest]:
        """The oldest requests, at most `count`, as soon as there is one."""
        while not self.requests:
            await self.requested.wait()
        return list(islice(self.requests, count))

    def put(self, request: PageRequest, log: Log) -> None:
        """The requested page has come: call the readers that wait for it. If it is outdated, it is read again."""
        if request in self._outdated:
            self._outdated.remove(request)
            return
        waiting = self.requests.pop(request)
        page = _Page(request.topic, request.start, log)
        self.size_bytes += log.size_bytes
        self._budget.adjust(log.size_bytes)
        self._pages[page] = None
        self._by_stretch.setdefault(page.stretch, []).append(page)
        max_bytes = max(MIN_BYTES, self._budget.limit_bytes // SHARE_DIVISOR)
        while self.size_bytes > max_bytes and len(self._pages) > 1:
            self._drop(next(iter(self._pages)))
        for waiter in waiting:
            waiter.resume()

    def abandon(self, request: PageRequest) -> None:
        """What was requested is lost: readers that wait for it stop there. If it is outdated, it is read again."""
        if request in self._outdated:
            self._outdated.remove(request)
        else:
            for waiter in self.requests.pop(request):
                if waiter.stop is not None:
                    waiter.stop()

    def give_up(self, request: PageRequest) -> None:
        """The topic is gone: call the readers that wait for the page."""
        self._outdated.discard(request)
        for waiter in self.requests.pop(request):
            waiter.resume()

    def forget(self, topic: Paged) -> None:
        """Something of the topic was deleted: its pages have to be read again."""
        for page in [page for page in self._pages if page.topic is topic]:
            self._drop(page)
        self._outdated.update(request for request in self.requests if request.topic is topic)

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
