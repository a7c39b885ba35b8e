"""A port of the loopback address that nobody listens on, for brokers that cannot choose one themselves.

Law: it is free when it is found. Somebody else may take it before the broker does; then the broker says so and ends.
"""

from __future__ import annotations

import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
