"""`stompbroker migrate`: bring the database to the newest version.

Law: `storage` knows the schema. A file in the data directory is changed only while this process holds the directory's
lock, so never under a running broker.
"""

from contextlib import ExitStack

from stompbroker.cli.options import ConfigOption, DatabaseOption, DataOption
from stompbroker.cli.terminal import say


def migrate(database: DatabaseOption = None, data: DataOption = None, config: ConfigOption = None) -> None:
    """Bring the schema of the database to the newest version.

    For a PostgreSQL server, before the first start and when "stompbroker serve" asks for it.
    The SQLite file in the data directory is brought up to date by "stompbroker serve" itself.

    Examples:

    $ stompbroker migrate
    $ stompbroker migrate --config production.toml
    $ STOMPBROKER_DATABASE=postgresql+psycopg://broker:PASSWORD@db.example/broker stompbroker migrate
    """
    from stompbroker.config import EMBEDDED, EMBEDDED_FILE, MEMORY, load, without_password
    from stompbroker.config.data_directory import hold

    settings = load(config, flags={"database": database, "data": data})
    if settings.database == MEMORY:
        say('Nothing to do: with the database "memory" nothing is stored.')
        return
    with ExitStack() as held:
        if settings.database == EMBEDDED:
            held.enter_context(hold(settings.data))
            where = str(settings.data / EMBEDDED_FILE)
        else:
            where = without_password(settings.database)

        from stompbroker.storage import migrate as apply_revisions

        applied = apply_revisions(settings.database, settings.data)
    if applied:
        say(f"Brought {where} to the newest version:", *(f"  {revision}" for revision in applied))
    else:
        say(f"Nothing to do: {where} is at the newest version.")
