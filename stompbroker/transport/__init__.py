"""Where clients connect, and the bytes that pass.

Law: endpoints, listeners and transports, and how much to read at once. No protocol, no topics. Above this package
nobody knows a socket: a worker sees a `Transport`.
"""

from stompbroker.transport.accepting import accept
from stompbroker.transport.chunk_sizes import FAIR_BYTES, ChunkSize, Traffic
from stompbroker.transport.endpoint import Endpoint, Scheme
from stompbroker.transport.tcp import (
    TcpListener,
    TcpTransport,
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
