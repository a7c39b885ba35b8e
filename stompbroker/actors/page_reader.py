"""Reads pages of stored topics for those who are behind the window.

Law: one request at a time, in the order they were made; a page that cannot be read now is tried again until it can.
Cancelling it leaves a request unanswered, and nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from stompbroker.storage import StoreFailing

if TYPE_CHECKING:
    from stompbroker.commitlog import Log
    from stompbroker.storage import Store
    from stompbroker.topics import Pages

__all__ = ["run"]

#: How long to wait before a store that could not be read is tried again.
RETRY_S: Final = 0.5

log = structlog.get_logger()


async def run(pages: Pages, store: Store, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Read until cancelled."""
    limiter = trio.CapacityLimiter(1)
    is_failing = False
    task_status.started()
    while True:
        request = await pages.wait_request()
        topic_id = request.topic.store_id
        if request.topic.is_removed or topic_id is None:
            pages.give_up(request)
            continue
        try:
            read = partial(_read, store, topic_id, request.start, request.stop, request.topic.log.end_offset)
            page = await trio.to_thread.run_sync(read, limiter=limiter)
        except StoreFailing as failure:
            if not is_failing:
                log.error("the store cannot be read; subscribers that are behind wait", reason=str(failure))
            is_failing = True
            await trio.sleep(RETRY_S)
            continue
        if is_failing:
            is_failing = False
            log.info("the store can be read again")
        pages.put(request, page)


def _read(store: Store, topic_id: int, start: int, stop: int, end: int) -> Log:
    """The page, or if there is nothing on it, one that reaches to the next messages there are."""
    page = store.read_page(topic_id, start, stop)
    return page if page.message_count or stop == end else store.read_page(topic_id, start, end)
