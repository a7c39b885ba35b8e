"""Stores of both kinds, for every test that does not care which."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from stompbroker.storage import migrate
from stompbroker.storage.schema import metadata
from tests.storage.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stompbroker.storage import Store
    from tests.support.postgres import PostgresServer


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as opened:
        yield Place("", tmp_path, opened)


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One database for all tests of this folder: a new one for each takes longer than the test."""
    url = postgres_server.create_database()
    migrate(url, tmp_path_factory.getbasetemp())
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def postgres_place(migrated_postgres: str, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as opened:
        place = Place(migrated_postgres, tmp_path, opened)
        yield place
    place.query(f"TRUNCATE {', '.join(metadata.tables)}")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    """Where a store can be opened: the contract is one, whatever the engine."""
    found = request.getfixturevalue("sqlite_place" if request.param == "sqlite" else "postgres_place")
    assert isinstance(found, Place)
    return found


@pytest.fixture
def store(place: Place) -> Store:
    """An empty store that is ours."""
    return place.owned_store()
