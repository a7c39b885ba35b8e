"""Who may ask what.

Law: a loopback address needs no token, but keeps out other sites in the operator's own browser: `Host` must be ours (a
name rebound to 127.0.0.1 is not), and a change must not come from another site. Any other address needs a token for
everything but health and the page itself, which holds no data.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

from stompbroker.management.responses import Problem

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: No token is needed here: nothing there tells what the broker holds.
_OPEN_PATHS: Final = ("/health/", "/static/")
_OPEN_PAGES: Final = frozenset({"/", "/favicon.ico", "/api/docs", "/api/openapi.json"})
#: An address in brackets or a name, and perhaps a port.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]\\]+))(?::[0-9]*)?")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@final
@dataclass(frozen=True, slots=True)
class Access:
    _host: str
    _token: str | None = field(repr=False)

    def check(self, request: HTTPConnection, method: str) -> None:
        """Raises Problem."""
        self._check_host(request)
        if method not in _SAFE_METHODS:
            _check_same_site(request)
        path: str = request.scope["path"]
        if self._token is None or path in _OPEN_PAGES or path.startswith(_OPEN_PATHS):
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise Problem(
                401,
                "send the token of this broker (settings http_token or http_token_file) as Authorization: Bearer TOKEN",
                {"WWW-Authenticate": 'Bearer realm="stompbroker"'},
            )

    def _check_host(self, request: HTTPConnection) -> None:
        """Needed where no token protects: a browser sends the name that was rebound to us."""
        if not is_loopback(self._host):
            return
        found = _HOST.fullmatch(request.headers.get("host", ""))
        name = "" if found is None else (found[1] or found[2]).lower()
        if name != self._host and not is_loopback(name):
            raise Problem(421, f"{name!r} is not what this broker is called here; use localhost or 127.0.0.1")


def _check_same_site(request: HTTPConnection) -> None:
    """Browsers say where a request comes from. Other programs need not: no page can make them ask."""
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    try:
        is_ours = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    except ValueError:
        is_ours = False
    if site not in ("none", "same-origin") or not is_ours:
        raise Problem(
            403, "what changes something can only be asked for from the broker's own page, not from another site"
        )
