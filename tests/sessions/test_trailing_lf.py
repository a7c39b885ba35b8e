"""What follows the NUL of a frame: a line feed, or nothing if the operator says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.conformance.versions import answer, every_version
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame, Version

either_way = pytest.mark.parametrize("trailing_lf", [True, False])


def check_ends(received: bytes, frames: int, *, trailing_lf: bool) -> None:
    """No body in these tests holds a NUL."""
    end = b"\0\n" if trailing_lf else b"\0"
    assert received.endswith(end)
    *whole, rest = received.split(end)
    assert rest == b""
    assert all(frame.partition(b"\n")[0].isupper() for frame in whole), "each begins with its command"
    assert len(whole) == frames


async def test_by_default_there_is_one(autojump_clock: MockClock) -> None:
    async with running_broker() as broker:
        client = await broker.client()

        check_ends(client.received, 1, trailing_lf=True)


@either_way
@every_version
@pytest.mark.parametrize("ack", ["auto", "client"])
async def test_every_frame_of_a_session_ends_alike(
    autojump_clock: MockClock, version: Version, ack: str, trailing_lf: bool
) -> None:
    async with running_broker(trailing_lf=trailing_lf) as broker:
        client = await broker.client(version)
        await client.subscribe(ack=ack, id="50%d")
        await client.publish(b"1", b"", b"2\n", receipt="r")
        messages: list[Frame] = []
        while len(messages) < 3:
            frame = await client.next_frame()
            messages += [frame] if frame.command == "MESSAGE" else []
        await client.send("NONSENSE")
        await client.expect_error("unknown command")

        assert [message.body for message in messages] == [b"1", b"", b"2\n"]
        assert {message.headers["subscription"] for message in messages} == {"50%d"}
        # CONNECTED, four RECEIPTs, three MESSAGEs, ERROR.
        check_ends(client.received, 9, trailing_lf=trailing_lf)


@either_way
async def test_what_comes_again_and_what_says_its_offset_ends_alike(
    autojump_clock: MockClock, trailing_lf: bool
) -> None:
    table = {"pattern": "kept", "retain_messages": 10}
    async with running_broker(trailing_lf=trailing_lf, topics=(table,)) as broker:
        client = await broker.client()
        for destination in ("/topic/a", "/topic/kept"):
            await client.subscribe(destination, id=destination, ack="client-individual")
            await client.publish(b"1", b"2", destination=destination)
            for message in await client.next_messages(2):
                await answer(client, "NACK", message, delay="0", reason="100% wrong")
            again = await client.next_messages(2)

            assert [message.body for message in again] == [b"1", b"2"]
            assert {message.headers["redelivery-reason"] for message in again} == {"100% wrong"}
        check_ends(client.received, 11, trailing_lf=trailing_lf)


@either_way
async def test_a_store_knows_nothing_of_it(store_directory: Path, trailing_lf: bool) -> None:
    """What was stored with one setting is delivered with the other."""
    bodies = [b"one", b"", b"three\n"]
    async with running_broker(store_in=store_directory, trailing_lf=not trailing_lf) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(*bodies)
        assert {bytes(tail)[-1:] for (tail,) in broker.look("SELECT tail FROM messages")} == {b"\0"}

    async with running_broker(store_in=store_directory, trailing_lf=trailing_lf) as broker:
        subscriber = await broker.durable_subscriber()

        assert await subscriber.next_bodies(3) == bodies
        check_ends(subscriber.received, 5, trailing_lf=trailing_lf)
