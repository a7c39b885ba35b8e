"""What all tests of the journal need: a store, and no waiting for one that fails."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def data(store_directory: Path) -> Path:
    """A data directory of the test's own, with a migrated, empty database."""
    return store_directory


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails is tried again soon: these tests wait for that, and not for time to pass."""
    monkeypatch.setattr("stompbroker.actors.journal.FIRST_RETRY_S", 0.01)
    monkeypatch.setattr("stompbroker.actors.journal.LAST_RETRY_S", 0.02)
    monkeypatch.setattr("stompbroker.actors.page_reader.RETRY_S", 0.01)
    monkeypatch.setattr("stompbroker.storage.sqlite.file.BUSY_TIMEOUT_MS", 0)


@pytest.fixture(autouse=True)
def usual_switch_interval() -> Iterator[None]:
    """A broker with a store shortens it for the whole process."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)
