"""`stompbroker certificate`: what it makes, and what it leaves alone."""

from __future__ import annotations

import socket
import stat
import sys
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from stompbroker.access import load_users
from stompbroker.cli.certificate import certificate as make_certificate
from stompbroker.cli.outcome import CommandFailed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Program


def certificate_in(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_for_this_machine_and_every_host_that_is_named(program: Program) -> None:
    done = program.run("certificate", "--host", "broker.example", "--host", "192.0.2.7", "--days", "30")

    data = program.directory / "data"
    made = certificate_in(data / "certificate.pem")
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert (done.returncode, done.stderr) == (0, "")
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", socket.gethostname(), "broker.example"}
    assert set(map(str, names.get_values_for_type(x509.IPAddress))) == {"127.0.0.1", "::1", "192.0.2.7"}
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days == 30
    assert (mode_of(data), mode_of(data / "certificate.pem"), mode_of(data / "key.pem")) == (0o700, 0o644, 0o600)


def test_it_says_what_to_do_next(program: Program) -> None:
    said = program.run("certificate", "--data", "elsewhere").stdout

    assert "--listen stomp+tls://127.0.0.1:61612" in said
    assert "--set tls_certificate=elsewhere/certificate.pem --set tls_key=elsewhere/key.pem" in said
    assert "--url stomp+tls://localhost:61612 --ca elsewhere/certificate.pem" in said


def test_nothing_is_replaced_unless_that_is_said(program: Program) -> None:
    path = program.directory / "data" / "key.pem"
    path.parent.mkdir()
    path.write_text("mine")

    refused = program.run("certificate")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "stompbroker: data/key.pem exists already; --force replaces it.\n"
    assert path.read_text() == "mine"
    assert program.run("certificate", "--force").returncode == 0
    assert path.read_text() != "mine"
    assert mode_of(path) == 0o600


@pytest.mark.parametrize("name", ["müller.example", "a b", "h:61613", ""])
def test_what_is_no_host_is_refused(program: Program, name: str) -> None:
    done = program.run("certificate", "--host", name)

    assert done.returncode == 2
    assert "is no host name" in done.stderr
    assert not (program.directory / "data").exists()


def test_certificates_of_users_have_one_authority(program: Program) -> None:
    first = program.run("certificate", "--client", "billing")
    second = program.run("certificate", "--client", "a,b")

    data = program.directory / "data"
    authority = certificate_in(data / "client-ca.pem")
    made = certificate_in(data / "billing.pem")
    assert (first.returncode, second.returncode) == (0, 0)
    made.verify_directly_issued_by(authority)
    certificate_in(data / "a,b.pem").verify_directly_issued_by(authority)
    assert list(made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.CLIENT_AUTH
    ]
    assert {mode_of(data / name) for name in ("client-ca-key.pem", "billing-key.pem")} == {0o600}
    assert 'users add billing --data data --certificate "CN=billing" --no-password' in first.stdout
    assert "tls_client_ca=data/client-ca.pem" in first.stdout


def test_the_subject_is_printed_as_users_add_wants_it(program: Program) -> None:
    said = program.run("certificate", "--client", "billing").stdout
    subject = said.partition('--certificate "')[2].partition('"')[0]

    assert program.run("users", "add", "billing", "--certificate", subject, "--no-password").returncode == 0

    users = load_users(program.directory / "data" / "users.toml", is_needed=True)
    assert users.users["billing"].certificate == subject


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../x", "cannot be a user"),
        ("certificate", "is a file of another purpose"),
        ("key", "is a file of another purpose"),
        ("client-ca", "is a file of another purpose"),
        ("client-ca-key", "is a file of another purpose"),
    ],
)
def test_a_user_whose_files_would_be_others_is_refused(program: Program, name: str, words: str) -> None:
    done = program.run("certificate", "--client", name, "--force")

    assert done.returncode == 2
    assert words in done.stderr


def test_an_authority_without_its_key_is_not_replaced(program: Program) -> None:
    program.run("certificate", "--client", "billing")
    (program.directory / "data" / "client-ca-key.pem").unlink()

    done = program.run("certificate", "--client", "shop")

    assert done.returncode == 2
    assert "client-ca-key.pem cannot be read: No such file or directory." in done.stderr


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)

    with pytest.raises(CommandFailed, match=r"pip install 'stompbroker\[certificates\]'"):
        make_certificate()
