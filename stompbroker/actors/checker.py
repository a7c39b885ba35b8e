"""Checks the whole store once for damage, after a broker that did not close it.

Changes nothing. It works at most a fifth of the time, in a thread and in short transactions, so that others get the
disk and the log can be shortened. Cancelling leaves the check to the next start.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
import trio

from stompbroker.ids import Offset
from stompbroker.storage import StoreDamaged, StoreFailing

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.delivery import Registry, Topic
    from stompbroker.journal import Health
    from stompbroker.storage import Store

#: How long it rests after each step, as a multiple of the step's time.
REST: Final = 4
#: Lost messages reported for a topic; the rest of the topic is not checked.
MAX_LOST: Final = 20
#: How long to wait before trying a failing store again, in seconds.
RETRY_S: Final = 5.0
#: Messages between two log lines.
TELL_EVERY: Final = 1_000_000

T = TypeVar("T")

log = structlog.get_logger()


async def run(
    registry: Registry,
    store: Store,
    health: Health,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Check everything, then return."""
    health.check = "running"
    task_status.started()
    log.info("the store was not closed by its last broker; it is checked beside everything else")
    for table in store.checked_tables:
        await _step(partial(store.check_table, table), health)
    last_batch: int | None = 0
    while last_batch is not None:
        last_batch = await _step(partial(store.check_ledger, last_batch), health)
    messages = 0
    for topic in list(registry.topics.values()):
        messages = await _check(topic, store, health, messages)
    health.check = "done"
    log.info("the store has been checked", messages=messages, damages=health.damages)


async def _check(topic: Topic, store: Store, health: Health, messages: int) -> int:
    """Read every message of a topic; returns `messages` plus their number."""
    start, lost = topic.collected_up_to, 0
    while lost < MAX_LOST and not topic.is_removed and topic.store_id is not None:
        start, stop, topic_id = max(start, topic.collected_up_to), topic.log.end_offset, topic.store_id
        if start >= stop:
            break
        page = await _step(partial(store.read_page, topic_id, start, stop), health, f"topic {topic.name}")
        if page is None:
            lost += 1
            start = Offset(start + 1)
            continue
        before, messages = messages, messages + page.message_count
        if before // TELL_EVERY != messages // TELL_EVERY:
            log.info("the store is being checked", messages=messages)
        start = page.end_offset
    return messages


async def _step(look: Callable[[], T], health: Health, where: str = "") -> T | None:
    """The result of `look`; None for damage, which is reported."""
    while True:
        began_at_s = perf_counter()
        try:
            found = await trio.to_thread.run_sync(look, abandon_on_cancel=True)
        except StoreDamaged as damage:
            health.note_damage(f"{where}: {damage}" if where else str(damage))
            return None
        except StoreFailing:
            await trio.sleep(RETRY_S)
            continue
        await trio.sleep(REST * (perf_counter() - began_at_s))
        return found
