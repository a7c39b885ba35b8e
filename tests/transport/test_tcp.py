"""Real sockets on the loopback interface: what TCP can do beyond the contract of every transport."""

from __future__ import annotations

import os
import resource
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import open_stream_to_socket_listener

from stompbroker.access import Usage
from stompbroker.actors import listener as listener_actor
from stompbroker.errors import OperatorError
from stompbroker.log_throttle import LogThrottle
from stompbroker.transport import (
    Endpoint,
    Listener,
    Scheme,
    TcpTransport,
    Transport,
    open_listeners,
    open_sockets,
    raise_descriptor_limit,
)
from stompbroker.transport.tcp import SMALL_CHUNK_BYTES
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

#: Fits into the kernel's buffers, so that the client can send it although nobody reads.
UNREAD = b"x" * 50_000


def on_loopback(port: int = 0) -> Endpoint:
    return Endpoint(Scheme.STOMP, "127.0.0.1", port)


@pytest.fixture
async def sockets() -> AsyncIterator[trio.SocketListener]:
    (sockets,) = await open_sockets(on_loopback())
    async with sockets:
        yield sockets


async def connection_to(sockets: trio.SocketListener) -> tuple[trio.SocketStream, TcpTransport]:
    """The client's end of a new connection, and ours."""
    client = await open_stream_to_socket_listener(sockets)
    return client, await Listener(sockets, on_loopback()).accept(LogThrottle())


async def receive_all(stream: trio.SocketStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


def reset_when_closed(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(HARD_TIMEOUT_S):
        while not is_so():  # noqa: ASYNC110 - the kernel's doings, which no event tells
            await trio.sleep(0.001)


# Opening --------------------------------------------------------------------------------------------------------------


async def test_a_port_in_use_is_the_operators_to_mend(sockets: trio.SocketListener) -> None:
    port = sockets.socket.getsockname()[1]

    with pytest.raises(OperatorError, match=rf"Cannot listen on 127\.0\.0\.1:{port}: .*--port"):
        await open_sockets(on_loopback(port))


async def test_a_host_that_is_not_ours_is_the_operators_to_mend() -> None:
    # 192.0.2.0/24 is reserved for documentation: no machine has such an address.
    with pytest.raises(OperatorError, match=r"Cannot listen on 192\.0\.2\.1:0: "):
        await open_sockets(Endpoint(Scheme.STOMP, "192.0.2.1", 0))


async def test_every_endpoint_has_a_listener_that_says_where_it_is() -> None:
    listeners = await open_listeners([on_loopback(), on_loopback()])
    ports = {each.endpoint.port for each in listeners}
    for each in listeners:
        await each.aclose()

    assert len(ports) == 2
    assert 0 not in ports
    assert {each.endpoint.host for each in listeners} == {"127.0.0.1"}


async def test_if_one_endpoint_cannot_be_had_none_is_kept(sockets: trio.SocketListener) -> None:
    (probe,) = await open_listeners([on_loopback()])
    free, taken = probe.endpoint, on_loopback(sockets.socket.getsockname()[1])
    await probe.aclose()

    with pytest.raises(OperatorError, match="Cannot listen"):
        await open_listeners([free, taken])

    (again,) = await open_listeners([free])
    await again.aclose()


async def test_accepted_sockets_are_set_up(sockets: trio.SocketListener) -> None:
    send_accepted, receive_accepted = trio.open_memory_channel[Transport](1)
    with trio.fail_after(HARD_TIMEOUT_S):
        async with trio.open_nursery() as connections, trio.open_nursery() as accepting:
            reception = listener_actor.Reception(
                connections=connections,
                serve=send_accepted.send,
                max_connections=1,
                is_unwelcome=lambda host: False,
                usage=Usage(),
                establish_s=1.0,
                after_frame=b"",
                throttle=LogThrottle(),
            )
            accepting.start_soon(listener_actor.run, Listener(sockets, on_loopback()), reception)
            async with await open_stream_to_socket_listener(sockets) as client:
                accepted = await receive_accepted.receive()
                assert isinstance(accepted, TcpTransport)

                def option(level: int, name: str) -> object:
                    return accepted._socket.getsockopt(level, getattr(socket, name))

                assert option(socket.IPPROTO_TCP, "TCP_NODELAY") == 1
                assert option(socket.SOL_SOCKET, "SO_KEEPALIVE") == 1
                assert option(socket.IPPROTO_TCP, "TCP_KEEPIDLE") == 60
                assert option(socket.IPPROTO_TCP, "TCP_KEEPINTVL") == 10
                assert option(socket.IPPROTO_TCP, "TCP_KEEPCNT") == 3
                assert option(socket.IPPROTO_TCP, "TCP_USER_TIMEOUT") == 60_000
                assert accepted.peer == "{}:{}".format(*client.socket.getsockname())
                await accepted.close()
            accepting.cancel_scope.cancel()


async def test_a_client_that_was_gone_before_it_was_accepted_keeps_nobody_else_out(
    sockets: trio.SocketListener,
) -> None:
    gone = await open_stream_to_socket_listener(sockets)
    reset_when_closed(gone)
    await trio.aclose_forcefully(gone)
    with trio.fail_after(HARD_TIMEOUT_S):
        async with await open_stream_to_socket_listener(sockets) as client:
            accepted = await Listener(sockets, on_loopback()).accept(LogThrottle())

            assert accepted.peer == "{}:{}".format(*client.socket.getsockname())
            await accepted.close()


# Descriptors ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def descriptor_limits() -> Iterator[tuple[int, int]]:
    """The limits of this process, which are restored."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield limits
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("is_raised_already", [False, True])
def test_the_descriptor_limit_is_raised_to_what_is_allowed(
    descriptor_limits: tuple[int, int], is_raised_already: bool
) -> None:
    hard = descriptor_limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if is_raised_already else hard // 2, hard))

    assert raise_descriptor_limit() == hard

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


# Sending at once -----------------------------------------------------------------------------------------------------


async def test_what_the_kernel_has_room_for_is_sent_without_waiting(sockets: trio.SocketListener) -> None:
    client, ours = await connection_to(sockets)
    async with client:
        assert ours.send_now(b"at once") == 7

        with trio.fail_after(HARD_TIMEOUT_S):
            assert await client.receive_some() == b"at once"
    await ours.close()


async def test_a_full_kernel_takes_a_part_and_then_nothing(sockets: trio.SocketListener) -> None:
    client, ours = await connection_to(sockets)
    async with client:
        data = os.urandom(50_000_000)

        sent_bytes = ours.send_now(data)
        assert 0 < sent_bytes < len(data)
        with suppress(BlockingIOError):
            while sent_bytes < len(data):
                sent_bytes += ours.send_now(data[sent_bytes:])

        assert sent_bytes < len(data)
        with trio.fail_after(HARD_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ours.finish)
                assert await receive_all(client) == data[:sent_bytes]
                await client.aclose()


async def test_a_closed_connection_is_an_error_and_never_somebody_elses_descriptor(
    sockets: trio.SocketListener,
) -> None:
    client, ours = await connection_to(sockets)
    async with client:
        number = ours._socket.fileno()
        await ours.close()
        # The kernel gives out the lowest number that is free.
        others = [os.memfd_create("other") for _ in range(20)]
        try:
            assert number in others, "nobody has taken its place, so nothing is shown"

            with pytest.raises(OSError, match="Bad file descriptor"):
                ours.send_now(b"for the one who is gone")

            assert [os.fstat(other).st_size for other in others] == [0] * len(others)
        finally:
            for other in others:
                os.close(other)


async def test_a_peer_that_is_gone_is_an_error(sockets: trio.SocketListener) -> None:
    client, ours = await connection_to(sockets)
    reset_when_closed(client)
    await trio.aclose_forcefully(client)

    await until(ours.has_left)
    with pytest.raises(ConnectionError):
        ours.send_now(b"anybody there?")
    await ours.close()


# Closing, resets, leaving --------------------------------------------------------------------------------------------


async def test_closing_at_once_sends_a_reset_which_can_overtake_the_last_words(sockets: trio.SocketListener) -> None:
    """The reason for `finish`: if this fails, its contract shows nothing."""
    with trio.fail_after(HARD_TIMEOUT_S):
        client, ours = await connection_to(sockets)
        async with client:
            await client.send_all(UNREAD)
            await ours.send_all(b"last words")

            await ours.close()

            with pytest.raises(trio.BrokenResourceError):
                await receive_all(client)


async def test_a_reset_is_noticed_without_reading(sockets: trio.SocketListener) -> None:
    client, ours = await connection_to(sockets)
    await client.send_all(UNREAD)
    assert not ours.is_reset(), "it is healthy, and has more to say"
    reset_when_closed(client)

    await trio.aclose_forcefully(client)

    await until(ours.is_reset)
    await ours.close()


async def test_a_peer_that_has_closed_politely_is_no_reset(sockets: trio.SocketListener) -> None:
    """It may still read what it is sent."""
    client, ours = await connection_to(sockets)
    async with client:
        await client.send_eof()
        assert await ours.receive_some(10) == b""

        assert not ours.is_reset()
    await ours.close()


@pytest.mark.parametrize("is_reset_by_client", [False, True], ids=["closed", "reset"])
async def test_a_client_that_has_closed_is_known_to_have_left_before_all_was_read(
    sockets: trio.SocketListener, is_reset_by_client: bool
) -> None:
    client, ours = await connection_to(sockets)
    await client.send_all(UNREAD)
    assert not ours.has_left()
    if is_reset_by_client:
        reset_when_closed(client)

    await trio.aclose_forcefully(client)

    await until(ours.has_left)
    await ours.close()
    assert ours.has_left(), "our own end is closed as well"


# Acknowledgements of what is not answered, as the sending kernel sees them --------------------------------------------

#: Where Linux has the number of unacknowledged segments in its `tcp_info`: behind eight bytes and four numbers.
_UNACKNOWLEDGED_AT = 8 + 4 * 4

with_quick_acks = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="this system has no TCP_QUICKACK")


def unacknowledged(stream: trio.SocketStream) -> int:
    info = stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    number: int = struct.unpack_from("=I", info, _UNACKNOWLEDGED_AT)[0]
    return number


@with_quick_acks
async def test_what_is_not_answered_is_acknowledged_at_once(sockets: trio.SocketListener) -> None:
    client, ours = await connection_to(sockets)
    async with client:
        # After a dialogue the kernel delays acknowledgements.
        for _ in range(10):
            await client.send_all(b"question")
            assert await ours.receive_some(100) == b"question"
            await ours.send_all(b"answer")
            assert await client.receive_some() == b"answer"
        await client.send_all(b"no question")
        received = await ours.receive_some(100)

        ours.note_unanswered(len(received), 60)

        assert unacknowledged(client) == 0
    await ours.close()


@with_quick_acks
async def test_the_kernel_is_told_once_until_something_is_sent_again(
    sockets: trio.SocketListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, ours = await connection_to(sockets)
    async with client:
        told: list[int] = []

        class Counting:
            def setsockopt(self, level: int, option: int, value: int) -> None:
                told.append(option)

        monkeypatch.setattr(ours, "_socket", Counting())
        ours.note_unanswered(SMALL_CHUNK_BYTES, 100)
        assert told == [], "large chunks are those of a busy client"
        for sent_bytes in (100, 100, 100, 200, 200):
            ours.note_unanswered(SMALL_CHUNK_BYTES - 1, sent_bytes)
        assert told == [socket.TCP_QUICKACK] * 2
    await ours.close()
