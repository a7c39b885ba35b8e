"""The PROXY protocol, versions 1 and 2: a proxy says for whom it connects.

Law: only proxies that were named are believed, and those have to say it, before anything else, TLS included.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from stompbroker.transport.endpoint import Endpoint, Scheme, host_in

if TYPE_CHECKING:
    from stompbroker.transport.endpoint import Network
    from stompbroker.transport.tcp import TcpTransport

#: The longest header of version 1, by its specification.
MAX_TEXT_BYTES: Final = 107
#: The longest header of version 2 that is accepted: addresses, and what proxies say of a client's certificate.
MAX_BINARY_BYTES: Final = 4096

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_TEXT: Final = b"PROXY "
_BINARY: Final = struct.Struct("!12sBBH")
_VERSION: Final = 2
_LOCAL, _PROXIED = 0, 1
#: Family and protocol → addresses of both sides, then their ports.
_ADDRESSES: Final = {0x11: struct.Struct("!4s4sHH"), 0x21: struct.Struct("!16s16sHH")}


@final
class Header(NamedTuple):
    #: Address and port; None if the proxy speaks for itself, or does not know.
    peer: str | None
    length: int


async def identify(accepted: TcpTransport, proxies: tuple[Network, ...]) -> None:
    """Take the header off a new connection, and its peer from it. Raises BrokenResourceError."""
    host = host_in(accepted.peer)
    if not any(_address(host) in network for network in proxies):
        raise trio.BrokenResourceError("only proxies that the endpoint names may connect to it")
    received = b""
    while True:
        chunk = await accepted.receive_some(MAX_BINARY_BYTES)
        if not chunk:
            raise trio.BrokenResourceError("the proxy left before its header")
        received += chunk
        try:
            header = read_header(received)
        except ValueError as error:
            raise trio.BrokenResourceError(f"not the PROXY protocol: {error}") from None
        if header is not None:
            accepted.unread(received[header.length :])
            accepted.peer = header.peer or accepted.peer
            return


def read_header(received: bytes) -> Header | None:
    """None if it has not come in full. Raises ValueError."""
    if received.startswith(_SIGNATURE):
        return _read_binary(received)
    if received.startswith(_TEXT):
        return _read_text(received)
    if _SIGNATURE.startswith(received) or _TEXT.startswith(received):
        return None
    raise ValueError("it does not begin with its signature")


def _read_binary(received: bytes) -> Header | None:
    if len(received) < _BINARY.size:
        return None
    _, version_and_command, family, length = _BINARY.unpack_from(received)
    version, command = divmod(version_and_command, 16)
    end = _BINARY.size + length
    if version != _VERSION or command not in (_LOCAL, _PROXIED):
        raise ValueError(f"there is no version {version} with command {command}")
    if end > MAX_BINARY_BYTES:
        raise ValueError(f"a header has at most {MAX_BINARY_BYTES} bytes")
    if len(received) < end:
        return None
    addresses = _ADDRESSES.get(family)
    if command == _LOCAL or addresses is None:
        return Header(None, end)
    if length < addresses.size:
        raise ValueError("it is too short for its addresses")
    source, _, port, _ = addresses.unpack_from(received, _BINARY.size)
    return Header(_shown(ipaddress.ip_address(source), port), end)


def _read_text(received: bytes) -> Header | None:
    line, ending, _ = received[:MAX_TEXT_BYTES].partition(b"\r\n")
    if not ending:
        if len(received) >= MAX_TEXT_BYTES:
            raise ValueError(f"a line has at most {MAX_TEXT_BYTES} bytes")
        return None
    length = len(line) + len(ending)
    match line.decode("ascii").split(" "):
        case ["PROXY", "UNKNOWN", *_]:
            return Header(None, length)
        case ["PROXY", "TCP4" | "TCP6" as family, source, _, port, _]:
            address = ipaddress.ip_address(source)
            if f"TCP{address.version}" == family and port.isdigit() and int(port) < 1 << 16:
                return Header(_shown(address, int(port)), length)
    raise ValueError("its line is none of version 1")


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return Endpoint(Scheme.STOMP, str(address), port).address


def _address(host: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address((host or "").partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
