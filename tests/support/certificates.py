"""Certificates for tests: an authority, a server on localhost, and clients."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stompbroker.transport import TlsFiles

if TYPE_CHECKING:
    from pathlib import Path

_HOSTS = ("localhost", "127.0.0.1", "::1")


def _named(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


@final
@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in one directory: `ca.pem`, and for each NAME `NAME.pem` and `NAME-key.pem`."""

    directory: Path
    _key: ec.EllipticCurvePrivateKey
    _name: x509.Name

    @classmethod
    def made_in(cls, directory: Path) -> Self:
        """With a certificate for the server, `server`."""
        key, name = ec.generate_private_key(ec.SECP256R1()), _named((NameOID.COMMON_NAME, "test authority"))
        made = cls(directory, key, name)
        made._write("ca", name, key.public_key(), is_authority=True)
        made.issue("server", (NameOID.COMMON_NAME, "localhost"))
        return made

    def issue(self, file: str, *subject: tuple[x509.ObjectIdentifier, str]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self._write(file, _named(*subject), key.public_key())
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self.directory / f"{file}-key.pem").write_bytes(secret)

    def _write(self, file: str, name: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool = False) -> None:
        # Not around now: tests set the clock of the broker, but not that of OpenSSL.
        begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        hosts: list[x509.GeneralName] = [
            x509.DNSName(host) if host == "localhost" else x509.IPAddress(ipaddress.ip_address(host)) for host in _HOSTS
        ]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + datetime.timedelta(days=36_500))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        (self.directory / f"{file}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def path(self, file: str) -> str:
        return str(self.directory / file)

    def files(self, *, client_ca: bool = False, requires: bool = False) -> TlsFiles:
        """What the broker is given."""
        return TlsFiles(
            certificate=self.path("server.pem"),
            key=self.path("server-key.pem"),
            client_ca=self.path("ca.pem") if client_ca else "",
            requires_client_certificate=requires,
        )

    def settings(self) -> dict[str, Any]:
        return {"tls_certificate": self.path("server.pem"), "tls_key": self.path("server-key.pem")}

    def for_client(self, name: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        if name is not None:
            context.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}-key.pem"))
        return context
