"""The client and a whole broker on memory streams, with the connection cut at any byte, in either direction."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import pytest
import trio

from stompbroker.client import OutcomeUnknown, TransactionLost, connect

if TYPE_CHECKING:
    import ssl

    from trio.testing import MockClock

    from stompbroker.client import Client
    from stompbroker.transport import Endpoint
    from tests.support.broker_under_test import BrokerUnderTest
    from tests.support.broker_under_test import Client as Witness

#: More than either side says in the conversation, in bytes.
LENGTH: Final = 2_000
#: Prime, so that cuts fall at different places of the frames.
STEP: Final = 17


#: How a transaction may end → how often it may have been done.
DONE: Final[dict[type[Exception] | None, set[int]]] = {None: {1}, TransactionLost: {0}, OutcomeUnknown: {0, 1}}


@final
class CutStream(trio.abc.Stream):
    """Breaks when so many bytes were sent, or so many received; what is beyond is lost."""

    def __init__(self, stream: trio.abc.Stream, sends: int, receives: int) -> None:
        self._stream = stream
        self._sends = sends
        self._receives = receives

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        passed = bytes(data)[: self._sends]
        self._sends -= len(data)
        await self._stream.send_all(passed)
        if self._sends <= 0:
            await self._stream.aclose()
            raise trio.BrokenResourceError

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._receives <= 0:
            await self._stream.aclose()
            raise trio.BrokenResourceError
        chunk = bytes(await self._stream.receive_some(self._receives))
        self._receives -= len(chunk)
        return chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def client_of(broker: BrokerUnderTest, sends: int, receives: int) -> Client:
    """Its first connection is cut, later ones are not."""
    cuts = iter([(sends, receives)])

    async def open_stream(_: Endpoint, __: ssl.SSLContext | None) -> trio.abc.Stream:
        stream = (await broker.open()).stream
        return CutStream(stream, *next(cuts, (10 * LENGTH, 10 * LENGTH)))

    return connect("stomp://broker", heart_beat=0, open_with=open_stream)


async def converse(client: Client, name: str) -> type[Exception] | None:
    """Publish, move a message from one queue to another in a transaction, and receive it there. Returns how the
    transaction went."""
    outcome: type[Exception] | None = None
    async with client:
        client.publish_nowait(f"/topic/{name}", b"1")
        client.publish_nowait(f"/topic/{name}", b"2")
        await client.publish(f"/queue/{name}", b"job")
        async with client.subscribe(f"/queue/{name}") as messages:
            message = await anext(messages)
            try:
                async with client.transaction() as transaction:
                    transaction.publish(f"/topic/{name}.done", b"done")
                    message.ack(transaction=transaction)
            except (OutcomeUnknown, TransactionLost) as error:
                outcome = type(error)
        await client.publish(f"/topic/{name}", b"3")
        client.check_invariants()
    return outcome


async def heard(witness: Witness) -> Counter[bytes]:
    await witness.send("SEND", b"end", destination="/topic/end")
    found = Counter[bytes]()
    while (body := (await witness.next_message()).body) != b"end":
        found[body] += 1
    return found


@pytest.mark.parametrize("direction", ["sent", "received"])
async def test_nothing_is_lost_and_a_transaction_is_whole(
    autojump_clock: MockClock, broker: BrokerUnderTest, direction: str
) -> None:
    outcomes = set()
    witness = await broker.client()
    await witness.subscribe("/topic/>")
    for cut in range(1, LENGTH, STEP):
        sends, receives = (cut, 10 * LENGTH) if direction == "sent" else (10 * LENGTH, cut)

        outcome = await converse(client_of(broker, sends, receives), f"t{cut}")

        found = await heard(witness)
        assert min(found[b"1"], found[b"2"], found[b"3"]) >= 1, (cut, found)
        assert max(found[b"1"], found[b"2"], found[b"3"]) <= 2, (cut, found)
        assert found[b"done"] in DONE[outcome], (cut, outcome)
        outcomes.add(outcome)
    assert OutcomeUnknown in outcomes, "otherwise the moments that matter were not among the cuts"
    assert None in outcomes
