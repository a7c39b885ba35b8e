"""The command line's STOMP client, against peers that behave and peers that do not."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.stomp_client import HEART_BEAT_MARGIN, HEART_BEAT_MS, connect
from stompbroker.cli.stream import CONNECT_TIMEOUT_S
from tests.cli.scripted_peer import target_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from tests.cli.scripted_peer import Peer

HEART_BEAT_S = HEART_BEAT_MS / 1000


@asynccontextmanager
async def failing_with(words: str) -> AsyncIterator[None]:
    """The block fails with this sentence; errors pass through nurseries, hence the group."""
    with pytest.RaisesGroup(pytest.RaisesExc(CommandFailed, match=words), allow_unwrapped=True, flatten_subgroups=True):
        yield


async def test_connect_offers_1_2_and_heart_beats(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        said: list[bytes] = []

        @nursery.start_soon
        async def answer() -> None:
            said.append(await peer.greet())

        async with connect(peer.target):
            pass

    command, *headers = said[0].decode().split("\n")
    assert command == "CONNECT"
    assert {"accept-version:1.2", "host:127.0.0.1", "heart-beat:10000,10000"} <= set(headers)


async def test_an_error_frame_is_shown_with_its_details(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with failing_with(r"The broker refused: no such topic\n  use another$"):
            async with connect(peer.target) as client:
                await peer.say(b"ERROR\nmessage:no such topic\n\nuse another\n\0")
                await client.receive()


async def test_an_error_instead_of_connected_is_shown(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet, b"ERROR\nmessage:too many connections\n\n\0")
        async with failing_with("The broker refused: too many connections$"):
            async with connect(peer.target):
                pytest.fail("not connected")


async def test_messages_that_came_before_an_error_are_not_lost(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with failing_with("The broker refused: over"):
            async with connect(peer.target) as client:
                await peer.say(b"MESSAGE\n\none\0MESSAGE\n\ntwo\0ERROR\nmessage:over\n\n\0")

                assert [frame.body for frame in await client.receive()] == [b"one", b"two"]

                await client.receive()


async def test_the_last_words_of_the_broker_are_heard_although_it_no_longer_listens(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with failing_with("The broker refused: go away"):
            async with connect(peer.target) as client:
                await peer.say(b"ERROR\nmessage:go away\n\n\0")
                await peer.stream.aclose()
                for _ in range(3):
                    await client.send(b"SEND\ndestination:a\n\n\0")
                await client.receive()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"MESSAGE\n\n\0"])
async def test_somebody_who_does_not_speak_stomp_is_noticed(peer: Peer, answer: bytes) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet, answer)
        async with failing_with("does not speak STOMP"):
            async with connect(peer.target):
                pytest.fail("not connected")


async def test_a_closed_connection_is_noticed(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with failing_with("closed the connection"):
            async with connect(peer.target) as client:
                await peer.stream.aclose()
                await client.receive()


async def test_a_peer_that_accepts_and_says_nothing_is_given_up(peer: Peer, mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def attempt() -> None:
            async with failing_with("nothing for 10 seconds; is it a STOMP broker"):
                async with connect(peer.target):
                    pytest.fail("not connected")

        await peer.greet(b"")
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(CONNECT_TIMEOUT_S)


async def test_heart_beats_are_sent_while_nothing_else_is(peer: Peer, mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with connect(peer.target):
            for _ in range(3):
                await trio.testing.wait_all_tasks_blocked()
                mock_clock.jump(HEART_BEAT_S / 2)
                assert await peer.stream.receive_some() == b"\n"


async def test_no_heart_beats_are_sent_to_a_broker_that_wants_none(peer: Peer, mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet, b"CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0")
        async with connect(peer.target) as client:
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(1000 * HEART_BEAT_S)
            await client.send(b"SEND\ndestination:a\n\n\0")
            assert await peer.stream.receive_some() == b"SEND\ndestination:a\n\n\0"


async def test_a_silent_broker_is_lost_only_after_the_margin(peer: Peer, mock_clock: MockClock) -> None:
    heard: list[bytes] = []

    async def listen(port: int) -> None:
        async with failing_with("nothing for 20 seconds; the broker or the network hangs"):
            async with connect(target_at(port)) as client:
                while True:
                    heard.extend(frame.body for frame in await client.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, peer.port)
        await peer.greet()
        for _ in range(3):  # a heart-beat just in time keeps it alive
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(HEART_BEAT_MARGIN * HEART_BEAT_S - 0.1)
            await peer.say(b"\n")
        await trio.testing.wait_all_tasks_blocked()
        await peer.say(b"MESSAGE\n\nstill here\0")
        await trio.testing.wait_all_tasks_blocked()
        assert heard == [b"still here"]

        mock_clock.jump(HEART_BEAT_MARGIN * HEART_BEAT_S)


async def test_frames_that_come_before_a_receipt_are_kept(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with connect(peer.target) as client:
            await peer.say(b"MESSAGE\n\none\0RECEIPT\nreceipt-id:other\n\n\0RECEIPT\nreceipt-id:mine\n\n\0")

            others = await client.wait_receipt("mine")

    assert [(frame.command, frame.body) for frame in others] == [("MESSAGE", b"one"), ("RECEIPT", b"")]


async def test_disconnect_waits_for_its_receipt(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        async with connect(peer.target) as client:
            async with trio.open_nursery() as inner:
                inner.start_soon(client.disconnect)
                assert await peer.read_frame() == b"DISCONNECT\nreceipt:disconnect\n\n"
                await trio.testing.wait_all_tasks_blocked()
                assert len(inner.child_tasks) == 1
                await peer.say(b"RECEIPT\nreceipt-id:disconnect\n\n\0")


async def test_nobody_listening_is_a_sentence_that_says_what_to_do() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()

    async with failing_with(rf'No broker listens on 127\.0\.0\.1:{port}\. Start a broker with "stompbroker serve"'):
        async with connect(target_at(port)):
            pass


async def test_an_unknown_host_is_named() -> None:
    async with failing_with('There is no host called "no-such-host.invalid"'):
        async with connect(target_at(61613, "no-such-host.invalid")):
            pass
