"""A broker in a process of its own that listens in every way there is, and what SIGHUP does to it."""

from __future__ import annotations

import signal
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from websockets.frames import Frame, Opcode

from tests.end_to_end.raw_client import RawClient, frame
from tests.support.broker_process import running_broker
from tests.support.certificates import Certificates
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.users import PASSWORD, add_user, remove_user

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

CARRIERS = ["stomp", "stomp+tls", "ws text", "ws binary", "wss binary", "unix"]
REQUEST = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("broker")
    listen = f"stomp+tls://127.0.0.1:0 ws://127.0.0.1:0/ws wss://127.0.0.1:0/ws unix://{directory}/stomp.sock"
    with running_broker(directory, listen=listen, **certificates.settings()) as running:
        yield running


def opened(broker: BrokerProcess, scheme: str, certificates: Certificates) -> socket.socket:
    """A connection over everything below WebSocket."""
    if scheme == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(HARD_TIMEOUT_S)
        connection.connect(broker.endpoint("unix").removeprefix("unix://"))
        return connection
    connection = socket.create_connection(broker.address_of(scheme), HARD_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if scheme in ("stomp+tls", "wss"):
        connection = certificates.for_client().wrap_socket(connection, server_hostname="localhost")
    return connection


def received_until(connection: socket.socket, wanted: bytes) -> bytes:
    received = b""
    while wanted not in received:
        chunk = connection.recv(65_536)
        assert chunk, received
        received += chunk
    return received


@pytest.mark.parametrize("carrier", CARRIERS)
def test_frames_may_be_cut_at_every_byte(broker: BrokerProcess, certificates: Certificates, carrier: str) -> None:
    scheme, _, kind = carrier.partition(" ")
    opcode = Opcode.TEXT if kind == "text" else Opcode.BINARY
    stomp = (
        frame("CONNECT", accept_version="1.2", host="h")
        + frame("SUBSCRIBE", id="0", destination="/topic/cut")
        + frame("SEND", b"hello \0 you", destination="/topic/cut", content_length="11")
    )

    for cut_at in range(1, len(stomp)):
        with opened(broker, scheme, certificates) as connection:
            pieces = [stomp[:cut_at], stomp[cut_at:]]
            if kind:
                connection.sendall(REQUEST)
                pieces = [Frame(opcode, piece).serialize(mask=True) for piece in pieces]
            for piece in pieces:
                connection.sendall(piece)
            received = received_until(connection, b"hello \0 you\0")

        assert received.count(b"CONNECTED\n") == 1, (cut_at, received)


def test_a_websocket_itself_may_be_cut_at_every_byte(broker: BrokerProcess, certificates: Certificates) -> None:
    stomp = frame("CONNECT", accept_version="1.2", host="h") + frame("DISCONNECT", receipt="bye")
    sent = REQUEST + Frame(Opcode.BINARY, stomp).serialize(mask=True)

    for cut_at in range(1, len(sent)):
        with opened(broker, "ws", certificates) as connection:
            connection.sendall(sent[:cut_at])
            connection.sendall(sent[cut_at:])

            received_until(connection, b"receipt-id:bye\n")


def test_sighup_reads_certificates_and_users_again_and_drops_nobody(tmp_path: Path, certificates: Certificates) -> None:
    (tmp_path / "data").mkdir()
    users, own = tmp_path / "data" / "users.toml", tmp_path / "own"
    own.mkdir()
    add_user(users, "alice", read=[">"], write=[">"])
    add_user(users, "bob", read=[">"])
    first = Certificates.made_in(own)
    with running_broker(tmp_path, listen="stomp+tls://127.0.0.1:0", **first.settings()) as broker:
        address = broker.address_of("stomp+tls")
        login: dict[str, Any] = {"login": "alice", "passcode": PASSWORD}
        with (
            RawClient.connected(address, tls=first.for_client(), **login) as alice,
            RawClient.connected(address, tls=first.for_client(), login="bob", passcode=PASSWORD) as bob,
        ):
            alice.subscribe("/topic/a")
            remove_user(users, "bob")
            second = Certificates.made_in(own)

            broker.signal(signal.SIGHUP)

            broker.wait_logged("certificates read again")
            bob.expect_error("login revoked")
            alice.send("SEND", b"still here", destination="/topic/a")
            assert alice.next_message().body == b"still here"
            with RawClient.connected(address, tls=second.for_client(), **login):
                pass
            with pytest.raises(ssl.SSLCertVerificationError):
                RawClient(address, tls=certificates.for_client())

            (own / "server.pem").write_text("no certificate")
            broker.signal(signal.SIGHUP)

            problem = broker.wait_logged("certificates were not read again; the old ones stay")["problem"]
            assert "tls_certificate" in problem
            with RawClient.connected(address, tls=second.for_client(), **login):
                pass
