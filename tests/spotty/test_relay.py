"""A relay treats clients as the broker behind it treats the relay."""

from __future__ import annotations

import errno
import socket
import struct
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.errors import OperatorError
from stompbroker.spotty.relay import Address, Front, Relay
from stompbroker.transport import Endpoint, Scheme

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LARGE = bytes(range(256)) * 40_000


class Relayed(NamedTuple):
    relay: Relay
    front: Front
    #: Where the relay looks for the broker, which is the test.
    broker: trio.SocketListener
    streams: AsyncExitStack

    @property
    def address(self) -> Address:
        host, port = self.broker.socket.getsockname()
        return Address(host, port)

    async def connect(self) -> tuple[trio.SocketStream, trio.SocketStream]:
        """Both ends: a client's, and the broker's."""
        client = await self.connect_client()
        return client, await self.streams.enter_async_context(await self.broker.accept())

    async def connect_client(self) -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.front.endpoint.port)
        return await self.streams.enter_async_context(stream)


@asynccontextmanager
async def relaying() -> AsyncIterator[Relayed]:
    (broker,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    front = Front(Endpoint(Scheme.STOMP, "127.0.0.1", 0))
    async with broker, AsyncExitStack() as streams, trio.open_nursery() as nursery:
        relayed = Relayed(Relay([front], nursery), front, broker, streams)
        relayed.relay.listen([relayed.address])
        yield relayed
        nursery.cancel_scope.cancel()
    front.close()


async def received(stream: trio.SocketStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def send_all(stream: trio.SocketStream, data: bytes) -> None:
    await stream.send_all(data)
    await stream.send_eof()


async def test_bytes_and_ends_are_passed_on_in_both_directions() -> None:
    async with relaying() as relayed:
        client, broker = await relayed.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all, client, LARGE)
            assert await received(broker) == LARGE

            nursery.start_soon(send_all, broker, LARGE)
            assert await received(client) == LARGE
        await relayed.relay.wait_left()


async def test_a_reset_is_passed_on() -> None:
    async with relaying() as relayed:
        client, broker = await relayed.connect()
        broker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        broker.socket.close()

        with pytest.raises(trio.BrokenResourceError) as lost:
            await received(client)
        assert isinstance(lost.value.__cause__, OSError)
        assert lost.value.__cause__.errno == errno.ECONNRESET


async def test_connections_are_reset_and_new_ones_refused_until_it_listens_again_at_the_same_port() -> None:
    async with relaying() as relayed:
        client, broker = await relayed.connect()

        relayed.relay.refuse()
        relayed.relay.reset_all()

        for end in (client, broker):
            with pytest.raises(trio.BrokenResourceError):
                await received(end)
        with pytest.raises(OSError, match="all attempts to connect") as refused:
            await relayed.connect()
        assert isinstance(refused.value.__cause__, ExceptionGroup)
        assert isinstance(refused.value.__cause__.exceptions[0], ConnectionRefusedError)

        relayed.relay.listen([relayed.address])
        client, broker = await relayed.connect()
        await broker.send_all(b"back")
        assert bytes(await client.receive_some()) == b"back"


async def test_without_a_broker_a_client_is_reset() -> None:
    async with relaying() as relayed:
        await relayed.broker.aclose()

        client = await relayed.connect_client()

        with pytest.raises(trio.BrokenResourceError):
            await received(client)


async def test_it_takes_no_more_from_one_than_the_other_takes() -> None:
    async with relaying() as relayed:
        client, _ = await relayed.connect()

        with trio.CancelScope() as sending:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send_all, bytes(64 * 1024 * 1024))
                await wait_all_tasks_blocked(0.2)
                sending.cancel()

        assert sending.cancelled_caught


async def test_a_port_that_is_taken_is_a_sentence() -> None:
    (other,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with other:
        port = other.socket.getsockname()[1]
        with pytest.raises(OperatorError, match=rf"Cannot listen on 127\.0\.0\.1:{port}: .*Is a broker running there"):
            Front(Endpoint(Scheme.STOMP, "127.0.0.1", port))
