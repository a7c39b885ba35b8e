"""Fixtures that more than one folder uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import settings

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest

pytest_plugins = ["tests.support.postgres"]

# The same examples every time: a test that fails for nobody else is no help to anybody.
settings.register_profile("deterministic", derandomize=True, deadline=None)
settings.load_profile("deterministic")


@pytest.fixture
async def broker(autojump_clock: MockClock) -> AsyncIterator[BrokerUnderTest]:
    """A broker with default settings on memory streams and the mock clock.

    pytest-trio gives a test the clock that is among the test's own arguments, so the test has to name it as well.
    """
    if trio.lowlevel.current_clock() is not autojump_clock:
        pytest.fail("a test that takes `broker` must take `autojump_clock: MockClock` too, or it runs on real time")
    async with running_broker() as under_test:
        yield under_test
