"""A pool between broker and server: one that gives each transaction another session is refused; with a real PgBouncer.

On Debian and Ubuntu: `apt install pgbouncer`. Without one the tests are skipped on a laptop and fail in CI.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url

from stompbroker.errors import OperatorError
from stompbroker.storage import Batch, open_store
from tests.support.broker_process import wait_until
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.storage.place import Place


def installed_pool() -> str:
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is not None:
        return program
    if os.environ.get("CI"):
        pytest.fail("no pgbouncer")
    pytest.skip("no pgbouncer")


@contextmanager
def pool(place: Place, directory: Path, pool_mode: str, **others: int) -> Iterator[str]:
    """The URL of the same database through a pool in front of it."""
    url = make_url(place.database)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    settings: dict[str, object] = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": pool_mode,
        # Otherwise it refuses every client that sets what belongs to a session.
        "ignore_startup_parameters": "options",
    } | others
    lines = [f"{name} = {value}" for name, value in settings.items()]
    server = f"* = host={url.host} port={url.port} user={url.username}"
    file = directory / "pgbouncer.ini"
    file.write_text("\n".join(["[databases]", server, "[pgbouncer]", *lines]))
    directory.chmod(0o755)
    # It refuses to be root.
    user = "nobody" if os.geteuid() == 0 else None
    with file.open() as configuration:
        process = subprocess.Popen(
            [installed_pool(), "-q", f"/dev/fd/{configuration.fileno()}"],
            pass_fds=[configuration.fileno()],
            stdin=subprocess.DEVNULL,
            user=user,
            group="nogroup" if user else None,
            extra_groups=[] if user else None,
            stderr=subprocess.DEVNULL,
        )
    try:
        wait_until(lambda: answers(port) or process.poll() is not None, "the pool listens")
        assert process.poll() is None
        yield url.set(port=port).render_as_string(hide_password=False)
    finally:
        process.terminate()
        process.wait(HARD_TIMEOUT_S)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("round_robin", [0, 1])
def test_a_pool_that_takes_sessions_away_is_refused(postgres_place: Place, tmp_path: Path, round_robin: int) -> None:
    with pool(postgres_place, tmp_path, "transaction", server_round_robin=round_robin) as url:
        for _ in range(3):  # the pool has more and more sessions to choose from
            with pytest.raises(OperatorError, match=r"gives each transaction another session .*pool_mode = session"):
                open_store(url, tmp_path)


def test_a_pool_that_leaves_sessions_alone_is_none_of_our_business(postgres_place: Place, tmp_path: Path) -> None:
    with pool(postgres_place, tmp_path, "session") as url:
        store = open_store(url, tmp_path)
        try:
            store.take_ownership("a broker", lease_s=60.0)
            store.commit(Batch(number=1))
            store.renew_lease()
        finally:
            store.close()
