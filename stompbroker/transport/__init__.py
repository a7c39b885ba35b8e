"""Endpoints, listeners and transports, and how much to read at once.

Law: no protocol, no topics. Only this package knows sockets; a worker sees a `Transport`.
"""

from stompbroker.transport.chunk_sizes import FAIR_BYTES, ChunkSize, Traffic
from stompbroker.transport.endpoint import Endpoint, Restrictions, Scheme, host_in, is_loopback
from stompbroker.transport.listening import Listener, open_listeners
from stompbroker.transport.tcp import TcpTransport, accept, bound_endpoint, open_sockets, raise_descriptor_limit
from stompbroker.transport.tls import Tls, TlsFiles
from stompbroker.transport.transport import StreamTransport, Transport

__all__ = [
    "FAIR_BYTES",
    "ChunkSize",
    "Endpoint",
    "Listener",
    "Restrictions",
    "Scheme",
    "StreamTransport",
    "TcpTransport",
    "Tls",
    "TlsFiles",
    "Traffic",
    "Transport",
    "accept",
    "bound_endpoint",
    "host_in",
    "is_loopback",
    "open_listeners",
    "open_sockets",
    "raise_descriptor_limit",
]
