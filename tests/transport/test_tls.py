"""Certificates of the broker and of clients, and what goes wrong with TLS."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio
from cryptography.x509.oid import NameOID
from trio.testing import memory_stream_pair

from stompbroker.errors import OperatorError
from stompbroker.transport import ChunkSize, StreamTransport, Tls, Traffic
from stompbroker.transport.tls import MAX_UNSENT_BYTES, TlsTransport
from tests.support.carriers import both
from tests.support.certificates import Certificates

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


async def shake_hands(tls: Tls, context: ssl.SSLContext) -> tuple[trio.SSLStream[trio.abc.Stream], TlsTransport]:
    client, theirs = memory_stream_pair()
    ours = TlsTransport(StreamTransport(theirs, "memory"), tls.for_clients)
    stream: trio.SSLStream[trio.abc.Stream] = trio.SSLStream(client, context, server_hostname="localhost")
    await both(stream.do_handshake, ours.shake_hands)
    return stream, ours


@pytest.mark.parametrize(
    ("parts", "subject"),
    [
        (
            [(NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "A, B"), (NameOID.COMMON_NAME, "x")],
            "CN=x,O=A\\, B,C=DE",
        ),
        ([(NameOID.COMMON_NAME, ' #"+;<> ')], 'CN=\\ #\\"\\+\\;\\<\\>\\ '),
        ([(NameOID.COMMON_NAME, "#1")], "CN=\\#1"),
        ([(NameOID.USER_ID, "u"), (NameOID.DOMAIN_COMPONENT, "example")], "DC=example,UID=u"),
    ],
)
async def test_the_subject_of_a_clients_certificate_is_written_as_rfc_4514_says(
    tmp_path: Path, parts: list[tuple[object, str]], subject: str, autojump_clock: MockClock
) -> None:
    made = Certificates.made_in(tmp_path)
    made.issue("client", *parts)  # type: ignore[arg-type]

    _, ours = await shake_hands(Tls(made.files(client_ca=True)), made.for_client("client"))

    assert ours.certificate == subject


async def test_a_certificate_may_be_optional_or_required_and_must_be_of_our_authority(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    made, others = Certificates.made_in(tmp_path), tmp_path / "others"
    others.mkdir()
    stranger = Certificates.made_in(others)
    stranger.issue("client", (NameOID.COMMON_NAME, "x"))
    context = made.for_client()

    _, ours = await shake_hands(Tls(made.files(client_ca=True)), context)
    assert ours.certificate is None

    context.load_cert_chain(stranger.path("client.pem"), stranger.path("client-key.pem"))
    for tls, given in (
        (Tls(made.files(client_ca=True)), context),
        (Tls(made.files(client_ca=True, requires=True)), made.for_client()),
    ):
        client, theirs = memory_stream_pair()
        ours = TlsTransport(StreamTransport(theirs, "memory"), tls.for_clients)
        stream = trio.SSLStream(client, given, server_hostname="localhost")

        with pytest.raises(ExceptionGroup) as refused:
            await both(stream.do_handshake, ours.shake_hands)
        assert refused.group_contains(trio.BrokenResourceError, match="no TLS: ")


@pytest.mark.parametrize("data", [b"CONNECT\naccept-version:1.2\n\n\0", b"GET / HTTP/1.1\r\n\r\n", bytes(100)])
async def test_who_speaks_no_tls_is_told_so_in_tls(certificates: Certificates, data: bytes) -> None:
    client, theirs = memory_stream_pair()
    ours = TlsTransport(StreamTransport(theirs, "memory"), Tls(certificates.files()).for_clients)
    await client.send_all(data)

    async def leave() -> None:
        while await client.receive_some():
            pass
        await client.aclose()

    with pytest.raises(ExceptionGroup) as refused:
        await both(leave, ours.shake_hands)

    assert refused.group_contains(trio.BrokenResourceError, match="no TLS: ")


def test_tls_is_1_2_at_least(certificates: Certificates) -> None:
    assert Tls(certificates.files()).for_clients.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"certificate": "missing.pem"}, r"missing.pem \(tls_certificate\) cannot be read: No such file"),
        ({"key": "missing.pem"}, r"missing.pem \(tls_key\) cannot be read"),
        ({"certificate": "garbage.pem"}, "cannot be used: .* Both must be PEM and belong together"),
        ({"key": "other-key.pem"}, "key values mismatch"),
        ({"key": "locked-key.pem"}, "the key must not have a password"),
        ({"client_ca": "garbage.pem"}, r"\(tls_client_ca\) cannot be used: .* They must be PEM"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_a_sentence(
    tmp_path: Path, change: dict[str, str], complaint: str
) -> None:
    made = Certificates.made_in(tmp_path)
    made.issue("other", (NameOID.COMMON_NAME, "other"))
    (tmp_path / "garbage.pem").write_text("nothing of the kind\n")
    (tmp_path / "locked-key.pem").write_text(LOCKED_KEY)
    files = replace(made.files(), **{name: str(tmp_path / file) for name, file in change.items()})  # type: ignore[arg-type]

    with pytest.raises(OperatorError, match=complaint):
        Tls(files)


#: Encrypted with the password "secret".
LOCKED_KEY = """\
-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,00000000000000000000000000000000

AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
-----END EC PRIVATE KEY-----
"""


async def test_new_certificates_are_for_new_connections(tmp_path: Path, autojump_clock: MockClock) -> None:
    made = Certificates.made_in(tmp_path)
    tls = Tls(made.files())
    old, ours = await shake_hands(tls, made.for_client())
    renewed = Certificates.made_in(tmp_path)

    tls.reload()
    new, _ = await shake_hands(tls, renewed.for_client())

    assert old.getpeercert(binary_form=True) != new.getpeercert(binary_form=True)
    await ours.send_all(b"still here")
    assert await old.receive_some() == b"still here"


async def test_a_reload_that_fails_changes_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    made = Certificates.made_in(tmp_path)
    tls = Tls(made.files())
    await trio.Path(made.path("server-key.pem")).write_text("half a file")

    with pytest.raises(OperatorError):
        tls.reload()

    await shake_hands(tls, made.for_client())


async def test_a_client_that_closes_without_goodbye_has_left(certificates: Certificates) -> None:
    stream, ours = await shake_hands(Tls(certificates.files()), certificates.for_client())
    await stream.send_all(b"last")
    await stream.transport_stream.aclose()

    assert await ours.receive_some(100) == b"last"
    assert await ours.receive_some(100) == b""
    assert ours.has_left()


async def test_what_is_altered_on_the_way_breaks_the_connection(certificates: Certificates) -> None:
    stream, ours = await shake_hands(Tls(certificates.files()), certificates.for_client())
    await stream.transport_stream.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))

    with pytest.raises(trio.BrokenResourceError, match="wrong TLS"):
        await ours.receive_some(100)


def test_the_bound_on_what_tls_may_say_by_itself_allows_a_piece_on_its_way() -> None:
    assert MAX_UNSENT_BYTES > 64 * 1024


async def test_a_busy_connection_is_read_in_chunks_as_large_as_without_tls(certificates: Certificates) -> None:
    """Small chunks make small runs of messages, and each run has its price."""
    stream, ours = await shake_hands(Tls(certificates.files()), certificates.for_client())
    # Records that end nowhere near where a read does.
    for _ in range(8 * 1024 * 1024 // 60_000 + 1):
        await stream.send_all(bytes(60_000))
    chunk_size, received_bytes, reads = ChunkSize(Traffic()), 0, 0

    while received_bytes < 8 * 1024 * 1024:
        chunk = await ours.receive_some(chunk_size.size_bytes)
        chunk_size.note(len(chunk))
        received_bytes += len(chunk)
        reads += 1

    assert reads <= 8 * 1024 * 1024 / (256 * 1024) * 1.5
