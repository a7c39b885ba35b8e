"""Our own broker as one of those compared.

It gets the default settings, and the same timeouts as when it is measured alone.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from benchmarks.broker_process import running_broker
from benchmarks.peers.peer import Installed, Missing, Peer
from benchmarks.rounds import STALL_S

_CONFIGURATION: Final = """\
Its defaults: ledger and statistics on, the embedded database with `synchronous=FULL`, an fsync before a stored message
has its receipt and before it is delivered. At most 1,000 messages without their acknowledgement; at a queue 100 for
each consumer.
"""


def _installed() -> Installed | Missing:
    return Installed(version("stompbroker"))


OURS: Final = Peer(
    name="stompbroker",
    title="stompbroker",
    configuration=_CONFIGURATION,
    installed=_installed,
    open=running_broker,
    stall_s=STALL_S,
)
