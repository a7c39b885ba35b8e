"""Samples the traffic and the lag of the event loop, more often while somebody watches or keeps asking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from stompbroker.control import Sampler

#: Time between two samples while nobody watches, and while somebody does.
SELDOM_S: Final = 5.0
OFTEN_S: Final = 1.0


async def run(sampler: Sampler) -> None:
    """Sample until cancelled."""
    waited_s = 0.0
    due_s = trio.current_time()
    while True:
        due_s = max(due_s + OFTEN_S, trio.current_time())
        await trio.sleep_until(due_s)
        sampler.lag_s = trio.current_time() - due_s
        waited_s += OFTEN_S
        is_asked, sampler.is_asked = sampler.is_asked, False
        if sampler.watchers or is_asked or waited_s >= SELDOM_S:
            waited_s = 0.0
            await sampler.take()
