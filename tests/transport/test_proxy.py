"""The PROXY protocol: headers of both versions, and who may send them."""

from __future__ import annotations

import socket
import struct
from ipaddress import ip_network

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.log_throttle import LogThrottle
from stompbroker.transport import Endpoint, open_listeners
from stompbroker.transport.proxy import MAX_BINARY_BYTES, Header, read_header
from tests.support.patience import HARD_TIMEOUT_S

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def binary(family: int, addresses: bytes, command: int = 0x21) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, family, len(addresses)) + addresses


V4 = socket.inet_aton("192.0.2.7") + socket.inet_aton("10.0.0.1") + struct.pack("!HH", 5000, 61613)
V6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + bytes(16) + struct.pack("!HH", 5000, 61613)

HEADERS = [
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 5000 61613\r\n", "192.0.2.7:5000"),
    (b"PROXY TCP6 2001:db8::7 ::1 5000 61613\r\n", "[2001:db8::7]:5000"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
    (binary(0x11, V4), "192.0.2.7:5000"),
    (binary(0x21, V6), "[2001:db8::7]:5000"),
    (binary(0x11, V4 + b"\x03\x00\x04abcd"), "192.0.2.7:5000"),
    (binary(0x11, V4, command=0x20), None),
    (binary(0x00, b""), None),
    (binary(0x31, bytes(216)), None),
]


@pytest.mark.parametrize(("header", "peer"), HEADERS)
def test_a_header_is_read_once_it_is_complete_and_no_byte_further(header: bytes, peer: str | None) -> None:
    for length in range(len(header)):
        assert read_header(header[:length]) is None

    assert read_header(header) == Header(peer, len(header))
    assert read_header(header + b"CONNECT\n") == Header(peer, len(header))


@pytest.mark.parametrize(
    "received",
    [
        b"CONNECT\n",
        b"\x16\x03\x01",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 5000\r\n",
        b"PROXY TCP4 2001:db8::7 ::1 5000 61613\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 61613\r\n",
        b"PROXY TCP4 evil.example 10.0.0.1 5000 61613\r\n",
        b"PROXY \xff\r\n",
        b"PROXY " + b"x" * 200,
        binary(0x11, V4[:8]),
        binary(0x11, V4, command=0x22),
        binary(0x11, V4, command=0x11),
        binary(0x11, V4 + bytes(MAX_BINARY_BYTES)),
    ],
)
def test_anything_else_is_refused(received: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_header(received)


@pytest.mark.parametrize(("header", "peer"), HEADERS[:6])
@pytest.mark.parametrize("cut_at", [5, -1, 1000])
async def test_a_named_proxy_says_for_whom_it_connects(header: bytes, peer: str | None, cut_at: int) -> None:
    (listener,) = await open_listeners([Endpoint.parse("stomp://127.0.0.1:0?proxy=127.0.0.0/8")])
    assert listener.endpoint.restrictions.proxies == (ip_network("127.0.0.0/8"),)
    with trio.fail_after(HARD_TIMEOUT_S):
        async with await trio.open_tcp_stream("127.0.0.1", listener.endpoint.port) as client:
            accepted = await listener.accept(LogThrottle())
            own = "{}:{}".format(*client.socket.getsockname())
            data = header + b"CONNECT\n\n\0"

            async def send() -> None:
                await client.send_all(data[:cut_at])
                await wait_all_tasks_blocked()
                await client.send_all(data[cut_at:])

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                transport = await listener.establish(accepted)
                received = b""
                while len(received) < len(b"CONNECT\n\n\0"):
                    received += await transport.receive_some(4)

            assert transport.peer == (peer or own)
            assert received == b"CONNECT\n\n\0"
            await transport.close()
    await listener.aclose()


@pytest.mark.parametrize("proxies", ["10.0.0.0/8", "::1"])
async def test_nobody_else_is_believed_or_let_in(proxies: str) -> None:
    (listener,) = await open_listeners([Endpoint.parse(f"stomp://127.0.0.1:0?proxy={proxies}")])
    async with await trio.open_tcp_stream("127.0.0.1", listener.endpoint.port) as client:
        await client.send_all(HEADERS[0][0])
        accepted = await listener.accept(LogThrottle())

        with pytest.raises(trio.BrokenResourceError, match="only proxies that the endpoint names"):
            await listener.establish(accepted)

        await accepted.close()
    await listener.aclose()
