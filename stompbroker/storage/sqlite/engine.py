"""Connections to the embedded SQLite file (`file.py`), as SQLAlchemy has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import NullPool, Pool, QueuePool, create_engine, event

from stompbroker.storage.sqlite.file import BEGIN_WRITING, connect_file

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Connection, Engine


def writing_engine(file: Path, *, may_create: bool = False) -> Engine:
    """Connections are never reused, and transactions may write from their first statement on."""
    return _engine(lambda: connect_file(file, may_create=may_create), begin=BEGIN_WRITING, pool=NullPool)


def reading_engine(file: Path) -> Engine:
    """Connections are pooled."""

    def connect() -> sqlite3.Connection:
        connection = connect_file(file)
        connection.execute("PRAGMA query_only = ON")
        return connection

    return _engine(connect, begin="BEGIN", pool=QueuePool)


def _engine(connect: Callable[[], sqlite3.Connection], *, begin: str, pool: type[Pool]) -> Engine:
    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=pool)

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
