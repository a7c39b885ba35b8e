"""Where a broker is and as whom to go there, from one URL; whom to trust, and what to show of oneself.

Law: opens and resolves nothing. A password is never part of a URL, which ends up in logs and lists of processes.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final
from urllib.parse import unquote

from stompbroker.client.errors import InvalidAddress
from stompbroker.errors import OperatorError
from stompbroker.transport import Endpoint

if TYPE_CHECKING:
    from pathlib import Path

#: Where a URL names no port. 61612 is what ActiveMQ has for TLS.
DEFAULT_PORTS: Final = {"stomp": 61613, "stomp+tls": 61612, "ws": 80, "wss": 443}
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:([^/?#@]*)@)?(.*)", re.ASCII)
_FORMS: Final = (
    "stomp://[NAME@]HOST[:PORT], stomp+tls://[NAME@]HOST[:PORT], ws://HOST[:PORT]/PATH, wss://HOST[:PORT]/PATH or "
    "unix://[NAME@]/PATH"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Whom a client trusts, and what it shows of itself."""

    #: In PEM: an authority, or a self-signed certificate. None: the authorities of this machine.
    ca: Path | None = None
    certificate: Path | None = None
    #: None: it is in the file of the certificate.
    key: Path | None = None

    def make_context(self) -> ssl.SSLContext:
        """The broker's certificate is always verified; there is no way around it. Raises InvalidAddress."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidAddress(
                f"{self.ca} (ca) cannot be used: {_reason(error)}. It must be PEM.", option="ca"
            ) from error
        # Whoever is named is trusted, even if somebody else has signed that certificate.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.certificate is not None:
            try:
                # A key that is encrypted would make OpenSSL ask for a password on the terminal.
                context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
            except (OSError, ssl.SSLError, ValueError) as error:
                raise InvalidAddress(
                    f"{self.certificate} (certificate) and its key cannot be used: {_reason(error)}. Both must be PEM "
                    "and belong together, and the key must not have a password.",
                    option="certificate",
                ) from error
        return context


@final
@dataclass(frozen=True, slots=True)
class Address:
    endpoint: Endpoint
    user: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises InvalidAddress, which never repeats what may be a password."""
        authority = url.partition("://")[2] or url
        if not authority.startswith("/") and ":" in authority.rpartition("@")[0]:
            raise InvalidAddress(
                "The URL of a broker must not have a password; give it apart (passcode).", option="passcode"
            )
        found = _URL.fullmatch(url)
        scheme, user, rest = (found[1].lower(), found[2], found[3]) if found else ("", None, "")
        if scheme in DEFAULT_PORTS:
            host, slash, path = rest.partition("/")
            if ":" not in host.rpartition("]")[2]:
                rest = f"{host}:{DEFAULT_PORTS[scheme]}{slash}{path}"
        user = None if user is None else unquote(user)
        is_possible = "?" not in rest and (user is None or (user != "" and user.isprintable()))
        try:
            if is_possible and found is not None:
                return cls(Endpoint.parse(f"{scheme}://{rest}"), user)
        except OperatorError:
            pass
        raise InvalidAddress(f'"{url}" is not the URL of a broker. Possible are {_FORMS}.')


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
