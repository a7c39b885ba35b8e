"""A store in a database of a PostgreSQL server."""

from stompbroker.storage.postgres.backend import PostgresBackend
from stompbroker.storage.postgres.engine import migrating_engine, passwords_in, reading_engine, server_url, shown

__all__ = ["PostgresBackend", "migrating_engine", "passwords_in", "reading_engine", "server_url", "shown"]
