"""What a worker may rely on, whatever the transport is."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from stompbroker.log_throttle import LogThrottle
from stompbroker.transport import Endpoint, Scheme, StreamTransport, open_listeners
from stompbroker.transport.transport import LINGER_S
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from trio.testing import MockClock

    from stompbroker.transport import Transport

    #: The client's end of a connection, and ours.
    Ends = tuple[trio.abc.HalfCloseableStream, Transport]

LAST_WORDS = b"ERROR\nmessage:last words\n\n\0"
#: Fits into the kernel's buffers, so that the client can send it although nobody reads.
UNREAD = b"x" * 50_000
#: More than those buffers hold.
MUCH = bytes(range(256)) * 40_000


@asynccontextmanager
async def over_tcp() -> AsyncIterator[Ends]:
    (listener,) = await open_listeners([Endpoint(Scheme.STOMP, "127.0.0.1", 0)])
    async with await trio.open_tcp_stream(listener.endpoint.host, listener.endpoint.port) as client:
        ours = await listener.accept(LogThrottle())
        await listener.aclose()
        yield client, ours
        await ours.close()


@asynccontextmanager
async def over_memory() -> AsyncIterator[Ends]:
    client, theirs = memory_stream_pair()
    async with client:
        yield client, StreamTransport(theirs, "memory")


@pytest.fixture(params=[over_tcp, over_memory])
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[Ends]:
    connect: Callable[[], AbstractAsyncContextManager[Ends]] = request.param
    with trio.fail_after(HARD_TIMEOUT_S):
        async with connect() as ends:
            yield ends


async def received_by(client: trio.abc.ReceiveStream) -> bytes:
    return b"".join([bytes(chunk) async for chunk in client])


async def test_it_receives_what_the_client_sends_and_then_its_end(ends: Ends) -> None:
    client, ours = ends
    await client.send_all(b"abcdef")
    await client.send_eof()

    assert await ours.receive_some(4) == b"abcd"
    received = await ours.receive_some(4)

    assert received == b"ef"
    assert type(received) is bytes
    assert await ours.receive_some(4) == b""


async def test_what_does_not_go_now_goes_by_waiting_and_nothing_is_sent_twice(ends: Ends) -> None:
    client, ours = ends
    sent_bytes = 0
    with suppress(OSError):
        while sent_bytes < len(MUCH) and (more_bytes := ours.send_now(MUCH[sent_bytes:])):
            sent_bytes += more_bytes
    assert sent_bytes < len(MUCH)

    async def send_the_rest() -> None:
        await ours.send_all(MUCH[sent_bytes:])
        await ours.finish()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_the_rest)
        assert await received_by(client) == MUCH
        await client.aclose()


async def test_a_client_that_is_there_has_not_left(ends: Ends) -> None:
    client, ours = ends
    await client.send_all(UNREAD)

    assert not ours.has_left()
    assert not ours.is_reset()


async def test_sending_to_a_client_that_is_gone_raises(ends: Ends) -> None:
    client, ours = ends
    await trio.aclose_forcefully(client)

    async def send_on() -> None:
        while True:
            await ours.send_all(b"x" * 100_000)

    with pytest.raises(trio.BrokenResourceError):
        await send_on()


async def test_after_closing_nothing_can_be_sent_or_received(ends: Ends) -> None:
    _, ours = ends
    await ours.close()
    await ours.close()

    with pytest.raises(trio.ClosedResourceError):
        await ours.send_all(b"x")
    with pytest.raises(trio.ClosedResourceError):
        await ours.receive_some(1)
    ours.note_unanswered(1, 0)


async def test_closing_ends_a_receive_that_waits(ends: Ends) -> None:
    _, ours = ends
    has_raised = False

    async def receive() -> None:
        nonlocal has_raised
        with pytest.raises(trio.ClosedResourceError):
            await ours.receive_some(1)
        has_raised = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        await ours.close()
    assert has_raised


async def test_finishing_lets_the_client_read_the_last_words_although_we_never_read_its_own(ends: Ends) -> None:
    client, ours = ends
    await client.send_all(UNREAD)
    await ours.send_all(LAST_WORDS)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.finish)
        assert await received_by(client) == LAST_WORDS
        await client.aclose()


async def test_finishing_ends_when_the_client_has_closed(ends: Ends) -> None:
    client, ours = ends
    await client.aclose()

    with trio.fail_after(LINGER_S / 2):
        await ours.finish()

    with pytest.raises(trio.ClosedResourceError):
        await ours.receive_some(1)


async def test_finishing_what_is_closed_does_nothing(ends: Ends) -> None:
    _, ours = ends
    await ours.close()

    await ours.finish()


# On the mock clock, which leaps while a socket waits.


async def test_finishing_waits_for_nobody_for_ever(autojump_clock: MockClock) -> None:
    async with over_memory() as (client, ours):
        began_at = trio.current_time()

        await ours.finish()

        assert trio.current_time() - began_at == LINGER_S
        assert await client.receive_some() == b""


async def test_finishing_does_not_wait_longer_for_one_that_goes_on_sending(autojump_clock: MockClock) -> None:
    async with over_memory() as (client, ours), trio.open_nursery() as nursery:

        async def chatter() -> None:
            while True:
                await client.send_all(b"and another thing\n")
                await trio.sleep(LINGER_S / 10)

        began_at = trio.current_time()
        nursery.start_soon(chatter)
        await ours.finish()
        nursery.cancel_scope.cancel()

    assert trio.current_time() - began_at == LINGER_S
