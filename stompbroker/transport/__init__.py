"""Endpoints, listeners and transports, and how much to read at once.

Law: no protocol, no topics. Only this package knows sockets; a worker sees a `Transport`.
"""

from stompbroker.transport.chunk_sizes import FAIR_BYTES, ChunkSize, Traffic
from stompbroker.transport.endpoint import Endpoint, Scheme
from stompbroker.transport.tcp import (
    TcpListener,
    TcpTransport,
    accept,
    bound_endpoint,
    open_listeners,
    open_sockets,
    raise_descriptor_limit,
)
from stompbroker.transport.transport import StreamTransport, Transport

__all__ = [
    "FAIR_BYTES",
    "ChunkSize",
    "Endpoint",
    "Scheme",
    "StreamTransport",
    "TcpListener",
    "TcpTransport",
    "Traffic",
    "Transport",
    "accept",
    "bound_endpoint",
    "open_listeners",
    "open_sockets",
    "raise_descriptor_limit",
]
