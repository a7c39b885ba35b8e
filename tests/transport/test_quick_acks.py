"""Acknowledgements of what is not answered, as the sending kernel sees them."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest
import trio

from stompbroker.transport import QuickAcks
from stompbroker.transport.quick_acks import SMALL_CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: Where Linux has the number of unacknowledged segments in its `tcp_info`: behind eight bytes and four numbers.
_UNACKNOWLEDGED_AT = 8 + 4 * 4

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="this system has no TCP_QUICKACK")


def unacknowledged(stream: trio.SocketStream) -> int:
    info = stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    number: int = struct.unpack_from("=I", info, _UNACKNOWLEDGED_AT)[0]
    return number


@pytest.fixture
async def ends() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Of a client and ours, after a dialogue: from then on the kernel delays acknowledgements."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await trio.testing.open_stream_to_socket_listener(listener)
        async with client, await listener.accept() as ours:
            for _ in range(10):
                await client.send_all(b"question")
                assert await ours.receive_some() == b"question"
                await ours.send_all(b"answer")
                assert await client.receive_some() == b"answer"
            yield client, ours


async def test_what_is_not_answered_is_acknowledged_at_once(
    ends: tuple[trio.SocketStream, trio.SocketStream],
) -> None:
    client, ours = ends
    await client.send_all(b"no question")
    received = await ours.receive_some()

    QuickAcks(ours).note_unanswered(len(received), 60)

    assert unacknowledged(client) == 0


async def test_the_kernel_is_told_once_until_something_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = socket.socketpair()
    with left, right:
        quick_acks = QuickAcks(trio.SocketStream(trio.socket.from_stdlib_socket(left)))
        told: list[int] = []

        class Counting:
            def setsockopt(self, level: int, option: int, value: int) -> None:
                told.append(option)

        monkeypatch.setattr(quick_acks, "_socket", Counting())
        quick_acks.note_unanswered(SMALL_CHUNK_BYTES, 100)
        assert told == [], "large chunks are those of a busy client"
        for sent_bytes in (100, 100, 100, 200, 200):
            quick_acks.note_unanswered(SMALL_CHUNK_BYTES - 1, sent_bytes)
        assert told == [socket.TCP_QUICKACK] * 2


async def test_other_streams_and_clients_that_are_gone_do_no_harm() -> None:
    ours, _ = trio.testing.memory_stream_pair()
    QuickAcks(ours).note_unanswered(1, 0)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await trio.testing.open_stream_to_socket_listener(listener)
        async with client, await listener.accept() as closed:
            quick_acks = QuickAcks(closed)
            await closed.aclose()
            quick_acks.note_unanswered(1, 0)
