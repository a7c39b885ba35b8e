"""A place on the loopback interface that nobody listens on, for brokers that cannot choose one themselves.

Law: it is free when it is found. Somebody else may take it before the broker does; then the broker says so and ends.
"""

from __future__ import annotations

import socket
from typing import Final

from benchmarks.address import Address
from benchmarks.dialect import OURS, Dialect
from benchmarks.peers.peer import PEER_STALL_S

LOOPBACK: Final = "127.0.0.1"


def free_address(dialect: Dialect = OURS) -> Address:
    """With a peer's patience: what it has taken in a flood, it reads before the request that is to be answered."""
    return Address(LOOPBACK, free_port(), dialect, answer_timeout_s=PEER_STALL_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
