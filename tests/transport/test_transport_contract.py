"""What a worker may rely on, whatever the transport is."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from stompbroker.buffers import joined, rest_of
from stompbroker.log_throttle import LogThrottle
from stompbroker.transport import Endpoint, Scheme, StreamTransport, open_listeners
from stompbroker.transport.transport import LINGER_S
from tests.support.carriers import WebSocketStream, both, over_both, over_tls, over_websocket, plain
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.buffers import Buffer
    from tests.support.carriers import Ends
    from tests.support.certificates import Certificates


LAST_WORDS = b"ERROR\nmessage:last words\n\n\0"
#: Fits into the kernel's buffers, so that the client can send it although nobody reads.
UNREAD = b"x" * 50_000
#: More than those buffers hold.
MUCH = bytes(range(256)) * 40_000


@asynccontextmanager
async def by_socket(endpoint: Endpoint) -> AsyncIterator[Ends]:
    (listener,) = await open_listeners([endpoint])
    where = listener.endpoint
    client = (
        await trio.open_unix_socket(where.path) if where.path else await trio.open_tcp_stream(where.host, where.port)
    )
    async with client:
        ours = await listener.accept(LogThrottle())
        await listener.aclose()
        yield client, ours
        await ours.close()


@asynccontextmanager
async def by_memory() -> AsyncIterator[Ends]:
    client, theirs = memory_stream_pair()
    async with client:
        yield client, StreamTransport(theirs, "memory")


@pytest.fixture(params=["tcp", "memory", "unix", "tls", "websocket", "websocket text", "websocket over tls"])
async def ends(request: pytest.FixtureRequest, certificates: Certificates, tmp_path: Path) -> AsyncIterator[Ends]:
    carriers = {
        "tls": over_tls(certificates),
        "websocket": over_websocket(prefers_text=False),
        "websocket text": over_websocket(prefers_text=True),
        "websocket over tls": over_both(certificates),
    }
    opened: AbstractAsyncContextManager[Ends] = by_socket(Endpoint(Scheme.STOMP, "127.0.0.1", 0))
    if request.param == "memory":
        opened = by_memory()
    if request.param == "unix":
        opened = by_socket(Endpoint(Scheme.UNIX, path=str(tmp_path / "s")))
    with trio.fail_after(HARD_TIMEOUT_S):
        async with opened as ends:
            yield await carriers.get(request.param, plain)(*ends)


async def end_sending(client: trio.abc.Stream) -> None:
    """As each kind of client says that it has nothing more to send."""
    match client:
        case trio.SSLStream():
            with suppress(trio.BrokenResourceError):
                await client.unwrap()
        case WebSocketStream() | trio.abc.HalfCloseableStream():
            await client.send_eof()


async def received_by(client: trio.abc.ReceiveStream) -> bytes:
    return b"".join([bytes(chunk) async for chunk in client])


#: TLS hands on whole records.
MAX_MORE_BYTES = 16 * 1024


async def test_it_receives_what_the_client_sends_and_then_its_end(ends: Ends) -> None:
    client, ours = ends
    received = b""

    async def send() -> None:
        await client.send_all(b"abcdef")
        await end_sending(client)

    async def receive() -> None:
        nonlocal received
        while chunk := await ours.receive_some(4):
            assert type(chunk) is bytes
            assert len(chunk) <= 4 + MAX_MORE_BYTES
            received += chunk
        assert await ours.receive_some(4) == b""
        await ours.finish()

    await both(send, receive)

    assert received == b"abcdef"


async def test_what_does_not_go_now_goes_by_waiting_and_nothing_is_sent_twice(ends: Ends) -> None:
    client, ours = ends
    sent_bytes = 0
    with suppress(OSError):
        sent_bytes = ours.send_now(MUCH)
    assert sent_bytes < len(MUCH)

    async def send_the_rest() -> None:
        await ours.send_all(MUCH[sent_bytes:])
        await ours.finish()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_the_rest)
        assert await received_by(client) == MUCH
        await client.aclose()


async def test_several_buffers_arrive_as_if_they_were_one(ends: Ends) -> None:
    """More than a system call takes, some of them large, of which the kernel takes a part."""
    client, ours = ends
    parts: list[Buffer] = [b"%d " % number for number in range(3000)]
    parts += [MUCH, b"", memoryview(MUCH)[7:], *parts, b"end"]
    sent_bytes = 0
    with suppress(OSError):
        sent_bytes = ours.send_now(*parts)
    rest = rest_of(parts, sent_bytes)
    assert len(rest) > 1024
    received = b""

    async def send() -> None:
        await ours.send_all(*rest)
        await ours.finish()

    async def receive() -> None:
        nonlocal received
        received = await received_by(client)

    await both(send, receive)

    assert received == joined(parts)


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
    async with by_memory() as (client, ours):
        began_at = trio.current_time()

        await ours.finish()

        assert trio.current_time() - began_at == LINGER_S
        assert await client.receive_some() == b""


async def test_finishing_does_not_wait_longer_for_one_that_goes_on_sending(autojump_clock: MockClock) -> None:
    async with by_memory() as (client, ours), trio.open_nursery() as nursery:

        async def chatter() -> None:
            while True:
                await client.send_all(b"and another thing\n")
                await trio.sleep(LINGER_S / 10)

        began_at = trio.current_time()
        nursery.start_soon(chatter)
        await ours.finish()
        nursery.cancel_scope.cancel()

    assert trio.current_time() - began_at == LINGER_S
