"""Where the broker of a run keeps its data.

Knows the broker's arguments for it, prepares it, and stops what it started.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.patience import HARD_TIMEOUT_S
from tests.support.postgres import running_postgres
from tests.support.prepared_process import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServer

#: Value of `--database` that starts a PostgreSQL for the run, which can then be killed as well.
OWN_POSTGRES: Final = "postgres"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    #: None: the embedded database in the data directory.
    url: str | None
    #: The server, if the run started it.
    server: PostgresServer | None = None

    @property
    def arguments(self) -> list[str]:
        """Arguments of `stompbroker serve`."""
        return [] if self.url is None else ["--database", self.url]


@contextmanager
def opened_database(choice: str | None, directory: Path) -> Iterator[Database]:
    """`choice` is None, a URL, or OWN_POSTGRES, which is started in `directory`."""
    if choice == OWN_POSTGRES:
        with running_postgres(directory, fsync=True) as server:
            url = server.create_database()
            migrate(url)
            yield Database(url=url, server=server)
    elif choice is not None:
        migrate(choice)
        yield Database(url=choice)
    else:
        yield Database(url=None)


def migrate(url: str) -> None:
    """Create the tables; the broker does that itself only for the embedded database."""
    command = [sys.executable, "-m", "stompbroker", "migrate", "--database", url]
    subprocess.run(command, check=True, timeout=HARD_TIMEOUT_S, env=clean_environment(), stdout=subprocess.DEVNULL)
