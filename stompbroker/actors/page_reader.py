"""Reads pages of stored topics for subscribers who are behind the window.

A few requests at a time, in order; after a failure it tries again. Cancelling it only leaves requests unanswered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from stompbroker.storage import StoreDamaged, StoreFailing

if TYPE_CHECKING:
    from stompbroker.commitlog import Log
    from stompbroker.delivery import PageRequest, Pages
    from stompbroker.journal import Health
    from stompbroker.storage import Store

#: How long to wait before trying a failing store again, in seconds.
RETRY_S: Final = 0.5
#: Pages read in one go: a backlog of many topics is many small pages, and a trip to a thread costs as much as a page.
MAX_AT_ONCE: Final = 16

log = structlog.get_logger()


async def run(pages: Pages, store: Store, health: Health) -> None:
    """Read until cancelled."""
    limiter = trio.CapacityLimiter(1)
    is_failing = False
    while True:
        requests = []
        for request in await pages.wait_requests(MAX_AT_ONCE):
            if request.topic.is_removed:
                pages.give_up(request)
            else:
                requests.append(request)
        try:
            found = await trio.to_thread.run_sync(_read, store, requests, limiter=limiter, abandon_on_cancel=True)
        except StoreFailing as failure:
            if not is_failing:
                log.error("the store cannot be read; subscribers that are behind wait", reason=str(failure))
            is_failing = True
            await trio.sleep(RETRY_S)
            continue
        if is_failing:
            is_failing = False
            log.info("the store can be read again")
        for request, page in zip(requests, found, strict=True):
            if isinstance(page, StoreDamaged):
                health.note_damage(f"topic {request.topic.name}: {page}")
                pages.abandon(request)
            else:
                pages.put(request, page)


def _read(store: Store, requests: list[PageRequest]) -> list[Log | StoreDamaged]:
    """The page of each request; if it is empty, a longer one up to the next messages. Damage is returned, so that it
    does not hold up the other requests."""
    found: list[Log | StoreDamaged] = []
    for topic, start, stop in requests:
        assert topic.store_id is not None
        try:
            page = store.read_page(topic.store_id, start, stop)
            if not page.message_count and page.end_offset == stop < topic.log.end_offset:
                page = store.read_page(topic.store_id, start, topic.log.end_offset)
            found.append(page)
        except StoreDamaged as damage:
            found.append(damage)
    return found
