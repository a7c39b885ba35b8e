"""Commands and their connections: every failure is a sentence that says what to do. Against scripted peers."""

from __future__ import annotations

import os
import socket
import ssl
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from stompbroker.cli.certificate import certificate as make_certificate
from stompbroker.cli.connection import connected, say_goodbye
from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.target import Target
from stompbroker.client import TlsOptions
from stompbroker.transport import Endpoint, Scheme
from tests.support.scripted_peer import CONNECTED, ClientLeft, Peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import tzinfo
    from pathlib import Path
    from typing import Self

    from trio.testing import MockClock


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a certificate for localhost, and one for the user billing."""
    directory = tmp_path_factory.mktemp("made")
    make_certificate(data=directory)
    make_certificate(data=directory, client="billing")
    return directory


def plain(port: int, host: str = "127.0.0.1") -> Target:
    return Target(endpoint=Endpoint(Scheme.STOMP, host, port))


@asynccontextmanager
async def failing_with(words: str) -> AsyncIterator[None]:
    """The block fails with this sentence; errors pass through nurseries, hence the group."""
    with pytest.RaisesGroup(pytest.RaisesExc(CommandFailed, match=words), allow_unwrapped=True, flatten_subgroups=True):
        yield


class LongAgo(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) - timedelta(days=40)


def server_context(directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "certificate.pem", directory / "key.pem")
    return context


def trusting(directory: Path) -> TlsOptions:
    return TlsOptions(ca=directory / "certificate.pem")


def secured(peer: Peer, *, host: str = "localhost", tls: TlsOptions) -> Target:
    endpoint = Endpoint(Scheme.STOMP_TLS, host, peer.port)
    return Target(endpoint=endpoint, user="alice", password="correct horse", tls=tls)


@asynccontextmanager
async def greeting(peer: Peer, context: ssl.SSLContext) -> AsyncIterator[list[bytes]]:
    """The peer answers one client over TLS, if that gets so far; yields what the client said."""
    said: list[bytes] = []

    async def answer() -> None:
        with suppress(trio.BrokenResourceError, ClientLeft):
            said.append(await peer.greet(context=context))
            await peer.part()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        yield said


@asynccontextmanager
async def failing_handshake(peer: Peer, context: ssl.SSLContext) -> AsyncIterator[None]:
    """The peer has a handshake that fails, and says why; trio's TLS keeps that to itself."""

    def fail(plain: socket.socket) -> None:
        plain.setblocking(True)
        server = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        with pytest.raises(ssl.SSLError):
            server.do_handshake()
        with socket.socket(fileno=server.detach()) as rest:
            # What is not read when a socket is closed would overtake the reason.
            rest.shutdown(socket.SHUT_WR)
            while rest.recv(4096):
                pass

    async def answer() -> None:
        await peer.accept()
        plain = socket.socket(fileno=os.dup(peer.stream.socket.fileno()))
        await peer.stream.aclose()
        await trio.to_thread.run_sync(fail, plain)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        yield


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_the_certificate_of_the_command_is_trusted_if_it_is_named(peer: Peer, made: Path, host: str) -> None:
    async with greeting(peer, server_context(made)) as said:
        async with connected(secured(peer, host=host, tls=trusting(made))):
            pass

    headers = said[0].decode().split("\n")
    assert {f"host:{host}", "login:alice", "passcode:correct horse"} <= set(headers)


async def test_nobody_trusts_it_otherwise(peer: Peer, made: Path) -> None:
    async with greeting(peer, server_context(made)) as said:
        async with failing_with(rf"localhost:{peer.port} cannot be verified: self.signed certificate.* with --ca FILE"):
            async with connected(secured(peer, tls=TlsOptions())):
                pytest.fail("not connected")

    assert said == [], "no password before the certificate is verified"


async def test_a_certificate_for_another_name_is_refused(made: Path) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.2")
    peer = Peer(listener)
    words = r'is not for 127\.0\.0\.2\. Use the name .*"stompbroker certificate --host 127\.0\.0\.2"'

    async with listener, greeting(peer, server_context(made)) as said:
        async with failing_with(words):
            async with connected(secured(peer, host="127.0.0.2", tls=trusting(made))):
                pytest.fail("not connected")

    assert said == []
    await peer.aclose()


async def test_a_certificate_that_has_expired_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: Peer
) -> None:
    monkeypatch.setattr(sys.modules["stompbroker.cli.certificate"], "datetime", LongAgo)
    make_certificate(data=tmp_path, days=30)

    async with greeting(peer, server_context(tmp_path)):
        async with failing_with("cannot be used: certificate has expired. The broker needs a new one"):
            async with connected(secured(peer, tls=trusting(tmp_path))):
                pytest.fail("not connected")


async def test_a_client_shows_its_certificate(peer: Peer, made: Path) -> None:
    context = server_context(made)
    context.load_verify_locations(made / "client-ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    files = {"certificate": made / "billing.pem", "key": made / "billing-key.pem"}

    async with greeting(peer, context) as said:
        async with connected(secured(peer, tls=replace(trusting(made), **files))):
            pass

    assert len(said) == 1
    assert peer.certificate() == ((("commonName", "billing"),),)


async def test_a_broker_that_wants_a_certificate_says_so(peer: Peer, made: Path) -> None:
    context = server_context(made)
    context.load_verify_locations(made / "client-ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    async with failing_handshake(peer, context):
        async with failing_with("was lost: .*certificate required"):
            async with connected(secured(peer, tls=trusting(made))):
                pytest.fail("not connected")


async def test_tls_to_a_port_without_tls_is_named(peer: Peer, made: Path) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def answer() -> None:
            await peer.accept()
            await peer.stream.receive_some()
            await peer.say(b"ERROR\nmessage:no\n\n\0")

        async with failing_with(rf"does not speak TLS \(.+\); without TLS it is stomp://localhost:{peer.port}$"):
            async with connected(secured(peer, tls=trusting(made))):
                pytest.fail("not connected")


async def test_no_tls_to_a_port_with_tls_is_guessed(peer: Peer, made: Path) -> None:
    # OpenSSL takes CONNECT for the beginning of HTTP, and says nothing.
    async with failing_handshake(peer, server_context(made)):
        async with failing_with(r"closed the connection without an answer; does it expect TLS \(stomp\+tls://\)\?$"):
            async with connected(plain(peer.port)):
                pytest.fail("not connected")


async def test_no_tls_to_a_port_with_tls_is_known_from_its_alert(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet, b"\x15\x03\x03\x00\x02\x02\x0a")
        async with failing_with(rf"expects TLS; use --url stomp\+tls://127\.0\.0\.1:{peer.port}$"):
            async with connected(plain(peer.port)):
                pytest.fail("not connected")


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ({"ca": "none.pem"}, r"none\.pem \(--ca\) cannot be used: No such file"),
        ({"ca": "key.pem"}, r"key\.pem \(--ca\) cannot be used: .*It must be PEM"),
        ({"certificate": "billing.pem"}, r"billing\.pem \(--certificate\) and its key cannot be used: "),
        ({"certificate": "billing.pem", "key": "key.pem"}, "cannot be used: key values mismatch. Both must be PEM"),
    ],
)
async def test_files_that_cannot_be_used_are_named(made: Path, peer: Peer, tls: dict[str, str], words: str) -> None:
    async with failing_with(words):
        async with connected(secured(peer, tls=TlsOptions(**{name: made / file for name, file in tls.items()}))):
            pytest.fail("not connected")


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    target = Target(endpoint=Endpoint(Scheme.UNIX, path=str(path)))
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as listening:
        await listening.bind(str(path))
        listening.listen()

        async def answer() -> None:
            accepted, _ = await listening.accept()
            async with trio.SocketStream(accepted) as stream:
                assert b"host:localhost\n" in await stream.receive_some()
                await stream.send_all(CONNECTED)
                assert b"DISCONNECT\n" in await stream.receive_some()
                await stream.send_all(b"RECEIPT\nreceipt-id:disconnect\n\n\0")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            async with connected(target):
                pass

    async with failing_with(rf"No broker listens on {path}x\. "):
        async with connected(replace(target, endpoint=Endpoint(Scheme.UNIX, path=f"{path}x"))):
            pytest.fail("not connected")


# Without TLS


async def test_an_error_frame_is_shown_with_its_details(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with failing_with(r"The broker refused: no such topic\n  use another$"):
            async with connected(plain(peer.port)) as client:
                await peer.say(b"ERROR\nmessage:no such topic\n\nuse another\n\0")
                await client.wait_ended()


async def test_the_last_words_of_the_broker_are_heard_although_it_no_longer_listens(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with failing_with("The broker refused: go away"):
            async with connected(plain(peer.port)) as client:
                await peer.say(b"ERROR\nmessage:go away\n\n\0")
                await peer.stream.aclose()
                await client.publish("a", b"x")


async def test_an_error_instead_of_connected_is_shown(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet, b"ERROR\nmessage:too many connections\n\n\0")
        async with failing_with("The broker refused: too many connections$"):
            async with connected(plain(peer.port)):
                pytest.fail("not connected")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"MESSAGE\n\n\0"])
async def test_somebody_who_does_not_speak_stomp_is_noticed(peer: Peer, answer: bytes) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet, answer)
        async with failing_with("does not speak STOMP"):
            async with connected(plain(peer.port)):
                pytest.fail("not connected")


async def test_a_closed_connection_is_noticed(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with failing_with("closed the connection"):
            async with connected(plain(peer.port)) as client:
                await peer.stream.aclose()
                await client.wait_ended()


async def test_a_peer_that_accepts_and_says_nothing_is_given_up(peer: Peer, mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def attempt() -> None:
            async with failing_with("nothing for 10 seconds; is it a STOMP broker"):
                async with connected(plain(peer.port)):
                    pytest.fail("not connected")

        await peer.greet(b"")
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(10)


async def test_nobody_listening_is_a_sentence_that_says_what_to_do() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()

    async with failing_with(rf'No broker listens on 127\.0\.0\.1:{port}\. Start a broker with "stompbroker serve"'):
        async with connected(plain(port)):
            pass


async def test_an_unknown_host_is_named() -> None:
    async with failing_with('There is no host called "no-such-host.invalid"'):
        async with connected(plain(61613, "no-such-host.invalid")):
            pass


async def test_a_goodbye_that_is_not_confirmed_is_said(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def answer() -> None:
            await peer.greet()
            await peer.read_frame()
            await peer.stream.aclose()

        target = plain(peer.port)
        async with failing_with("did not confirm the end of the conversation"):
            async with connected(target) as client:
                await say_goodbye(client, target)
