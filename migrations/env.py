"""Runs migrations on a connection from the application or, for developers, on a URL.

The only file here that imports the application, which passes a connection with an open transaction
(`stompbroker/storage/opening.py`). From a checkout, in this folder:

    alembic check                                             # the file ../data/stompbroker.db
    alembic -x database=postgresql+psycopg://… upgrade head
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import context
from sqlalchemy import NullPool, create_engine, event

from stompbroker.storage.schema import metadata

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy import Connection, Engine


def run_on(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        # SQLite alters a table by copying it; this makes generated scripts do so.
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def developers_engine() -> Engine:
    embedded = f"sqlite:///{Path(__file__).parent.parent / 'data' / 'stompbroker.db'}"
    engine = create_engine(context.get_x_argument(as_dictionary=True).get("database", embedded), poolclass=NullPool)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def prepare(connection: sqlite3.Connection, _record: object) -> None:
            # Python must not begin transactions by itself: it would create tables outside them.
            connection.isolation_level = None
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")

        @event.listens_for(engine, "begin")
        def begin_transaction(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


if context.is_offline_mode():
    raise SystemExit("Migrations look at the database they change: --sql is not supported.")

given = context.config.attributes.get("connection")
if given is not None:
    run_on(given)
else:
    with developers_engine().begin() as opened:
        run_on(opened)
