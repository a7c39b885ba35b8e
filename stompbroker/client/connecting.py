"""How a client reaches its broker: URLs, login, heart-beats, and how long it keeps trying.

Law: says what is to be done; opens nothing before the block of the client begins.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.client.address import Address, TlsOptions
from stompbroker.client.back_off import BackOff
from stompbroker.client.client import Client
from stompbroker.client.core import Core
from stompbroker.client.dialogue import VERSIONS
from stompbroker.client.errors import InvalidAddress
from stompbroker.client.link import Link, open_link
from stompbroker.client.numbering import Numbering
from stompbroker.client.requests import Requests
from stompbroker.client.stream import open_stream

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from typing import TypeAlias

    import trio

    from stompbroker.client.dialogue import Headers
    from stompbroker.stomp import Version
    from stompbroker.transport import Endpoint

    #: A secret, or what is asked for a fresh one before each attempt to connect.
    Secret: TypeAlias = str | Callable[[], Awaitable[str]]
    StreamOpener: TypeAlias = Callable[[Endpoint, ssl.SSLContext | None], Awaitable[trio.abc.Stream]]

#: Messages and bytes that may be unconfirmed. Enough to keep a connection busy over 10 ms of latency at 100,000 a
#: second, and for one large body.
MAX_UNCONFIRMED: Final = 1_000
MAX_UNCONFIRMED_BYTES: Final = 16 * 1024**2
#: Seconds between heart-beats that are asked for in both directions. A broken connection is noticed
#: after two and a half of them.
HEART_BEAT_S: Final = 10.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Connector:
    address: Address
    context: ssl.SSLContext | None
    virtual_host: str | None
    login: str | None
    passcode: Secret | None
    token: Secret | None
    headers: Headers
    heart_beat_s: float
    versions: Sequence[Version]
    open_with: StreamOpener

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Link]:
        """Raises NoConnection."""
        endpoint = self.address.endpoint
        login = {"login": self.address.user or self.login, "passcode": await _fresh(self.passcode)}
        token = await _fresh(self.token)
        login["authorization"] = None if token is None else f"Bearer {token}"
        known = [(name, value) for name, value in login.items() if value is not None]
        async with open_link(
            endpoint,
            self.context if endpoint.scheme.is_encrypted else None,
            host=self.virtual_host or endpoint.host or "localhost",
            heart_beat_s=self.heart_beat_s,
            versions=self.versions,
            headers=[*known, *self.headers],
            open_with=self.open_with,
        ) as link:
            yield link


async def _fresh(secret: Secret | None) -> str | None:
    return secret if secret is None or isinstance(secret, str) else await secret()


def connect(
    url: str | Address,
    *further_urls: str | Address,
    login: str | None = None,
    passcode: Secret | None = None,
    token: Secret | None = None,
    client_id: str | None = None,
    tls: TlsOptions | None = None,
    virtual_host: str | None = None,
    version: Version | None = None,
    heart_beat: float = HEART_BEAT_S,
    headers: Mapping[str, str] | None = None,
    give_up_after: float | None = None,
    back_off: BackOff | None = None,
    max_unconfirmed: int = MAX_UNCONFIRMED,
    max_unconfirmed_bytes: int = MAX_UNCONFIRMED_BYTES,
    numbers: bool | None = None,
    open_with: StreamOpener = open_stream,
) -> Client:
    """A client, to be used as `async with connect(…) as client`. Raises InvalidAddress.

    The URLs are tried in turn until one answers, and again whenever the connection is lost. `give_up_after`: seconds
    without any connection until everything fails; 0 tries each URL once, and never connects again. `token` is sent as
    `authorization:Bearer`. `heart_beat` is in seconds, 0 for none. `headers`: further ones of CONNECT. `virtual_host`:
    RabbitMQ needs it, often "/". `numbers`: whether messages are numbered, so that a repeated one is not published
    twice; None: if the broker calls itself stompbroker. `open_with` opens the stream to an endpoint; another one may go
    through a tunnel.
    """
    addresses = [Address.parse(each) if isinstance(each, str) else each for each in (url, *further_urls)]
    is_encrypted = any(address.endpoint.scheme.is_encrypted for address in addresses)
    if tls is not None and not is_encrypted:
        raise InvalidAddress("No URL is encrypted, but there are options for TLS; use stomp+tls:// or wss://.")
    context = (tls or TlsOptions()).make_context() if is_encrypted else None
    more: Headers = [] if client_id is None else [("client-id", client_id)]
    openers = [
        _Connector(
            address=address,
            context=context,
            virtual_host=virtual_host,
            login=login,
            passcode=passcode,
            token=token,
            headers=[*more, *(headers or {}).items()],
            heart_beat_s=heart_beat,
            versions=VERSIONS if version is None else (version,),
            open_with=open_with,
        ).open
        for address in addresses
    ]
    # Who never connects again repeats nothing, and should leave no producer behind in the broker.
    numbering = Numbering(numbers, has_own=give_up_after != 0)
    requests = Requests(max_kept=max_unconfirmed, max_kept_bytes=max_unconfirmed_bytes, numbering=numbering)
    core = Core(openers, requests, back_off=back_off or BackOff(), give_up_after_s=give_up_after)
    return Client(core, has_client_id=client_id is not None)
