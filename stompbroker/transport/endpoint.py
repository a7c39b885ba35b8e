"""Where clients connect: a scheme, an address, and who may come in there.

Law: text in, a value out, or an OperatorError that says what is possible. Opens and resolves nothing.

    stomp://HOST:PORT   stomp+tls://HOST:PORT   ws://HOST:PORT/PATH   wss://HOST:PORT/PATH   unix:///PATH

Options follow a question mark: `max_connections=N`, `users=NAME,NAME`, `origin=ORIGIN,ORIGIN` (WebSocket: pages of
other sites that may connect, `*` for all) and `proxy=NETWORK,NETWORK` (the PROXY protocol is spoken there, by these
addresses only).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, final
from urllib.parse import unquote

from stompbroker.errors import OperatorError, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_POSSIBLE: Final = (
    "Possible are stomp://HOST:PORT, stomp+tls://HOST:PORT, ws://HOST:PORT/PATH, wss://HOST:PORT/PATH and "
    "unix:///PATH, with an IPv6 address in brackets, such as stomp://[::1]:61613."
)

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://([^?]*)(?:\?(.*))?", re.ASCII | re.DOTALL)
_ADDRESS: Final = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s:/?#@\[\]%]+)):([0-9]{1,5})(/[!-~]*)?", re.ASCII
)
#: As in the header Host of HTTP.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s:/?#@\[\]\\]+))(?::[0-9]*)?", re.ASCII)
_MAX_PORT: Final = 65_535
_MAX_CONNECTIONS: Final = 1_000_000
#: Characters of a wrong endpoint that are repeated.
_MAX_SHOWN: Final = 100
#: What the kernel takes as the path of a socket.
_MAX_UNIX_PATH_BYTES: Final = 107


class Scheme(StrEnum):
    STOMP = "stomp"
    STOMP_TLS = "stomp+tls"
    WS = "ws"
    WSS = "wss"
    UNIX = "unix"
    #: The management endpoint.
    HTTP = "http"
    HTTPS = "https"

    @property
    def is_encrypted(self) -> bool:
        return self in (Scheme.STOMP_TLS, Scheme.WSS, Scheme.HTTPS)

    @property
    def is_websocket(self) -> bool:
        return self in (Scheme.WS, Scheme.WSS)


_FOR_CLIENTS: Final = (Scheme.STOMP, Scheme.STOMP_TLS, Scheme.WS, Scheme.WSS, Scheme.UNIX)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Restrictions:
    """Who may come in at one endpoint; None and empty mean that nothing is restricted or added."""

    max_connections: int | None = None
    users: frozenset[str] | None = None
    #: Origins of web pages that may open a WebSocket, besides pages of the same host; `*` for all.
    origins: frozenset[str] = frozenset()
    #: From where the PROXY protocol is spoken, and required.
    proxies: tuple[Network, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    scheme: Scheme
    #: A name or an address, an IPv6 one without brackets; empty for a Unix socket.
    host: str = ""
    #: 0 lets the listener choose a free one.
    port: int = 0
    #: Of a WebSocket or a Unix socket.
    path: str = ""
    restrictions: Restrictions = field(default_factory=Restrictions)

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """An endpoint for clients of the broker. Raises OperatorError."""
        shown = repr(shorten(text, _MAX_SHOWN))
        url = _URL.fullmatch(text)
        if url is None:
            raise OperatorError(f"{shown} is not an endpoint. {_POSSIBLE}")
        if url[1].lower() not in _FOR_CLIENTS:
            raise OperatorError(f"{shown}: the broker cannot serve {url[1]}:// to its clients. {_POSSIBLE}")
        scheme = Scheme(url[1].lower())
        restrictions = _read_options(url[3], scheme, shown)
        if scheme is Scheme.UNIX:
            if not url[2].startswith("/") or not 1 < len(unquote(url[2]).encode()) <= _MAX_UNIX_PATH_BYTES:
                raise OperatorError(
                    f"{shown} does not name the whole path of a socket, of at most {_MAX_UNIX_PATH_BYTES} bytes. "
                    f"{_POSSIBLE}"
                )
            return cls(scheme, path=unquote(url[2]), restrictions=restrictions)
        address = _ADDRESS.fullmatch(url[2])
        if address is None or int(address[3]) > _MAX_PORT:
            raise OperatorError(f"{shown} does not name a host and a port up to {_MAX_PORT}. {_POSSIBLE}")
        path = address[4] or ("/" if scheme.is_websocket else "")
        if path not in ("", "/") and not scheme.is_websocket:
            raise OperatorError(f"{shown}: only ws:// and wss:// have a path. {_POSSIBLE}")
        path = path if scheme.is_websocket else ""
        return cls(scheme, address[1] or address[2], int(address[3]), path, restrictions)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.scheme is Scheme.UNIX or is_loopback(self.host)

    @property
    def needs_handshake(self) -> bool:
        """Whether something comes before STOMP that a client can delay."""
        return self.scheme.is_encrypted or self.scheme.is_websocket or bool(self.restrictions.proxies)

    @property
    def address(self) -> str:
        """Host and port, as people write them; the path of a Unix socket."""
        if self.scheme is Scheme.UNIX:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}" + (self.path if self.scheme.is_websocket else "")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_in(address: str) -> str | None:
    """The host of an address with or without a port, an IPv6 one without its brackets; None if it is no address."""
    found = _HOST.fullmatch(address)
    return None if found is None else (found[1] or found[2]).lower()


def _read_options(text: str | None, scheme: Scheme, shown: str) -> Restrictions:
    """What follows the question mark. Raises OperatorError."""
    given = dict[str, object]()
    for part in (text or "").split("&") if text else ():
        name, equals, value = part.partition("=")
        read = _OPTIONS.get(name)
        if read is None or not equals or not value:
            raise OperatorError(f"{shown}: {part!r} is not an option. Possible are {', '.join(_OPTIONS)}, each with =.")
        field_name, reader = read
        try:
            given[field_name] = reader(unquote(value))
        except ValueError as error:
            raise OperatorError(f"{shown}: {name}: {error}.") from error
    if "origins" in given and not scheme.is_websocket:
        raise OperatorError(f"{shown}: origin is for ws:// and wss://, which browsers use.")
    if "proxies" in given and scheme is Scheme.UNIX:
        raise OperatorError(f"{shown}: proxy is for endpoints on a network.")
    return Restrictions(**given)  # type: ignore[arg-type]


def _read_count(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value[:10]) <= _MAX_CONNECTIONS:
        raise ValueError(f"{value[:20]!r} is not a whole number from 1 to {_MAX_CONNECTIONS}")
    return int(value)


def _names(value: str) -> Iterator[str]:
    return (name for name in value.split(",") if name)


def _read_names(value: str) -> frozenset[str]:
    return frozenset(_names(value))


def _read_origins(value: str) -> frozenset[str]:
    return frozenset(name.lower().removesuffix("/") for name in _names(value))


def _read_networks(value: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(name) for name in _names(value))


_OPTIONS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "max_connections": ("max_connections", _read_count),
    "users": ("users", _read_names),
    "origin": ("origins", _read_origins),
    "proxy": ("proxies", _read_networks),
}
