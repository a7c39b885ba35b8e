"""Many messages over one connection: the moments that matter, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from stompbroker.cli import publication
from stompbroker.cli.publication import Publication, repeated
from stompbroker.cli.target import Target

if TYPE_CHECKING:
    from tests.support.scripted_peer import Peer

#: More than the buffers of a loopback connection hold, in bytes, so that sending it waits for the peer to read.
LARGE_BYTES = 32 * 1024**2


def of(body: bytes, count: int) -> Publication:
    return Publication(
        destination="t",
        headers=[],
        bodies=repeated(body, count),
        count=count,
        rate=None,
        is_numbered=False,
        wants_receipts=True,
        shows_progress=False,
    )


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "MAX_UNCONFIRMED", 1)


@pytest.mark.usefixtures("one_at_a_time")
async def test_no_more_is_sent_than_may_be_unconfirmed(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(of(b"x", 3).publish, Target(endpoint=peer.address.endpoint))
        await peer.greet()
        for number in range(1, 4):
            assert f"receipt:{number}\n".encode() in await peer.read_frame()
            await trio.testing.wait_all_tasks_blocked()
            # The next one waits for the receipt of this one, and DISCONNECT for that of the last.
            assert not peer.has_more()
            await peer.say(b"RECEIPT\nreceipt-id:%d\n\n\0" % number)
        assert (await peer.read_frame()).startswith(b"DISCONNECT\n")
        await peer.say(b"RECEIPT\nreceipt-id:disconnect\n\n\0")


@pytest.mark.usefixtures("one_at_a_time")
async def test_a_receipt_that_comes_while_sending_is_not_waited_for_again(peer: Peer) -> None:
    two = of(b"x" * LARGE_BYTES, 2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(two.publish, Target(endpoint=peer.address.endpoint))
        await peer.greet()
        await trio.testing.wait_all_tasks_blocked()  # in the middle of sending the first
        await peer.say(b"RECEIPT\nreceipt-id:1\n\n\0")
        await trio.testing.wait_all_tasks_blocked()  # the receipt has arrived, the first is still being sent

        for _ in range(2):
            await peer.read_frame()
        assert not peer.has_more()
        await peer.say(b"RECEIPT\nreceipt-id:2\n\n\0")
        await peer.read_frame()
        await peer.say(b"RECEIPT\nreceipt-id:disconnect\n\n\0")

    assert (two.as_json()["published"], two.as_json()["receipts"]) == (2, 2)
