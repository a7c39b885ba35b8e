"""Stores of both kinds, as the storage's own tests have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ledger.ledger_on_store import LedgerOnStore
from tests.storage.conftest import migrated_postgres, place, postgres_place, sqlite_place

if TYPE_CHECKING:
    from tests.storage.place import Place

__all__ = ["migrated_postgres", "place", "postgres_place", "sqlite_place"]


@pytest.fixture
def on_store(place: Place) -> LedgerOnStore:
    """An empty ledger, and an empty lake."""
    return LedgerOnStore(place)
