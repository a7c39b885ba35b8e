"""One ability of our client after the other, against a broker of others that nobody kills.

Each check has destinations of its own, returns figures, and raises AssertionError for what is not so. The connections
that are lost here are lost on our side: the stream is closed without a word.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import trio

from soak.foreign.brokers import LOGIN
from stompbroker.client import (
    Answered,
    LoginRefused,
    Message,
    NoAnswer,
    NobodyListens,
    Refused,
    TransactionLost,
)
from stompbroker.stomp import Version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from soak.foreign.brokers import There
    from stompbroker.client import Client, Subscription

_MESSAGES: Final = 1_000
_CALLS: Final = 200
_TRANSACTIONS: Final = 50
_IN_TRANSACTION: Final = 10
_LARGE: Final = bytes(range(256)) * 4_096
#: Every character that a header escapes, and some that it does not.
_AWKWARD: Final = 'a:b\\c\nd "é" €'
#: For what comes by itself, and for what must not come, in seconds.
_PATIENCE_S: Final = 30.0
_QUIET_S: Final = 0.5


async def _login(there: There) -> str:
    refused = 0
    for wrong in ({"passcode": "wrong"}, {"login": "nobody"}, {"login": None, "passcode": None}):
        try:
            async with there.client(**wrong):
                # RabbitMQ has a default user for whoever names none.
                assert wrong["passcode"] is None, "a wrong password was taken"
        except LoginRefused:
            refused += 1
    async with there.client() as client:
        assert client.statistics.is_connected
    return f"{LOGIN} gets in; {refused} wrong logins were refused, none was tried again"


async def _headers_and_bodies(there: There) -> str:
    checked = 0
    for version in (Version.V1_1, Version.V1_2):
        destination = f"/queue/headers.{version.value}"
        async with there.client(version=version) as client, client.subscribe(destination) as messages:
            for body in (b"", b"\0", b"a\n\nb\0c\r\n", "€".encode(), _LARGE):
                await client.publish(destination, body, headers={"awkward": _AWKWARD, "x": ""}, persistent=True)
                message = await _next(messages)
                assert message.body == body
                assert message.headers["awkward"] == _AWKWARD, message.headers
                await message.ack_confirmed()
                checked += 1
    return f"{checked} messages came as they were sent, up to {len(_LARGE):,} bytes, in STOMP 1.1 and 1.2"


async def _receipts(there: There) -> str:
    began_at = trio.current_time()
    bodies = _numbered(_MESSAGES)
    async with there.client() as client:
        for body in bodies:
            await client.publish_soon("/queue/receipts", body, persistent=True)
        await client.flush()
        elapsed_s = trio.current_time() - began_at
        assert client.statistics.confirmed == _MESSAGES
        assert await _drain(client, "/queue/receipts", _MESSAGES) == bodies
    return f"{_MESSAGES:,} messages, each with a receipt, came once and in order; {_MESSAGES / elapsed_s:,.0f} a second"


async def _acknowledgements(there: There) -> str:
    """What was not acknowledged before a connection was lost comes again, and nothing else."""
    bodies = _numbered(100)
    async with there.client() as client:
        for body in bodies:
            await client.publish_soon("/queue/acks", body, persistent=True)
        await client.flush()
    kept = set(bodies[1::2])
    async with there.client() as client, client.subscribe("/queue/acks", prefetch=200) as messages:
        first = [await _next(messages) for _ in bodies]
        for message in first:
            if message.body not in kept:
                await message.ack_confirmed()
        await _cut(client)
        assert first[1].ack() is Answered.LATE
        again = [await _next(messages) for _ in kept]
        assert {message.body for message in again} == kept
        marked = sum(message.is_redelivered for message in again)
        for message in again:
            message.ack()
    async with there.client() as client, client.subscribe("/queue/acks") as messages:
        await _nothing(messages)
    return f"{len(kept)} of {len(bodies)} were not acknowledged and came again ({marked} marked as redelivered)"


async def _refusals(there: There) -> str:
    dead_letters = there.foreign.dead_letters
    async with there.client() as client, client.subscribe("/queue/nacks") as messages:
        await client.publish("/queue/nacks", b"refused", persistent=True)
        message = await _next(messages)
        assert message.nack() is Answered.SENT
        if dead_letters is not None:
            assert await _drain(client, dead_letters, 1) == [b"refused"]
            await _nothing(messages)
            return f"a refused message is in {dead_letters}"
        again = await _next(messages)
        assert again.is_redelivered
        again.nack(requeue=False)
        await _nothing(messages)
    return "a refused message came again, marked as redelivered; with requeue=False it did not"


async def _transactions(there: There) -> str:
    async with there.client() as client, client.subscribe("/queue/tx.in", prefetch=200) as messages:
        for number in range(_TRANSACTIONS):
            await client.publish("/queue/tx.in", b"%d" % number, persistent=True)
            message = await _next(messages)
            async with client.transaction() as transaction:
                for place in range(_IN_TRANSACTION):
                    transaction.publish("/queue/tx.out", b"%d %d" % (number, place), persistent=True)
                message.ack(transaction=transaction)
        await client.publish("/queue/tx.in", b"not done", persistent=True)
        message = await _next(messages)
        try:
            async with client.transaction() as transaction:
                transaction.publish("/queue/tx.out", b"not done", persistent=True)
                message.ack(transaction=transaction)
                raise KeyError
        except KeyError:
            pass
        try:
            async with client.transaction() as transaction:
                transaction.publish("/queue/tx.out", b"lost", persistent=True)
                await _cut(client)
                message.ack(transaction=transaction)
            raise AssertionError("a transaction was done although its connection was lost")
        except TransactionLost:
            pass
        again = await _next(messages)
        assert again.body == b"not done"
        again.ack()
        bodies = [b"%d %d" % (n, place) for n in range(_TRANSACTIONS) for place in range(_IN_TRANSACTION)]
        assert await _drain(client, "/queue/tx.out", len(bodies)) == bodies
        await _nothing(messages)
    each = f"{_IN_TRANSACTION} messages and an ACK"
    return f"{_TRANSACTIONS} with {each} were done; of one left and one lost there is no trace"


async def _durable(there: There) -> str:
    bodies = _numbered(100)
    async with there.client("durable") as client, client.subscribe("/topic/durable", durable="all"):
        pass
    async with there.client() as client:
        for body in bodies:
            await client.publish_soon("/topic/durable", body, persistent=True)
    async with there.client("durable") as client:
        assert await _drain(client, "/topic/durable", len(bodies), durable="all") == bodies
    async with there.client("durable") as client, client.subscribe("/topic/durable", durable="all") as messages:
        await _nothing(messages)
    return f"{len(bodies)} messages were kept for a durable subscriber that was away"


async def _client_id_taken(there: There) -> str:
    """A client that comes back before its old connection is missed."""
    async with there.client("twin"):
        if there.foreign.shares_client_ids:
            async with there.client("twin"):
                return "two connections may have one client id"
        async with trio.open_nursery() as nursery:
            waiting = there.client("twin")
            nursery.start_soon(waiting.__aenter__)
            await trio.sleep(_QUIET_S)
            assert not waiting.statistics.is_connected
            nursery.cancel_scope.cancel()
    with trio.fail_after(_PATIENCE_S):
        async with there.client("twin"):
            return "a second connection with a client id waits until the first has ended"


async def _calls(there: There) -> str:
    async def twice(request: Message) -> bytes:
        return 2 * request.body

    answered = Counter[str]()
    async with there.client() as server, there.client() as caller:

        async def ask(destination: str, number: int) -> None:
            answer = await caller.call(destination, b"%d" % number, timeout=_PATIENCE_S)
            assert answer.body == 2 * (b"%d" % number)
            answered[destination] += 1

        for destination in ("/queue/calls", "/topic/calls"):
            async with server.serve(destination, twice, at_once=4), trio.open_nursery() as nursery:
                for number in range(_CALLS):
                    nursery.start_soon(ask, destination, number)
        try:
            await caller.call("/topic/calls.nobody", b"?", timeout=0.5)
            raise AssertionError("nobody answered, and that was not told")
        except (NoAnswer, NobodyListens) as error:
            told = type(error).__name__
    return f"{answered.total()} calls of a queue and a topic got their own answers; without a server: {told}"


async def _errors(there: There) -> str:
    """An ERROR that names nothing is the fault of one message, and the others pass."""
    bodies = _numbered(20)
    async with there.client() as client:
        sent = [await client.publish_soon("/queue/errors", body, persistent=True) for body in bodies[:10]]
        wrong = await client.publish_soon("/nonsense/errors", b"?", persistent=True)
        sent += [await client.publish_soon("/queue/errors", body, persistent=True) for body in bodies[10:]]
        for each in sent:
            await each.wait()
        try:
            await wrong.wait()
            said = "it takes any destination"
        except Refused:
            said = f"a wrong destination was refused after {client.statistics.connections} connections"
        found = await _drain(client, "/queue/errors", len(bodies), is_exact=False)
        assert list(dict.fromkeys(found)) == bodies, found
    return f"{said}; the {len(bodies)} messages around it have arrived, {len(found) - len(bodies)} of them twice"


async def _heart_beats(there: There) -> str:
    """Both sides keep a connection alive on which nothing is said, for several times of what is agreed."""
    async with there.client(heart_beat=0.5) as client:
        await trio.sleep(4.0)
        assert client.statistics.connections == 1
        await client.publish("/queue/heart-beats", b"alive")
        assert await _drain(client, "/queue/heart-beats", 1) == [b"alive"]
    return "a silent connection with heart-beats of 0.5 s was alive after 4 s"


CHECKS: Final[dict[str, Callable[[There], Awaitable[str]]]] = {
    "login": _login,
    "headers and bodies": _headers_and_bodies,
    "receipts": _receipts,
    "acknowledgements": _acknowledgements,
    "refusals": _refusals,
    "transactions": _transactions,
    "durable": _durable,
    "client ids": _client_id_taken,
    "calls": _calls,
    "errors": _errors,
    "heart-beats": _heart_beats,
}


# Parts ---------------------------------------------------------------------------------------------------------------


def _numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def _next(messages: Subscription) -> Message:
    with trio.fail_after(_PATIENCE_S):
        return await anext(messages)


async def _nothing(messages: Subscription) -> None:
    """For a moment nothing comes."""
    with trio.move_on_after(_QUIET_S):
        message = await anext(messages)
        raise AssertionError(f"{message.body!r} came")


async def _drain(
    client: Client, destination: str, count: int, *, durable: str | None = None, is_exact: bool = True
) -> list[bytes]:
    """So many messages at least, and what comes in a moment after them, which must be nothing if `is_exact`."""
    bodies: list[bytes] = []
    async with client.subscribe(destination, durable=durable, prefetch=count) as messages:
        while True:
            with trio.move_on_after(_PATIENCE_S if len(bodies) < count else _QUIET_S) as waiting:
                message = await anext(messages)
            if waiting.cancelled_caught:
                assert len(bodies) >= count, f"{len(bodies):,} of {count:,} messages came from {destination}"
                assert len(bodies) == count or not is_exact, f"{len(bodies):,} messages instead of {count:,} came"
                return bodies
            bodies.append(message.body)
            await message.ack_confirmed()


async def _cut(client: Client) -> None:
    """Take the connection away, and wait until there is another one."""
    link, connections = client._core.requests.link, client.statistics.connections
    assert link is not None
    await trio.aclose_forcefully(link._stream)
    with trio.fail_after(_PATIENCE_S):
        while client.statistics.connections == connections or not client.statistics.is_connected:  # noqa: ASYNC110
            await trio.sleep(0.01)
