"""CoilMQ, a STOMP broker in Python with a thread for each connection.

A separate instance on a loopback port, started from an environment in `.peers/` that `make peers` makes. It logs at
level ERROR, because by default it writes a line for every connection.
"""

from __future__ import annotations

import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.dialect import Dialect
from benchmarks.disk_directory import disk_directory
from benchmarks.peers.free_port import free_address
from benchmarks.peers.peer import Ability, Installed, Missing, Peer
from benchmarks.peers.peer_process import Launch, running_peer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.target import Target

_ENVIRONMENT: Final = Path(__file__).parents[2] / ".peers" / "coilmq"
_SERVER: Final = _ENVIRONMENT / "bin" / "coilmq"
_VERSION: Final = "from importlib.metadata import version; print(version('coilmq'))"

_SETTINGS: Final = """\
[coilmq]
listen_addr = 127.0.0.1
listen_port = {port}
qstore.factory = coilmq.store.memory.MemoryQueue

[loggers]
keys = root
[handlers]
keys = console
[formatters]
keys =
[logger_root]
level = ERROR
handlers = console
[handler_console]
class = StreamHandler
args = (sys.stderr,)
"""

_CONFIGURATION: Final = f"""\
coilmq.cfg:

{_SETTINGS.format(port="PORT")}
Its defaults, with a log of errors only. CONNECT names the machine, which is the only `host` it knows. Topics alone are
compared: it has no durable subscriptions to topics, and its queues are another thing. Its parser does not survive a
header that is cut by one of its reads, so that nothing can be measured for which a publisher goes full speed.
"""

#: `parse_headers` in its `util/frames.py` raises an uncaught ValueError for a header line that was cut before its
#: colon.
_CUT: Final = "ends a connection when one of its reads of 4,096 bytes cuts a header, so no publisher can go full speed"
_NOTHING_STORED: Final = "has no durable subscriptions to topics"


def _installed() -> Installed | Missing:
    if not _SERVER.exists():
        return Missing("make peers (it gets an environment of its own in .peers/coilmq)")
    asked = subprocess.run(
        [_ENVIRONMENT / "bin" / "python", "-c", _VERSION], capture_output=True, text=True, check=False
    )
    return Installed(asked.stdout.strip() or "of unknown version")


@contextmanager
def _open(settings: str) -> Iterator[Target]:
    del settings
    address = free_address(Dialect(virtual_host=socket.getfqdn()))  # the only `host` it accepts
    with disk_directory("coilmq-benchmark-") as directory:
        configuration = Path(directory, "coilmq.cfg")
        configuration.write_text(_SETTINGS.format(port=address.port))
        launch = Launch(command=(str(_SERVER), "--config", str(configuration)), address=address, data=directory)
        with running_peer(launch) as target:
            yield target


COILMQ: Final = Peer(
    name="coilmq",
    title="CoilMQ",
    configuration=_CONFIGURATION,
    installed=_installed,
    open=_open,
    why_not={
        Ability.STREAMING: _CUT,
        Ability.DURABLE: _NOTHING_STORED,
        Ability.QUEUES: "keeps queues in memory, as it is set up here",
        Ability.REDELIVERY: _NOTHING_STORED,
    },
)
