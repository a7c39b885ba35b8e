"""Data directories with a migrated, empty database: migrating takes longer than most of these tests."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from stompbroker.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("migrated")
    open_store("", directory).close()
    return directory


@pytest.fixture
def data(migrated: Path, tmp_path: Path) -> Path:
    """A data directory of the test's own."""
    directory = tmp_path / "data"
    shutil.copytree(migrated, directory)
    return directory


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails is tried again soon: these tests wait for that, and not for time to pass."""
    monkeypatch.setattr("stompbroker.actors.journal.FIRST_RETRY_S", 0.01)
    monkeypatch.setattr("stompbroker.actors.journal.LAST_RETRY_S", 0.02)
    monkeypatch.setattr("stompbroker.actors.page_reader.RETRY_S", 0.01)
    monkeypatch.setattr("stompbroker.storage.sqlite_engine.BUSY_TIMEOUT_MS", 0)


@pytest.fixture(autouse=True)
def usual_switch_interval() -> Iterator[None]:
    """A broker with a store shortens it for the whole process."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)
