"""RabbitMQ with its STOMP plugin.

A separate node with all its files in a temporary directory, independent of a service on the same machine. The port
mapper, which Erlang would leave running as a daemon, is started before and stopped after it.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.dialect import Dialect, DurableSpelling
from benchmarks.disk_directory import disk_directory
from benchmarks.peers.debian_package import installed_package
from benchmarks.peers.free_port import LOOPBACK, free_address, free_port
from benchmarks.peers.peer import Installed, Missing, Peer
from benchmarks.peers.peer_process import Launch, PeerProcess, running_peer

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Not the one in /usr/sbin, which switches to another user.
_SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

_DIALECT: Final = Dialect(
    virtual_host="/",
    login=(("login", "guest"), ("passcode", "guest")),
    durable_spelling=DurableSpelling.SUBSCRIPTION_ID,
    stored=(("persistent", "true"),),
    prefetch=(("prefetch-count", "1000"),),
)

_SETTINGS: Final = """\
listeners.tcp = none
stomp.listeners.tcp.1 = 127.0.0.1:{port}
log.file = false
log.console = true
log.console.level = error
"""
_PLUGINS: Final = "[rabbitmq_stomp].\n"

_CONFIGURATION: Final = f"""\
rabbitmq.conf:

{_SETTINGS.format(port="PORT")}
enabled_plugins: {_PLUGINS}
Everything else is as RabbitMQ has it: no management plugin and so no statistics, classic queues, one schedule thread
per core. Frames: `persistent:true` on what has to be stored, `durable:true` and `auto-delete:false` on durable
subscriptions, `prefetch-count:1000` where messages are acknowledged (as ours has it; without it there is no limit).
With a receipt a message is confirmed once it is on disk, or acknowledged; it may be delivered before that.
"""


def _installed() -> Installed | Missing:
    return installed_package("rabbitmq-server", needs=_SERVER)


@contextmanager
def running_rabbitmq() -> Iterator[PeerProcess]:
    address = free_address(_DIALECT)
    with disk_directory("rabbitmq-benchmark-") as directory, _port_mapper() as mapper:
        launch = Launch(
            command=(str(_SERVER),), address=address, data=directory, environment=_environment(directory, mapper)
        )
        Path(directory, "rabbitmq.conf").write_text(_SETTINGS.format(port=address.port))
        Path(directory, "enabled_plugins").write_text(_PLUGINS)
        Path(directory, "rabbitmq-env.conf").touch()
        with running_peer(launch) as target:
            yield target


def _environment(directory: Path, mapper: dict[str, str]) -> dict[str, str]:
    return {
        **mapper,
        "HOME": str(directory),  # for its cookie
        "RABBITMQ_NODENAME": f"benchmark-{mapper['ERL_EPMD_PORT']}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": str(directory / "rabbitmq-env.conf"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }


@contextmanager
def _port_mapper() -> Iterator[dict[str, str]]:
    """Run epmd in the foreground; yields the variables by which a node finds it."""
    port = str(free_port())
    with subprocess.Popen(
        ["epmd", "-address", LOOPBACK, "-port", port], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as mapper:
        try:
            yield {"ERL_EPMD_ADDRESS": LOOPBACK, "ERL_EPMD_PORT": port}
        finally:
            mapper.kill()


RABBITMQ: Final = Peer(
    name="rabbitmq",
    title="RabbitMQ",
    configuration=_CONFIGURATION,
    installed=_installed,
    open=lambda _settings: running_rabbitmq(),
)
