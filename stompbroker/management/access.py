"""Who may ask what.

Law: on a loopback address nobody needs a password, but a page of somebody else's in the operator's own browser must not
get through: the `Host` must be ours (a name that was rebound to 127.0.0.1 is not), and what changes something must not
come from another site. Anywhere else a token is needed for everything but health and the page itself, which holds no
data.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

from stompbroker.management.responses import Problem

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

__all__ = ["Access", "is_loopback"]

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: Where no token is asked for: nothing there tells what the broker holds.
_OPEN_PATHS: Final = ("/health/", "/static/")
_OPEN_PAGES: Final = frozenset({"/", "/favicon.ico", "/api/docs", "/api/openapi.json"})
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
#: An address in brackets or a name, and perhaps a port.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]\\]+))(?::[0-9]*)?")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@final
class Access:
    __slots__ = ("_host", "_is_local", "_token")

    def __init__(self, host: str, token: str | None) -> None:
        self._host = host
        self._is_local = is_loopback(host)
        self._token = token

    def check(self, request: HTTPConnection, method: str) -> None:
        """Raises Problem."""
        self._check_host(request)
        if method not in _SAFE_METHODS:
            _check_same_site(request)
        path: str = request.scope["path"]
        if self._token is not None and path not in _OPEN_PAGES and not path.startswith(_OPEN_PATHS):
            self._check_token(request, self._token)

    def _check_host(self, request: HTTPConnection) -> None:
        """Only needed where no token protects: a browser sends the name that was rebound to us."""
        if not self._is_local:
            return
        name = _host_name(request.headers.get("host", ""))
        if name not in _LOCAL_NAMES and name != self._host and not is_loopback(name):
            raise Problem(421, f"{name!r} is not what this broker is called here; use localhost or 127.0.0.1")

    @staticmethod
    def _check_token(request: HTTPConnection, token: str) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
            raise Problem(
                401,
                "send the token of this broker (settings http_token or http_token_file) as Authorization: Bearer TOKEN",
                {"WWW-Authenticate": 'Bearer realm="stompbroker"'},
            )


def _host_name(host: str) -> str:
    """Without the port; nothing if it is none."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found[1] or found[2]).lower()


def _origin_host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _check_same_site(request: HTTPConnection) -> None:
    """A browser says where a request comes from; other programs say nothing, and nobody can make them ask."""
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    is_ours = origin is None or _origin_host(origin) == request.headers.get("host")
    if site not in ("none", "same-origin") or not is_ours:
        raise Problem(
            403, "what changes something can only be asked for from the broker's own page, not from another site"
        )
