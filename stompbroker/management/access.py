"""Who may ask what.

Law: the token is an operator of the whole broker. Users log in with each request, by HTTP Basic or with a JSON Web
Token; there are no cookies, so that no other site can use a login. Where there is neither login nor token, a loopback
address serves everybody on this machine, but not other sites in the operator's own browser: `Host` must be ours (a name
rebound to 127.0.0.1 is not), and a change must not come from another site. Health and the page itself, which hold no
data, are open. What a caller may see and change is decided by `control`.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

from stompbroker.access import ANYBODY, Credentials, Grant, LoginRefused, Permissions
from stompbroker.control import Caller
from stompbroker.management.responses import Problem
from stompbroker.transport import host_in, is_loopback

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from stompbroker.access import Audit, Authenticator
    from stompbroker.clock import Clock

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: Nobody has to log in here: nothing there tells what the broker holds.
_OPEN_PATHS: Final = ("/health/", "/static/")
_OPEN_PAGES: Final = frozenset({"/", "/favicon.ico", "/api/docs", "/api/openapi.json"})
#: Only this scheme is offered: if Basic were, browsers would ask in a dialogue of their own and keep the password, and
#: send it with what other sites request. Programs send Basic without being asked.
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="stompbroker"'}
#: Who has the token. No user can have this name.
_TOKEN_HOLDER: Final = Grant(user=":token", permissions=Permissions(), roles=frozenset({"operator"}), is_unbounded=True)


@final
@dataclass(frozen=True, slots=True)
class Visitor:
    """Who has sent a request, and from where."""

    caller: Caller
    #: The peer's host.
    address: str

    @property
    def user(self) -> str:
        return self.caller.grant.user


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    #: Where it listens: the setting http_host.
    host: str
    token: str | None = field(default=None, repr=False)
    authenticator: Authenticator
    audit: Audit
    clock: Clock
    #: The endpoint's URL, for the audit log.
    endpoint: str

    @property
    def asks_for_login(self) -> bool:
        return self.authenticator.is_required or self.token is not None

    async def admit(self, request: HTTPConnection, method: str) -> Visitor | None:
        """Who asks; None where that does not matter. Raises Problem."""
        self._check_host(request)
        if method not in _SAFE_METHODS:
            _check_same_site(request)
        path: str = request.scope["path"]
        if path in _OPEN_PAGES or path.startswith(_OPEN_PATHS):
            return None
        address = request.client.host if request.client is not None else ""
        caller = Caller(await self._identify(request.headers.get("authorization", ""), address))
        visitor = Visitor(caller, address)
        if not caller.is_admitted:
            self.note_denied(visitor, f"{method} {path}")
            raise Problem(
                403,
                f"{visitor.user} has neither the role viewer nor operator, which the management endpoint asks for; "
                "the roles of a user are in the file of users",
            )
        return visitor

    async def _identify(self, authorization: str, address: str) -> Grant:
        """Raises Problem."""
        scheme, _, given = authorization.partition(" ")
        scheme, given = scheme.lower(), given.strip()
        if self.token is not None and scheme == "bearer" and hmac.compare_digest(given.encode(), self.token.encode()):
            return _TOKEN_HOLDER
        if not self.asks_for_login:
            return ANYBODY
        login, password = _read_basic(given) if scheme == "basic" else ("", "")
        try:
            if not authorization:
                raise Problem(401, self._what_to_send(), _CHALLENGE)
            if not self.authenticator.is_required or not (password or (scheme == "bearer" and given)):
                raise LoginRefused(self._what_to_send())
            token = given if scheme == "bearer" else None
            return await self.authenticator.check(
                Credentials(login=login, passcode=password, token=token, address=address)
            )
        except LoginRefused as refusal:
            self.audit.refused(login, address, self.endpoint, refusal.reason)
            raise Problem(401, refusal.detail, _CHALLENGE) from None

    def _what_to_send(self) -> str:
        token = "the token of this broker (settings http_token or http_token_file) as Authorization: Bearer TOKEN"
        user = "the name and password of a user as Authorization: Basic, or a JSON Web Token as Authorization: Bearer"
        known = [user] * self.authenticator.is_required + [token] * (self.token is not None)
        return f"send {'; or '.join(known)}"

    def renewed(self, caller: Caller) -> Caller | None:
        """What holds now for somebody who was admitted before; None if that is nobody any more, or somebody else."""
        grant = caller.grant
        if grant is _TOKEN_HOLDER:
            return caller
        if grant.expires_at_ns is not None and self.clock.now_ns() >= grant.expires_at_ns:
            return None
        found = self.authenticator.renewed(grant)
        if found is None or (found.roles, found.permissions) != (grant.roles, grant.permissions):
            return None
        return Caller(found)

    def note_acted(self, visitor: Visitor, what: str) -> None:
        self.audit.acted(visitor.user, visitor.address, self.endpoint, what)

    def note_denied(self, visitor: Visitor, what: str) -> None:
        self.audit.denied(visitor.user, visitor.address, self.endpoint, what)

    def _check_host(self, request: HTTPConnection) -> None:
        """Needed where no login protects: a browser sends the name that was rebound to us."""
        if not is_loopback(self.host):
            return
        name = host_in(request.headers.get("host", "")) or ""
        if name != self.host and not is_loopback(name):
            raise Problem(421, f"{name!r} is not what this broker is called here; use localhost or 127.0.0.1")


def _read_basic(given: str) -> tuple[str, str]:
    """Name and password; both empty if they cannot be read."""
    try:
        name, _, password = b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return name, password


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
