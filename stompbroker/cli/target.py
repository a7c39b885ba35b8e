"""Which broker a command talks STOMP to, and as whom.

Law: reads options, settings and two environment variables, and opens nothing. A password is never part of a URL, which
ends up in the history of the shell and in the list of processes. Imports only Typer at once.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stompbroker.cli.options import require_utf8
from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.terminal import say

if TYPE_CHECKING:
    from stompbroker.client import TlsOptions
    from stompbroker.transport import Endpoint

HostOption = Annotated[
    str | None, typer.Option("--host", help="Host of the broker.", show_default="from the settings, 127.0.0.1")
]
PortOption = Annotated[
    int | None,
    typer.Option("--port", "-p", min=1, max=65535, help="Port of the broker.", show_default="from the settings, 61613"),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The broker, instead of host and port: stomp://NAME@HOST, stomp+tls://NAME@HOST or unix:///PATH.",
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca", metavar="FILE", help="Whom to trust with TLS: an authority, or a self-signed certificate, in PEM."
    ),
]
CertificateOption = Annotated[
    Path | None, typer.Option("--certificate", metavar="FILE", help="Certificate to log in with, in PEM.")
]
KeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Its key, if that is in a file of its own.")
]

PASSWORD_VARIABLE = "STOMPBROKER_PASSWORD"
TOKEN_VARIABLE = "STOMPBROKER_TOKEN"
_FORMS = (
    "The command line speaks STOMP directly: stomp://[NAME@]HOST[:PORT] (port 61613), "
    "stomp+tls://[NAME@]HOST[:PORT] (port 61612) or unix://[NAME@]/PATH."
)
#: Addresses that only a listener can use → where this machine reaches such a listener.
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}
#: What commands speak, best first.
_SPOKEN = ("stomp", "stomp+tls", "unix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    endpoint: "Endpoint"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: "TlsOptions | None" = None


def find_target(
    host: str | None,
    port: int | None,
    url: str | None,
    *,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Target:
    """The broker that the options name. What is not given is what a broker started here would use."""
    from stompbroker.client import TlsOptions

    user = None
    if url is None:
        endpoint = _endpoint_of(host, port)
    elif host is None and port is None:
        endpoint, user = read_url(url)
    else:
        raise typer.BadParameter("names host and port; leave --host and --port out", param_hint="--url")
    if not endpoint.scheme.is_encrypted and (ca or certificate or key):
        raise typer.BadParameter(
            "are for TLS; use them with --url stomp+tls://…", param_hint="--ca, --certificate and --key"
        )
    if key is not None and certificate is None:
        raise typer.BadParameter("belongs to a certificate; name that with --certificate", param_hint="--key")
    tls = TlsOptions(ca=ca, certificate=certificate, key=key) if endpoint.scheme.is_encrypted else None
    target = Target(endpoint=endpoint, user=user, token=_secret(TOKEN_VARIABLE), tls=tls)
    if user is not None and target.token is None and certificate is None:
        target = replace(target, password=_secret(PASSWORD_VARIABLE) or _ask_for_password(target))
    if (target.password or target.token) and not endpoint.scheme.is_encrypted and not endpoint.is_loopback:
        say("Anybody on the way can read what you log in with; stomp+tls:// would encrypt it.", err=True)
    return target


def read_url(url: str) -> tuple["Endpoint", str | None]:
    """The endpoint, and the user if one is named. Raises BadParameter, without a password that may be in the URL."""
    from stompbroker.client import Address, InvalidAddress

    require_utf8(url, "--url")
    try:
        address = Address.parse(url)
    except InvalidAddress as error:
        if error.option != "passcode":
            raise typer.BadParameter(f'"{url}" is not the URL of a broker. {_FORMS}', param_hint="--url") from None
        raise typer.BadParameter(
            "must not have a password: other users of this machine see it in the list of processes, and the shell "
            f"keeps it. Write NAME@ only; the password comes from {PASSWORD_VARIABLE}, or is asked for on the terminal",
            param_hint="--url",
        ) from None
    scheme = address.endpoint.scheme
    if scheme.is_websocket:
        raise typer.BadParameter(f"{scheme}:// is for browsers and other clients. {_FORMS}", param_hint="--url")
    return address.endpoint, address.user


def spoken(endpoints: "Iterable[Endpoint]") -> "Endpoint | None":
    """The endpoint that a command on this machine connects to: one without TLS if there is one."""
    possible = [each for each in endpoints if each.scheme in _SPOKEN and not each.restrictions.proxies]
    best = min(possible, key=lambda each: _SPOKEN.index(each.scheme), default=None)
    return None if best is None else replace(best, host=_REACHED_AT.get(best.host, best.host))


def _endpoint_of(host: str | None, port: int | None) -> "Endpoint":
    from stompbroker.transport import Endpoint, Scheme

    if host is not None and port is not None:
        return Endpoint(Scheme.STOMP, host, port)
    from stompbroker.config import load

    settings = load()
    if host is None and port is None:
        endpoint = spoken(settings.endpoints)
        if endpoint is None:
            raise CommandFailed(f"The settings name no endpoint that commands can use; name one with --url. {_FORMS}")
    else:
        endpoint = Endpoint(Scheme.STOMP, host or _REACHED_AT.get(settings.host, settings.host), port or settings.port)
    if endpoint.port == 0 and endpoint.scheme is not Scheme.UNIX:
        raise typer.BadParameter(
            "the settings let the broker take any free port; name the one it has taken", param_hint="--port"
        )
    return endpoint


def _secret(variable: str) -> str | None:
    """What an environment variable holds, if it can be sent. CONNECT knows no escapes."""
    text = os.environ.get(variable) or None
    if text is not None and not text.isprintable():
        raise CommandFailed(f"{variable} has control characters or is not UTF-8; no client can send that.")
    return text


def _ask_for_password(target: Target) -> str:
    if not sys.stdin.isatty():
        raise CommandFailed(
            f"There is no password for {target.user}. Set {PASSWORD_VARIABLE}, or run this on a terminal, where it is "
            "asked for."
        )
    from getpass import getpass

    return getpass(f"Password of {target.user} at {target.endpoint}: ")
