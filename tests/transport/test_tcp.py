"""Real sockets on the loopback interface: how accepted ones are set up, and how a connection ends politely."""

from __future__ import annotations

import os
import resource
import socket
import struct
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import memory_stream_pair, open_stream_to_socket_listener

from stompbroker.actors import listener as listener_actor
from stompbroker.errors import OperatorError
from stompbroker.log_throttle import LogThrottle
from stompbroker.transport import close_gently, is_reset, leaving_of, open_listeners, raise_descriptor_limit, sender_of
from stompbroker.transport.tcp import LINGER_S
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from trio.testing import MockClock


@pytest.fixture
async def listener() -> AsyncIterator[trio.SocketListener]:
    (listener,) = await open_listeners("127.0.0.1", 0)
    async with listener:
        yield listener


async def connection_to(listener: trio.SocketListener) -> tuple[trio.SocketStream, trio.SocketStream]:
    """The client's end of a new connection, and ours."""
    client = await open_stream_to_socket_listener(listener)
    return client, await listener.accept()


# Opening --------------------------------------------------------------------------------------------------------------


async def test_a_port_in_use_is_the_operators_to_mend(listener: trio.SocketListener) -> None:
    port = listener.socket.getsockname()[1]

    with pytest.raises(OperatorError, match=rf"Cannot listen on 127\.0\.0\.1:{port}: .*--port"):
        await open_listeners("127.0.0.1", port)


async def test_a_host_that_is_not_ours_is_the_operators_to_mend() -> None:
    # 192.0.2.0/24 is reserved for documentation: no machine has such an address.
    with pytest.raises(OperatorError, match=r"Cannot listen on 192\.0\.2\.1:0: "):
        await open_listeners("192.0.2.1", 0)


async def test_accepted_sockets_are_set_up(listener: trio.SocketListener) -> None:
    send_accepted, receive_accepted = trio.open_memory_channel[trio.SocketStream](1)
    with trio.fail_after(HARD_TIMEOUT_S):
        async with trio.open_nursery() as connections, trio.open_nursery() as accepting:
            run = partial(listener_actor.run, max_connections=1, after_frame=b"")
            await accepting.start(run, listener, connections, send_accepted.send, LogThrottle())
            async with await open_stream_to_socket_listener(listener), await receive_accepted.receive() as accepted:

                def option(level: int, name: str) -> object:
                    return accepted.getsockopt(level, getattr(socket, name))

                assert option(socket.IPPROTO_TCP, "TCP_NODELAY") == 1
                assert option(socket.SOL_SOCKET, "SO_KEEPALIVE") == 1
                assert option(socket.IPPROTO_TCP, "TCP_KEEPIDLE") == 60
                assert option(socket.IPPROTO_TCP, "TCP_KEEPINTVL") == 10
                assert option(socket.IPPROTO_TCP, "TCP_KEEPCNT") == 3
                assert option(socket.IPPROTO_TCP, "TCP_USER_TIMEOUT") == 60_000
            accepting.cancel_scope.cancel()


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


async def test_what_the_kernel_has_room_for_is_sent_without_waiting(listener: trio.SocketListener) -> None:
    client, ours = await connection_to(listener)
    async with client, ours:
        send = sender_of(ours)
        assert send is not None

        assert send(b"at once") == 7

        with trio.fail_after(HARD_TIMEOUT_S):
            assert await client.receive_some() == b"at once"


async def test_a_full_kernel_takes_a_part_and_then_nothing(listener: trio.SocketListener) -> None:
    client, ours = await connection_to(listener)
    async with client, ours:
        send = sender_of(ours)
        assert send is not None
        data = os.urandom(50_000_000)

        sent_bytes = send(data)
        assert 0 < sent_bytes < len(data)
        with suppress(BlockingIOError):
            while sent_bytes < len(data):
                sent_bytes += send(data[sent_bytes:])

        assert sent_bytes < len(data)
        with trio.fail_after(HARD_TIMEOUT_S):
            await ours.send_eof()
            assert await receive_all(client) == data[:sent_bytes]


async def test_a_closed_connection_is_an_error_and_never_somebody_elses_descriptor(
    listener: trio.SocketListener,
) -> None:
    client, ours = await connection_to(listener)
    async with client:
        send = sender_of(ours)
        assert send is not None
        number = ours.socket.fileno()
        await ours.aclose()
        # The kernel gives out the lowest number that is free.
        others = [os.memfd_create("other") for _ in range(20)]
        try:
            assert number in others, "nobody has taken its place, so nothing is shown"

            with pytest.raises(OSError, match="Bad file descriptor"):
                send(b"for the one who is gone")

            assert [os.fstat(other).st_size for other in others] == [0] * len(others)
        finally:
            for other in others:
                os.close(other)


async def test_a_peer_that_is_gone_is_an_error(listener: trio.SocketListener) -> None:
    client, ours = await connection_to(listener)
    async with ours:
        send = sender_of(ours)
        assert send is not None
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(client)

        with trio.fail_after(HARD_TIMEOUT_S):
            while not is_reset(ours):  # noqa: ASYNC110 - the kernel's doings, which no event tells
                await trio.sleep(0.001)
        with pytest.raises(ConnectionError):
            send(b"anybody there?")


async def test_a_stream_that_is_no_socket_has_no_such_way() -> None:
    _, ours = memory_stream_pair()

    assert sender_of(ours) is None


# Closing --------------------------------------------------------------------------------------------------------------

LAST_WORDS = b"ERROR\nmessage:last words\n\n\0"
#: Fits into the kernel's buffers, so that the client can send it although nobody reads.
UNREAD = b"x" * 50_000


async def receive_all(stream: trio.SocketStream) -> bytes:
    received = b""
    while chunk := await stream.receive_some():
        received += chunk
    return received


async def test_closing_gently_lets_the_peer_read_the_last_words_although_we_never_read_its_own(
    listener: trio.SocketListener,
) -> None:
    with trio.fail_after(HARD_TIMEOUT_S):
        client, ours = await connection_to(listener)
        async with client, ours:
            await client.send_all(UNREAD)
            await ours.send_all(LAST_WORDS)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(close_gently, ours)
                assert await receive_all(client) == LAST_WORDS
                await client.aclose()


async def test_without_that_a_reset_would_reach_the_peer(listener: trio.SocketListener) -> None:
    """The reason for `close_gently`: if this fails, the test above shows nothing."""
    with trio.fail_after(HARD_TIMEOUT_S):
        client, ours = await connection_to(listener)
        async with client, ours:
            await client.send_all(UNREAD)
            await ours.send_all(LAST_WORDS)

            await trio.aclose_forcefully(ours)

            with pytest.raises(trio.BrokenResourceError):
                await receive_all(client)


async def test_closing_gently_ends_when_the_peer_has_closed(listener: trio.SocketListener) -> None:
    client, ours = await connection_to(listener)
    await client.aclose()

    with trio.fail_after(HARD_TIMEOUT_S):
        await close_gently(ours)

    assert ours.socket.fileno() == -1


async def test_closing_gently_waits_for_nobody_for_ever(autojump_clock: MockClock) -> None:
    client, ours = memory_stream_pair()
    began_at = trio.current_time()

    await close_gently(ours)

    assert trio.current_time() - began_at == LINGER_S
    assert await client.receive_some() == b""


async def test_closing_gently_does_not_wait_longer_for_one_that_goes_on_sending(autojump_clock: MockClock) -> None:
    client, ours = memory_stream_pair()
    began_at = trio.current_time()

    async def chatter() -> None:
        while True:
            await client.send_all(b"and another thing\n")
            await trio.sleep(LINGER_S / 10)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(chatter)
        await close_gently(ours)
        nursery.cancel_scope.cancel()

    assert trio.current_time() - began_at == LINGER_S


# Resets ---------------------------------------------------------------------------------------------------------------


async def test_a_reset_is_noticed_without_reading(listener: trio.SocketListener) -> None:
    client, ours = await connection_to(listener)
    async with ours:
        await client.send_all(UNREAD)
        assert not is_reset(ours), "it is healthy, and has more to say"
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        await trio.aclose_forcefully(client)

        with trio.fail_after(HARD_TIMEOUT_S):
            while not is_reset(ours):  # noqa: ASYNC110 - the kernel's doings, which no event tells
                await trio.sleep(0.001)


async def test_a_peer_that_has_closed_politely_is_no_reset(listener: trio.SocketListener) -> None:
    """It may still read what it is sent."""
    client, ours = await connection_to(listener)
    async with client, ours:
        await client.send_eof()
        assert await ours.receive_some() == b""

        assert not is_reset(ours)


async def test_a_memory_stream_is_never_reset() -> None:
    client, ours = memory_stream_pair()
    await client.aclose()

    assert not is_reset(ours)


# Leaving --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_reset_by_client", [False, True], ids=["closed", "reset"])
async def test_who_has_closed_is_known_to_have_left_before_all_was_read(
    listener: trio.SocketListener, is_reset_by_client: bool
) -> None:
    client, ours = await connection_to(listener)
    has_left = leaving_of(ours)
    assert has_left is not None
    async with ours:
        await client.send_all(UNREAD)
        assert not has_left()
        if is_reset_by_client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        await trio.aclose_forcefully(client)

        with trio.fail_after(HARD_TIMEOUT_S):
            while not has_left():  # noqa: ASYNC110 - the kernel's doings, which no event tells
                await trio.sleep(0.001)
    assert has_left(), "our own end is closed as well"


async def test_a_memory_stream_does_not_say_who_has_left() -> None:
    _, ours = memory_stream_pair()

    assert leaving_of(ours) is None
