"""Who is served when more connect than there are places.

Time is real here, since a server and sockets take part; nothing is concluded from how fast something was."""

from __future__ import annotations

import resource
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.management import server
from stompbroker.management.events import Events
from stompbroker.transport import raise_descriptor_limit
from tests.management.asker import served
from tests.management.test_events import EVENTS, connected, until, watching
from tests.support.broker_under_test import running_broker
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.management.asker import Asker

#: More than there are places.
CROWD = server.MAX_CONNECTIONS + 88
HALF_A_REQUEST = b"GET /api/v1/overview HTTP/1.1\r\nHost: loc"


@pytest.fixture
def enough_descriptors() -> Iterator[None]:
    """Both ends of every connection are in this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if raise_descriptor_limit() < 2 * CROWD + 200:
        pytest.skip("the system does not allow enough descriptors")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def expect_health(ask: Asker) -> None:
    # Each on a connection of its own, as a probe has it.
    for path in ("live", "ready"):
        response = await ask.client.get(f"/health/{path}", headers={"Connection": "close"})
        assert (response.status_code, response.json()) == (200, {"status": path})


async def is_closed(stream: trio.SocketStream) -> bool:
    with trio.fail_after(HARD_TIMEOUT_S), suppress(trio.BrokenResourceError):
        return not await stream.receive_some()
    return True


@pytest.mark.usefixtures("enough_descriptors")
@pytest.mark.parametrize("beginning", [b"", HALF_A_REQUEST, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
async def test_a_crowd_that_asks_for_nothing_shuts_nobody_out(
    beginning: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_S", 10 * HARD_TIMEOUT_S)  # nobody is helped by waiting
    async with running_broker() as broker, served(broker, token="a" * 32) as ask, AsyncExitStack() as crowd:
        for _ in range(CROWD):
            stream = await crowd.enter_async_context(connected(ask))
            if beginning:
                await stream.send_all(beginning)

        await expect_health(ask)


async def test_the_longest_idle_makes_room_and_event_streams_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    async with running_broker() as broker, served(broker) as ask:
        async with watching(ask) as one, watching(ask) as other, connected(ask) as first, connected(ask) as second:
            await first.send_all(HALF_A_REQUEST)
            async with connected(ask) as third:
                assert await is_closed(first)
                await second.send_all(HALF_A_REQUEST + b"alhost\r\n\r\n")
                assert (await second.receive_some()).startswith(b"HTTP/1.1 200")

                # The second has asked for something since the third came.
                await expect_health(ask)
                assert await is_closed(third)
            for stream in (one, other):
                assert (await stream.next())[0] == "overview"
            assert broker.parts.control.sampler.watchers == 2


async def test_whoever_does_not_read_an_answer_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(server, "STALLED_S", 0.0)

    async def make_large(self: Events, resource: str | None) -> bytes:
        return b": " + b"x" * 10_000_000 + b"\n\n"

    monkeypatch.setattr(Events, "_make", make_large)
    async with running_broker() as broker, served(broker) as ask, connected(ask) as stuck:
        await stuck.send_all(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % EVENTS.encode())
        assert (await stuck.receive_some(1_000)).startswith(b"HTTP/1.1 200")
        await wait_all_tasks_blocked()  # now its event is being sent

        # One request: the only place is still taken for a moment after a client has read its whole answer.
        assert (await ask.client.get("/health/live")).status_code == 200

        await until(lambda: broker.parts.control.sampler.watchers == 0, "it is given up")


async def test_whoever_has_left_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(server, "IDLE_S", 10 * HARD_TIMEOUT_S)
    async with running_broker() as broker, served(broker) as ask:
        async with connected(ask) as waiting:
            for _ in range(5):
                async with connected(ask) as leaving:
                    await leaving.send_eof()
                    assert await is_closed(leaving)

            await waiting.send_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await waiting.receive_some()).startswith(b"HTTP/1.1 200")
