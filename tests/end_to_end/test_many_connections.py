"""Thousands of clients at once."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Final

import pytest
import trio

from stompbroker.stomp import render_frame
from tests.end_to_end.raw_client import send_frame
from tests.support.broker_process import running_broker
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import Address

CONNECTIONS: Final = 2_000
#: Beside the connections: the test's own files.
SPARE_DESCRIPTORS: Final = 200
#: Those that connect at the same time; a backlog may be shorter than all of them.
AT_ONCE: Final = 200

GREETING: Final = render_frame("CONNECT", [("accept-version", "1.2"), ("host", "test")]) + render_frame(
    "SUBSCRIBE", [("id", "0"), ("destination", "/topic/a"), ("receipt", "subscribed")]
)


@pytest.fixture
def enough_descriptors() -> Iterator[None]:
    """This process needs as many as the broker does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + SPARE_DESCRIPTORS
    if hard < needed:
        pytest.skip(f"the system allows {hard} descriptors, and {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("enough_descriptors")
def test_one_message_reaches_two_thousand_subscribers(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        received = trio.run(publish_to_all, broker.address)

        assert received == [b"for all of you"] * CONNECTIONS
        assert broker.statistics()["totals"]["delivered"] == CONNECTIONS


async def publish_to_all(address: Address) -> list[bytes]:
    """Subscribe with every connection, publish once, and return the bodies that came."""
    may_connect = trio.CapacityLimiter(AT_ONCE)
    streams: list[trio.SocketStream] = []
    bodies: list[bytes] = []

    async def subscribe() -> None:
        async with may_connect:
            stream = await trio.open_tcp_stream(*address)
            streams.append(stream)
            await stream.send_all(GREETING)
            answer = await receive_frames(stream, 2)
            assert b"RECEIPT\nreceipt-id:subscribed" in answer, answer

    async def receive(stream: trio.SocketStream) -> None:
        message = await receive_frames(stream, 1)
        bodies.append(message.partition(b"\0")[0].partition(b"\n\n")[2])

    with trio.fail_after(HARD_TIMEOUT_S):
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(CONNECTIONS):
                    nursery.start_soon(subscribe)
            async with trio.open_nursery() as nursery:
                for stream in streams:
                    nursery.start_soon(receive, stream)
                await streams[0].send_all(send_frame("/topic/a", b"for all of you"))
        finally:
            for stream in streams:
                stream.socket.close()
    return bodies


async def receive_frames(stream: trio.SocketStream, count: int) -> bytes:
    """What comes up to the NUL of the last of `count` frames; the bodies here hold none."""
    received = b""
    while received.count(b"\0") < count:
        chunk = await stream.receive_some()
        assert chunk, "the broker closed a connection"
        received += chunk
    return received
