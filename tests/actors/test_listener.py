"""Handshakes that never finish: bounded in number and in time, and no obstacle to others or to the end."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, final

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from stompbroker.access import Usage
from stompbroker.actors import listener
from stompbroker.log_throttle import LogThrottle
from stompbroker.transport import Endpoint, Listener, Tls, open_listeners
from tests.support.certificates import Certificates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from stompbroker.transport import Transport

HARD_TIMEOUT_S = 20
ENCRYPTED = "stomp+tls://127.0.0.1:0"
WEBSOCKET_REQUEST = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
ENDPOINTS = [ENCRYPTED, "ws://127.0.0.1:0/", "wss://127.0.0.1:0/", "stomp://127.0.0.1:0?proxy=127.0.0.0/8"]


@final
class Serving:
    """A listener, whose connections are served until the client closes."""

    def __init__(self, port: int, connections: trio.Nursery) -> None:
        self.port = port
        self.connections = connections
        self.accepting = trio.CancelScope()
        self.served: list[Transport] = []
        self.opened = AsyncExitStack()

    async def serve(self, transport: Transport) -> None:
        self.served.append(transport)
        try:
            while await transport.receive_some(100):
                pass
        except trio.BrokenResourceError:
            pass
        await transport.close()

    async def connect(self) -> trio.SocketStream:
        return await self.opened.enter_async_context(await trio.open_tcp_stream("127.0.0.1", self.port))

    async def wait_under_way(self, count: int) -> None:
        while len(self.connections.child_tasks) != count:  # noqa: ASYNC110 - nobody else is told
            await trio.sleep(0.001)
        await wait_all_tasks_blocked()


@asynccontextmanager
async def serving(
    directory: Path,
    endpoint: str,
    *,
    max_connections: int = 100,
    max_address_connections: int = 0,
    is_unwelcome: Callable[[str], bool] = lambda host: False,
    establish_s: float = 60,
) -> AsyncIterator[Serving]:
    tls = Tls(Certificates.made_in(directory).files())
    (opened,) = await open_listeners([Endpoint.parse(endpoint)], tls)
    with trio.fail_after(HARD_TIMEOUT_S):
        async with trio.open_nursery() as accepting, trio.open_nursery() as connections:
            under_test = Serving(opened.endpoint.port, connections)
            reception = listener.Reception(
                connections=connections,
                serve=under_test.serve,
                max_connections=max_connections,
                is_unwelcome=is_unwelcome,
                usage=Usage(max_address_connections=max_address_connections),
                establish_s=establish_s,
                after_frame=b"\n",
                throttle=LogThrottle(),
            )

            async def accept() -> None:
                with under_test.accepting:
                    await listener.run(opened, reception)

            accepting.start_soon(accept)
            async with under_test.opened:
                yield under_test
            connections.cancel_scope.cancel()
            under_test.accepting.cancel()
    await opened.aclose()


async def everything(stream: trio.SocketStream) -> bytes:
    received = b""
    while chunk := await stream.receive_some():
        received += chunk
    return received


async def is_closed(stream: trio.SocketStream) -> bool:
    try:
        while await stream.receive_some(1000):
            pass
    except trio.BrokenResourceError:
        pass
    return True


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\nHost: x\r\n", b"PROXY TCP4 "])
async def test_a_handshake_that_never_finishes_ends_in_time(tmp_path: Path, endpoint: str, said: bytes) -> None:
    async with serving(tmp_path, endpoint, establish_s=0.2) as broker:
        client = await broker.connect()
        await client.send_all(said)

        assert await is_closed(client)
        await broker.wait_under_way(0)
        assert not broker.served


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_handshakes_count_as_connections_and_what_is_too_much_is_closed(tmp_path: Path, endpoint: str) -> None:
    async with serving(tmp_path, endpoint, max_connections=3) as broker:
        for _ in range(3):
            await broker.connect()
        await broker.wait_under_way(3)

        fourth = await broker.connect()

        assert await is_closed(fourth)
        assert len(broker.connections.child_tasks) == 3


async def test_an_endpoint_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path, "stomp://127.0.0.1:0?max_connections=2") as broker:
        first, _ = [await broker.connect() for _ in range(2)]
        await broker.wait_under_way(2)

        third = await broker.connect()
        assert b"too many connections" in bytes(await third.receive_some())

        await first.aclose()
        await broker.wait_under_way(1)
        await broker.connect()
        await broker.wait_under_way(2)


@pytest.mark.parametrize("endpoint", ["stomp://127.0.0.1:0", "ws://127.0.0.1:0/"])
async def test_an_address_has_so_many_connections_handshakes_among_them(tmp_path: Path, endpoint: str) -> None:
    async with serving(tmp_path, endpoint, max_address_connections=2) as broker:
        first, _ = [await broker.connect() for _ in range(2)]
        await broker.wait_under_way(2)

        third = await broker.connect()
        if endpoint.startswith("stomp"):
            assert b"an address may have 2" in bytes(await third.receive_some())
        else:
            await third.send_all(WEBSOCKET_REQUEST)
            assert b"an address may have 2" in await everything(third)

        await first.aclose()
        await broker.wait_under_way(1)
        await broker.connect()
        await broker.wait_under_way(2)


async def test_behind_a_proxy_whom_it_speaks_for_is_refused_and_nobody_else(tmp_path: Path) -> None:
    endpoint = "stomp://127.0.0.1:0?proxy=127.0.0.0/8"
    unwelcome = {"127.0.0.1", "198.51.100.7"}
    async with serving(tmp_path, endpoint, max_address_connections=1, is_unwelcome=unwelcome.__contains__) as broker:
        for address, said in {"198.51.100.7": b"wrong logins", "198.51.100.8": b"", "198.51.100.9": b""}.items():
            client = await broker.connect()
            await client.send_all(f"PROXY TCP4 {address} 192.0.2.1 1 2\r\n".encode())
            if said:
                assert said in bytes(await client.receive_some())
        while len(broker.served) < 2:  # noqa: ASYNC110
            await trio.sleep(0.001)
        again = await broker.connect()
        await again.send_all(b"PROXY TCP4 198.51.100.8 192.0.2.1 3 2\r\n")
        assert b"an address may have 1" in bytes(await again.receive_some())


async def test_a_bug_in_a_handshake_ends_that_connection_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a name in a certificate")

    async with serving(tmp_path, ENCRYPTED) as broker:
        monkeypatch.setattr(Listener, "establish", fail)

        with capture_logs() as lines:
            assert await is_closed(await broker.connect())

        assert [line["event"] for line in lines] == ["connection failed", "connection not established"]
        await broker.wait_under_way(0)


async def test_refusals_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_REFUSALS", 2)
    monkeypatch.setattr(listener, "REFUSAL_S", 2 * HARD_TIMEOUT_S)
    async with serving(tmp_path, ENCRYPTED, max_connections=1) as broker:
        for _ in range(3):  # one is served, two are being told
            await broker.connect()
        await broker.wait_under_way(1)

        assert await is_closed(await broker.connect())


async def test_who_guesses_passwords_is_refused_before_a_handshake_counts_as_a_connection(tmp_path: Path) -> None:
    unwelcome: set[str] = set()
    async with serving(tmp_path, "stomp://127.0.0.1:0", is_unwelcome=unwelcome.__contains__) as broker:
        await broker.connect()
        await broker.wait_under_way(1)

        unwelcome.add("127.0.0.1")
        refused = await broker.connect()

        assert b"too many wrong logins from this address" in bytes(await refused.receive_some())
        assert len(broker.connections.child_tasks) == 1


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_the_end_waits_for_no_handshake(tmp_path: Path, endpoint: str) -> None:
    async with serving(tmp_path, endpoint) as broker:
        clients = [await broker.connect() for _ in range(3)]
        await broker.wait_under_way(3)

        broker.accepting.cancel()

        for client in clients:
            assert await is_closed(client)
        await broker.wait_under_way(0)


async def test_a_handshake_that_begins_at_the_end_gets_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was accepted, and its task has not run yet."""
    async with serving(tmp_path, ENCRYPTED) as broker:
        connections, start_soon = broker.connections, trio.Nursery.start_soon

        def start_and_stop(nursery: trio.Nursery, *arguments: Any) -> None:
            start_soon(nursery, *arguments)
            if nursery is connections:
                broker.accepting.cancel()

        monkeypatch.setattr(trio.Nursery, "start_soon", start_and_stop)
        with socket.create_connection(("127.0.0.1", broker.port)):
            while not broker.accepting.cancelled_caught:  # noqa: ASYNC110
                await trio.sleep(0.001)

            await broker.wait_under_way(0)
