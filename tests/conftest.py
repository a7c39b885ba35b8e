"""Fixtures that more than one folder uses."""

from __future__ import annotations

import gc
import shutil
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import settings

from stompbroker.build import IS_COMPILED
from stompbroker.storage import open_store
from tests.support.broker_under_test import running_broker
from tests.support.certificates import Certificates
from tests.support.passing_time import begin_in_the_morning

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest

pytest_plugins = ["tests.support.postgres", *(["tests.support.compiled"] if IS_COMPILED else [])]

# The same examples every time: a test that fails for nobody else is no help to anybody.
settings.register_profile("deterministic", derandomize=True, deadline=None)
settings.load_profile("deterministic")


def pytest_collection_finish() -> None:
    """Modules and collected tests stay to the end, so no search for reference cycles needs to look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same time of day for every test."""
    begin_in_the_morning(monkeypatch)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.made_in(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def broker(autojump_clock: MockClock) -> AsyncIterator[BrokerUnderTest]:
    """A broker with default settings on memory streams and the mock clock.

    pytest-trio gives a test the clock that is among the test's own arguments, so the test has to name it as well.
    """
    if trio.lowlevel.current_clock() is not autojump_clock:
        pytest.fail("a test that takes `broker` must take `autojump_clock: MockClock` too, or it runs on real time")
    async with running_broker() as under_test:
        yield under_test


@pytest.fixture(scope="session")
def migrated_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an empty database, to be copied: making one takes longer than most tests."""
    directory = tmp_path_factory.mktemp("migrated_store")
    open_store("", directory).close()
    return directory


@pytest.fixture
def store_directory(migrated_store: Path, tmp_path: Path) -> Path:
    """Where a broker can keep its store (`running_broker(store_in=…)`), one after the other."""
    return shutil.copytree(migrated_store, tmp_path / "data")


@pytest.fixture
async def durable_broker(store_directory: Path) -> AsyncIterator[BrokerUnderTest]:
    """A broker with default settings on memory streams, with a store."""
    async with running_broker(store_in=store_directory) as under_test:
        yield under_test
