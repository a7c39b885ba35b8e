"""Renews the lease of the store, and brings the broker down when it cannot: others may serve then.

Law: knows the lease and nothing of who is served. Before it raises, it has clients dismissed; nobody waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from stompbroker.storage import StoreFailing, StoreLost, StoreWentBack

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.storage import Lease, Store

log = structlog.get_logger()


async def run(
    store: Store,
    lease: Lease,
    move_deadline: Callable[[float], None],
    dismiss_clients: Callable[[], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Renew until cancelled. `move_deadline` is told when the process must have ended, by `boottime_s`.

    Raises StoreLost when the lease could not be renewed in time or is another's, and StoreWentBack.
    """
    last_failure: str | None = None
    move_deadline(lease.ends_at_s)
    task_status.started()
    while lease.rest_s() > 0:
        failure = await _renew(store, min(lease.renewal_s, lease.rest_s()))
        move_deadline(lease.ends_at_s)
        if failure is not None and last_failure is None:
            log.warning("the store's lease cannot be renewed", reason=failure, rest_s=round(lease.rest_s(), 1))
        elif failure is None and last_failure is not None:
            log.info("the store's lease is renewed again")
        last_failure = failure
        pause_s = lease.renewal_s if failure is None else lease.renewal_s / 4
        await trio.sleep(max(0.0, min(pause_s, lease.rest_s())))
    store.is_lost = True
    log.error("the store's lease has run out; the broker ends", reason=last_failure or "the machine stood still")
    dismiss_clients()
    # The writers of the clients send what the kernel takes at once.
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
    raise StoreLost(
        f"The lease of the store {store.where} could not be renewed in time "
        f"({last_failure or 'the machine stood still'}), so another broker may have it. Start this one again: with "
        "--standby it waits until the store is free."
    )


async def _renew(store: Store, within_s: float) -> str | None:
    """Why it did not work, if so. A thread that hangs is left alone: what it may still do can only lengthen the row's
    lease."""
    with trio.move_on_after(within_s):
        try:
            await trio.to_thread.run_sync(store.renew_lease, abandon_on_cancel=True)
        except StoreFailing as failure:
            return str(failure)
        except (StoreLost, StoreWentBack):
            store.is_lost = True
            raise
        return None
    return "the database does not answer"
