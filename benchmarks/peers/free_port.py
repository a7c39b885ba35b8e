"""A free loopback port, for brokers that cannot choose one themselves.

Another program may take it before the broker does; then the broker says so and ends.
"""

from __future__ import annotations

import socket
from typing import Final

from benchmarks.address import Address
from benchmarks.dialect import OURS, Dialect
from benchmarks.peers.peer import PEER_STALL_S

LOOPBACK: Final = "127.0.0.1"


def free_address(dialect: Dialect = OURS) -> Address:
    """With a long timeout: a peer reads what it took in a flood before the request."""
    return Address(LOOPBACK, free_port(), dialect, answer_timeout_s=PEER_STALL_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
