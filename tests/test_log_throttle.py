"""How many lines one stranger can write into the log."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
from structlog.testing import capture_logs

from stompbroker.log_throttle import INTERVAL_S, MAX_KINDS, LogThrottle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock


@asynccontextmanager
async def running_throttle() -> AsyncIterator[LogThrottle]:
    throttle = LogThrottle()
    async with trio.open_nursery() as nursery:
        await nursery.start(throttle.run)
        yield throttle
        throttle.check_invariants()
        nursery.cancel_scope.cancel()


async def test_the_first_line_is_logged_at_once_and_repeats_once_an_interval(autojump_clock: MockClock) -> None:
    with capture_logs() as logged:
        async with running_throttle() as throttle:
            for number in range(1_000):
                throttle.log("info", "client failed", ("10.0.0.1", "no CONNECT"), connection=number)
            assert logged == [{"log_level": "info", "event": "client failed", "connection": 0}]

            await trio.sleep(INTERVAL_S + 1)
            summary = {"log_level": "info", "event": "client failed", "connection": 999, "within_s": INTERVAL_S}
            assert logged[1:] == [summary | {"repeats": 999}]

            throttle.log("info", "client failed", ("10.0.0.1", "no CONNECT"), connection=1_000)
            await trio.sleep(INTERVAL_S)
            assert logged[2:] == [summary | {"connection": 1_000, "repeats": 1}]


async def test_other_addresses_and_other_reasons_are_not_held_back(autojump_clock: MockClock) -> None:
    kinds = [("10.0.0.1", "no CONNECT"), ("10.0.0.2", "no CONNECT"), ("10.0.0.1", "too large")]
    with capture_logs() as logged:
        async with running_throttle() as throttle:
            for kind in kinds * 3:
                throttle.log("info", "client failed", kind, kind=kind)
            throttle.log("info", "something else", kinds[0])

    at_once, summed_up = logged[:4], logged[4:]
    assert [line.get("kind") for line in at_once] == [*kinds, None]
    assert [(line["kind"], line["repeats"]) for line in summed_up] == [(kind, 2) for kind in kinds]


async def test_what_has_stopped_is_forgotten_and_logged_at_once_when_it_returns(autojump_clock: MockClock) -> None:
    with capture_logs() as logged:
        async with running_throttle() as throttle:
            throttle.log("info", "client failed", ("10.0.0.1",))
            await trio.sleep(2 * INTERVAL_S)
            throttle.log("info", "client failed", ("10.0.0.1",))

    assert logged == [{"log_level": "info", "event": "client failed"}] * 2


async def test_a_crowd_of_addresses_fills_neither_memory_nor_the_log(autojump_clock: MockClock) -> None:
    with capture_logs() as logged:
        async with running_throttle() as throttle:
            for number in range(100_000):
                throttle.log("info", "client failed", (f"10.0.0.{number}",))
            throttle.check_invariants()
            await trio.sleep(INTERVAL_S + 1)

    assert len(logged) == MAX_KINDS + 2
    assert logged[-1]["repeats"] == 100_000 - MAX_KINDS - 1


async def test_what_is_counted_is_logged_when_the_broker_ends(autojump_clock: MockClock) -> None:
    with capture_logs() as logged:
        async with running_throttle() as throttle:
            throttle.log("warning", "client failed", ("10.0.0.1",))
            throttle.log("warning", "client failed", ("10.0.0.1",))

    assert [line.get("repeats") for line in logged] == [None, 1]


async def test_only_the_line_that_is_logged_at_once_has_a_traceback(autojump_clock: MockClock) -> None:
    with capture_logs() as logged:
        async with running_throttle() as throttle:
            for _ in range(2):
                throttle.log("error", "connection failed", ("10.0.0.1",), exc_info=True)

    assert [line.get("exc_info") for line in logged] == [True, None]
