"""What has ended is freed by counting references: topics, and connections however they end.

The interpreter's search for reference cycles looks at every object there is, so nothing may depend on it. It is off
here, and finds nothing when it is run at the end. Clients are on sockets, as in `test_hot_path_on_sockets`.
"""

from __future__ import annotations

import gc
import socket
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.stomp import Version
from stompbroker.transport import TcpTransport
from tests.management.asker import served
from tests.support.broker_under_test import Client, running_broker
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest

#: How often each life is lived before anything is counted, so that caches are filled; and then.
WARM_UP: Final = 3
LIVES: Final = 50
#: How often it may be counted: threads that an earlier test has given up end when they will, and what they had in hand
#: is found here. What a life leaves behind is left each time.
ROUNDS: Final = 3
#: Unreachable objects that the libraries below us may leave in all of these; SQLAlchemy does where a statement is new.
MAX_UNREACHABLE: Final = 4 * LIVES

WINDOW: Final = 10
#: Where what is kept for connections and topics is defined: what is on its way to the ledger stays until it is there.
KEPT_FOR_CLIENTS: Final = tuple(
    f"stompbroker.{part}"
    for part in ("changes", "delivery", "errors", "management", "sessions", "signals", "stomp", "transport")
)
#: What stays, within a bound of its own: names that were read lately, pages.
STAYS: Final = {
    "stompbroker.delivery.destination.Pattern",
    "stompbroker.delivery.pages._Page",
}
#: For SO_LINGER: a socket that is closed resets its connection.
RESET: Final = b"\1\0\0\0\0\0\0\0"


@final
class World:
    """A broker with a store and small windows, and connections to it."""

    def __init__(self, broker: BrokerUnderTest, nursery: trio.Nursery) -> None:
        self.broker = broker
        self._nursery = nursery

    async def open(self) -> Client:
        """A connection on which nothing has been said."""
        ours, theirs = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair())
        before = set(self.broker.parts.sessions)
        self._nursery.start_soon(self.broker.parts.serve_connection, TcpTransport(theirs, "a socket"))
        await wait_all_tasks_blocked()
        (new,) = set(self.broker.parts.sessions) - before
        return Client(ours, self.broker.parts.sessions[new], patience_s=HARD_TIMEOUT_S)

    async def client(self, **headers: str) -> Client:
        client = await self.open()
        await client.connect(Version.V1_2, **headers)
        return client

    async def settle(self) -> None:
        """Until all connections have ended, everything is written, and unused topics are removed."""
        with trio.fail_after(HARD_TIMEOUT_S):
            while self.broker.parts.sessions:
                await wait_all_tasks_blocked()
        await self.broker.settle()
        with trio.fail_after(HARD_TIMEOUT_S):
            while self.broker.registry.redeliveries.count:
                await wait_all_tasks_blocked()
            # A topic can go when the store has deleted its messages, which it does when there is nothing else to do.
            while any(name.startswith("once") for name in self.broker.registry.topics):
                self.remove_unused_topics()
                await wait_all_tasks_blocked()
        await self.broker.settle()
        # The latest sample has the counters of topics and subscriptions that have gone since.
        await self.broker.parts.control.sampler.take()

    def remove_unused_topics(self) -> None:
        now_ns = self.broker.clock.now_ns()
        for topic in list(self.broker.registry.topics.values()):
            self.broker.registry.collect(topic, now_ns, unused_since_ns=now_ns)


@asynccontextmanager
async def a_world(directory: Path) -> AsyncIterator[World]:
    async with (
        running_broker(store_in=directory, window_messages=WINDOW, redelivery_first_delay_ms=1) as broker,
        trio.open_nursery() as nursery,
    ):
        yield World(broker, nursery)


async def bye(client: Client) -> None:
    await client.send("DISCONNECT", receipt="bye")
    await client.expect_receipt("bye")
    await client.expect_closed()
    await client.stream.aclose()


async def vanish(client: Client) -> None:
    await client.stream.aclose()


# Lives ---------------------------------------------------------------------------------------------------------------


async def says_nothing(world: World, _number: int) -> None:
    await vanish(await world.open())


async def disconnects(world: World, _number: int) -> None:
    await bye(await world.client())


async def vanishes(world: World, _number: int) -> None:
    await vanish(await world.client())


async def is_reset(world: World, _number: int) -> None:
    client = await world.client()
    await client.subscribe("/topic/fixed")
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)  # type: ignore[attr-defined]
    await vanish(client)


async def sends_nonsense(world: World, _number: int) -> None:
    client = await world.client()
    await client.send("NONSENSE")
    await client.expect_error("NONSENSE")
    await vanish(client)


async def sends_nonsense_behind_a_frame(world: World, _number: int) -> None:
    client = await world.client()
    await client.send_raw(client.frame("SEND", b"x", destination="/topic/fixed") + client.frame("NONSENSE"))
    await client.expect_error("NONSENSE")
    await vanish(client)


async def is_refused_a_frame(world: World, _number: int) -> None:
    client = await world.client()
    await client.send("SUBSCRIBE", id="0", destination="/topic/")
    await client.expect_error()
    await vanish(client)


async def is_cut_off_by_the_operator(world: World, _number: int) -> None:
    client = await world.client()
    world.broker.parts.dismiss_clients()
    await client.expect_error("shutting down")
    await vanish(client)


async def subscribes_and_unsubscribes(world: World, _number: int) -> None:
    client = await world.client()
    await client.subscribe("/topic/fixed")
    await client.send("UNSUBSCRIBE", id="0")
    await bye(client)


async def is_delivered_to(world: World, _number: int) -> None:
    client = await world.client()
    await client.subscribe("/topic/fixed")
    await client.publish(b"x", destination="/topic/fixed")
    await client.next_message()
    await bye(client)


async def leaves_messages_in_flight(world: World, _number: int) -> None:
    client = await world.client()
    await client.subscribe("/topic/fixed", ack="client-individual")
    await client.publish(b"x", b"y", destination="/topic/fixed")
    await client.next_messages(2)
    await vanish(client)


async def refuses_messages(world: World, _number: int) -> None:
    client = await world.client()
    await client.subscribe("/topic/fixed", ack="client-individual")
    await client.publish(b"x", destination="/topic/fixed")
    message = await client.next_message()
    await client.send("NACK", id=message.headers["ack"])
    await client.next_message()
    await vanish(client)


async def leaves_a_transaction_open(world: World, _number: int) -> None:
    client = await world.client()
    await client.subscribe("/topic/fixed", ack="client")
    await client.publish(b"x", destination="/topic/fixed")
    message = await client.next_message()
    await client.send("BEGIN", transaction="t")
    await client.publish(b"y", destination="/topic/fixed", transaction="t")
    await client.send("ACK", id=message.headers["ack"], transaction="t", receipt="acked")
    await client.expect_receipt("acked")
    await vanish(client)


async def commits_a_transaction(world: World, _number: int) -> None:
    client = await world.client()
    await client.send("BEGIN", transaction="t")
    await client.publish(b"y", destination="/topic/fixed", transaction="t")
    await client.send("COMMIT", transaction="t")
    await bye(client)


async def subscribes_to_a_pattern(world: World, number: int) -> None:
    client = await world.client()
    await client.subscribe("/topic/once.of.>")
    await client.publish(b"x", destination=f"/topic/once.of.{number}")
    await client.next_message()
    await bye(client)


async def publishes_to_a_pattern(world: World, number: int) -> None:
    """A subscriber stays, and has a reading in each of the topics that come and go."""
    client = await world.client()
    subscriber = await world.client()
    await subscriber.subscribe("/topic/once.to.>")
    await client.publish(b"x", destination=f"/topic/once.to.{number}")
    await subscriber.next_message()
    await bye(client)
    await bye(subscriber)


async def has_a_durable_subscription(world: World, _number: int) -> None:
    client = await world.client(client_id="durable")
    await client.subscribe("/topic/durable", durable_subscription_name="d", ack="client-individual")
    await client.publish(b"x", destination="/topic/durable")
    await client.acknowledge(await client.next_message())
    await bye(client)


async def loses_a_durable_subscription(world: World, _number: int) -> None:
    """And comes back for what was in flight."""
    client = await world.client(client_id="lost")
    await client.subscribe("/topic/lost", durable_subscription_name="l", ack="client-individual")
    await client.publish(b"x", destination="/topic/lost")
    await client.next_message()
    await vanish(client)
    await world.settle()
    again = await world.client(client_id="lost")
    await again.subscribe("/topic/lost", durable_subscription_name="l", ack="client-individual")
    await again.acknowledge(await again.next_message())
    await bye(again)


async def deletes_a_durable_subscription(world: World, number: int) -> None:
    client = await world.client(client_id="deleted")
    name = f"n{number}"
    await client.subscribe(f"/topic/once.deleted.{number}", durable_subscription_name=name, ack="client-individual")
    await client.publish(b"x", destination=f"/topic/once.deleted.{number}")
    await client.next_message()
    await client.send("UNSUBSCRIBE", id="0", durable_subscription_name=name, receipt="gone")
    await client.expect_receipt("gone")
    await bye(client)


async def is_taken_over(world: World, number: int) -> None:
    client = await world.client(client_id=f"taken-{number}")
    await client.subscribe("/topic/taken", durable_subscription_name="t")
    other = await world.client(client_id=f"taken-{number}")
    await other.subscribe("/topic/taken", durable_subscription_name="t")
    await client.expect_error()
    await vanish(client)
    await other.send("UNSUBSCRIBE", id="0", durable_subscription_name="t", receipt="gone")
    await other.expect_receipt("gone")
    await bye(other)


async def publishes_to_topics_of_its_own(world: World, number: int) -> None:
    client = await world.client()
    for each in range(5):
        await client.publish(b"x", b"y", destination=f"/topic/once.own.{number}.{each}")
    await bye(client)


async def is_held_back(world: World, number: int) -> None:
    """And vanishes with frames and a mistake that are parked, before the subscriber that is too slow does."""
    subscriber = await world.client()
    await subscriber.subscribe(f"/topic/once.full.{number}", ack="client", prefetch_count="1")
    publisher = await world.client()
    await publisher.publish(*[b"x"] * 3 * WINDOW, destination=f"/topic/once.full.{number}")
    await publisher.sync()
    await publisher.publish(b"y", destination=f"/topic/once.full.{number}")
    await publisher.send("NONSENSE")
    await wait_all_tasks_blocked()
    assert publisher.session.is_held_back
    await vanish(publisher)
    await vanish(subscriber)


LIVED: Final[list[Callable[[World, int], Awaitable[None]]]] = [
    says_nothing,
    disconnects,
    vanishes,
    is_reset,
    sends_nonsense,
    sends_nonsense_behind_a_frame,
    is_refused_a_frame,
    is_cut_off_by_the_operator,
    subscribes_and_unsubscribes,
    is_delivered_to,
    leaves_messages_in_flight,
    refuses_messages,
    leaves_a_transaction_open,
    commits_a_transaction,
    subscribes_to_a_pattern,
    publishes_to_a_pattern,
    has_a_durable_subscription,
    loses_a_durable_subscription,
    deletes_a_durable_subscription,
    is_taken_over,
    publishes_to_topics_of_its_own,
    is_held_back,
]


# Counting ------------------------------------------------------------------------------------------------------------


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def ours() -> Counter[str]:
    """How many objects of each of our classes there are, but for those that may stay for a while."""
    names = map(_name, gc.get_objects())
    return Counter(name for name in names if name.startswith(KEPT_FOR_CLIENTS) and name not in STAYS)


def grown(before: Counter[str]) -> list[str]:
    """The classes that there are more objects of. An actor may have one connection in hand while it waits, with what
    belongs to it: three signals, one of anything else."""
    return [name for name, count in (ours() - before).items() if count > (3 if name.endswith(".Signal") else 1)]


def unreachable() -> Counter[str]:
    """What only the search for cycles finds, by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    return Counter(_name(each) for each in gc.garbage)


def _name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


@pytest.mark.parametrize("life", LIVED)
async def test_whoever_ends_leaves_nothing(
    life: Callable[[World, int], Awaitable[None]], store_directory: Path
) -> None:
    async with a_world(store_directory) as world:
        for number in range(WARM_UP):
            await life(world, number)
        await world.settle()
        for first in range(WARM_UP, WARM_UP + ROUNDS * LIVES, LIVES):
            left = await left_behind(world, life, range(first, first + LIVES))
            if not left:
                break
        assert not left, left


async def left_behind(world: World, life: Callable[[World, int], Awaitable[None]], numbers: range) -> object:
    """Of these lives."""
    with no_search_for_cycles():
        before = ours()
        for number in numbers:
            await life(world, number)
        await world.settle()
        with trio.move_on_after(HARD_TIMEOUT_S / 4):  # so that it can still say what is left
            while grown(before):  # the tasks of the last connections may still be ending
                await wait_all_tasks_blocked()
        if more := grown(before):
            return more
        found = unreachable()
        is_ours = any(name.startswith("stompbroker.") for name in found)
        return found if is_ours or found.total() > MAX_UNREACHABLE else None


async def test_deadlines_that_are_still_to_come_keep_no_session(store_directory: Path) -> None:
    async def leave_unanswered(world: World) -> None:
        client = await world.client()
        await client.subscribe("/topic/fixed", ack="client-individual", ack_deadline="600000")
        await client.publish(b"x", destination="/topic/fixed")
        await client.next_message()
        await vanish(client)

    async with a_world(store_directory) as world:
        with no_search_for_cycles():
            before = ours()
            for _ in range(LIVES):
                await leave_unanswered(world)
            await world.settle()

            assert world.broker.registry.deadlines.count == LIVES
            assert "stompbroker.sessions.session.Session" not in grown(before)


async def test_a_topic_that_is_gone_is_kept_by_nobody_who_published_to_it(store_directory: Path) -> None:
    async with a_world(store_directory) as world:
        client = await world.client()
        # With a header of its own: a block that is remembered would keep the topic.
        await client.publish(b"x", destination="/topic/once", number="1")
        await client.sync()
        with no_search_for_cycles():
            before = ours()

            world.remove_unused_topics()

            assert before - ours() >= Counter({"stompbroker.delivery.topic.Topic": 1})
            assert not client.session.client.publishing_to
        await bye(client)


async def test_requests_to_the_management_endpoint_leave_nothing(store_directory: Path) -> None:
    async def ask(port: int) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert b"200" in b"".join([bytes(chunk) async for chunk in stream])

    async with a_world(store_directory) as world, served(world.broker) as asker:
        port = asker.client.base_url.port
        assert port is not None
        for _ in range(WARM_UP):
            await ask(port)
        await wait_all_tasks_blocked()
        with no_search_for_cycles():
            before = ours()
            for _ in range(LIVES):
                await ask(port)
            await wait_all_tasks_blocked()

            assert not grown(before)
            found = unreachable()
            assert not [name for name in found if name.startswith("stompbroker.")]
            assert found.total() <= MAX_UNREACHABLE, found
