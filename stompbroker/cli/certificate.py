"""`stompbroker certificate`: certificates to try TLS out with.

Law: the only file of the command line that uses `cryptography`, and only inside the command: it is an extra. Keys are
written for their owner alone, and never over others without --force.
"""

import ipaddress
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from stompbroker.cli.options import ConfigOption, DataOption, data_directory, require_utf8
from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.terminal import say

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName, Name

CERTIFICATE_FILE, KEY_FILE = "certificate.pem", "key.pem"
CLIENT_CA_FILE, CLIENT_CA_KEY_FILE = "client-ca.pem", "client-ca-key.pem"
#: A client whose clock is late must not refuse what was made a moment ago.
_ALREADY_VALID = timedelta(minutes=5)
_CA_DAYS = 3650


class _Pair(NamedTuple):
    certificate: "Certificate"
    key: "EllipticCurvePrivateKey"


def certificate(
    data: DataOption = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name or address that clients use; can be repeated."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=_CA_DAYS, help="How long it is valid.")] = 365,
    client: Annotated[
        str | None, typer.Option(metavar="USER", help="Make a certificate that this user logs in with, instead.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    config: ConfigOption = None,
) -> None:
    """Make a self-signed certificate for the broker, to try TLS out.

    It is for localhost, 127.0.0.1, ::1, this machine's name, and every --host. It lies in the data directory, and so
    does its key. Nobody but those who are told to (--ca) will trust it: for a service, get one from an authority.

    With --client, make a certificate for a user, signed by an authority of your own, which is made too.

    Examples:

    $ stompbroker certificate
    $ stompbroker certificate --data /var/lib/stompbroker --host broker.example --days 90
    $ stompbroker certificate --client billing
    """
    _require_cryptography()
    directory = data_directory(data, config)
    if client is None:
        _make_for_broker(directory, host or [], days, force=force)
    elif host:
        raise typer.BadParameter("is for the broker's certificate; leave it out with --client", param_hint="--host")
    else:
        _make_for_client(directory, client, days, force=force)


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise CommandFailed(
            "Certificates are made with the library cryptography: pip install 'stompbroker[certificates]'"
        ) from None


def _make_for_broker(directory: Path, hosts: list[str], days: int, *, force: bool) -> None:
    from cryptography import x509

    names = {_name_of(text): None for text in ("localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts)}
    path, key_path = directory / CERTIFICATE_FILE, directory / KEY_FILE
    _refuse_existing(path, key_path, force=force)
    made = _make("stompbroker", days, usage="SERVER_AUTH", names=x509.SubjectAlternativeName(names))
    _write_pair(path, key_path, made)
    say(
        f"{path} is for {', '.join(str(name.value) for name in names)}, and valid for {days} days. Its key is "
        f"{key_path}.",
        "Serve with it; in a settings file, write listen, tls_certificate and tls_key:",
        f"  stompbroker serve --data {directory} --listen stomp+tls://127.0.0.1:61612 "
        f"--set tls_certificate={path} --set tls_key={key_path}",
        "Clients must be told to trust it:",
        f"  stompbroker subscribe --url stomp+tls://localhost:61612 --ca {path} /topic/greetings",
        "A broker that runs already reads it on SIGHUP.",
    )


def _make_for_client(directory: Path, user: str, days: int, *, force: bool) -> None:
    from stompbroker.access import NAME_RULE, is_name

    path, key_path = directory / f"{user}.pem", directory / f"{user}-key.pem"
    if not is_name(user):
        raise CommandFailed(f'"{user}" cannot be a user: {NAME_RULE}.')
    if user.endswith("-key") or path.name in (CERTIFICATE_FILE, KEY_FILE, CLIENT_CA_FILE):
        raise CommandFailed(f"{path.name} is a file of another purpose; choose another name.")
    require_utf8(user, "--client")
    _refuse_existing(path, key_path, force=force)
    made = _make(user, days, usage="CLIENT_AUTH", issuer=_own_authority(directory))
    _write_pair(path, key_path, made)
    subject = made.certificate.subject.rfc4514_string()
    ca = directory / CLIENT_CA_FILE
    say(
        f"{path} is for {subject}, and valid for {days} days. Its key is {key_path}; give both to {user}.",
        "Let the user log in with it:",
        f'  stompbroker users add {user} --data {directory} --certificate "{subject}" --no-password --read ">"',
        f"  stompbroker serve --data {directory} --set tls_client_ca={ca} …",
        f"  stompbroker subscribe --url stomp+tls://localhost:61612 --ca {directory / CERTIFICATE_FILE} "
        f"--certificate {path} --key {key_path} /topic/greetings",
        f"Whoever has {directory / CLIENT_CA_KEY_FILE} can make certificates for every user.",
    )


def _name_of(text: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not text.isascii() or not text.isprintable() or not text or set(text) & set(" /:@"):
        raise typer.BadParameter(f'"{text}" is no host name; write it in ASCII, without a port', param_hint="--host")
    return x509.DNSName(text)


def _own_authority(directory: Path) -> _Pair:
    """The one that has signed before, or a new one."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path, key_path = directory / CLIENT_CA_FILE, directory / CLIENT_CA_KEY_FILE
    if not path.exists() and not key_path.exists():
        made = _make("stompbroker clients", _CA_DAYS, usage=None)
        _write_pair(path, key_path, made)
        return made
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        key = load_pem_private_key(key_path.read_bytes(), password=None)
    except OSError as error:
        raise CommandFailed(f"{error.filename} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise CommandFailed(f"{path} and {key_path} cannot be used: {error}. Remove both to begin anew.") from error
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != found.public_key():
        raise CommandFailed(f"{path} and {key_path} do not belong together. Remove both to begin anew.")
    return _Pair(found, key)


def _make(common_name: str, days: int, *, usage: str | None, names: Any = None, issuer: _Pair | None = None) -> _Pair:
    """A certificate for `usage`, or of an authority if that is None; without an issuer it signs itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject: Name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    signer = issuer.key if issuer is not None else key
    now, is_ca = datetime.now(UTC), usage is None
    # What is not needed is said, too: newer versions of OpenSSL check that it is.
    uses = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    uses |= {"encipher_only": False, "decipher_only": False, "crl_sign": is_ca}
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _ALREADY_VALID)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=not is_ca, key_cert_sign=is_ca, **uses), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if usage is not None:
        purpose = x509.ExtendedKeyUsage([getattr(ExtendedKeyUsageOID, usage)])
        builder = builder.add_extension(purpose, critical=False)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return _Pair(builder.sign(signer, hashes.SHA256()), key)


def _refuse_existing(*paths: Path, force: bool) -> None:
    existing = [str(path) for path in paths if path.exists()]
    if existing and not force:
        verb, them = ("exists", "it") if len(existing) == 1 else ("exist", "them")
        raise CommandFailed(f"{' and '.join(existing)} {verb} already; --force replaces {them}.")


def _write_pair(path: Path, key_path: Path, made: _Pair) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from stompbroker.file_replacing import replace_file

    key = made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(key_path, key, mode=0o600)
        replace_file(path, made.certificate.public_bytes(Encoding.PEM), mode=0o644)
    except OSError as error:
        raise CommandFailed(f"{path} and {key_path} cannot be written: {error.strerror}.") from error
