"""Transactions: all or nothing, and what is known when the connection is lost on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.client import OutboxFull, OutcomeUnknown, Refused, TransactionLost
from tests.client.scripted_broker import ScriptedBroker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.client import Client, Message
    from tests.client.scripted_broker import Connection


async def next_transaction(connection: Connection) -> list[tuple[str, bytes]]:
    """Commands and bodies, COMMIT not among them."""
    name = (await connection.next_frame("BEGIN")).headers["transaction"]
    found = []
    for command in ("SEND", "ACK"):
        said = await connection.next_frame(command)
        assert said.headers["transaction"] == name
        found.append((said.command, said.body))
    return found


async def test_it_is_sent_as_a_whole_and_confirmed_once(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/queue/in") as messages:
                message = await anext(messages)
                async with client.transaction() as transaction:
                    transaction.publish("/queue/out", b"done")
                    message.ack(transaction=transaction)
                    await wait_all_tasks_blocked()
                async with client.transaction():
                    pass  # nothing in it, nothing sent

        connection = await broker.accept()
        await connection.take_subscription()
        await connection.deliver("1", b"1")
        assert await next_transaction(connection) == [("SEND", b"done"), ("ACK", b"")]
        commit = await connection.next_frame("COMMIT")
        await connection.hears_nothing()
        await connection.confirm(commit)
        await connection.part("UNSUBSCRIBE")


async def test_nothing_is_sent_of_one_that_failed(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(KeyError):
                    await fail_within(client)

        async def fail_within(client: Client) -> None:
            async with client.transaction() as transaction:
                transaction.publish("/queue/out", b"done")
                raise KeyError

        await (await broker.accept()).part()


async def test_lost_between_commit_and_its_receipt_nobody_knows(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(OutcomeUnknown, match="between COMMIT and its receipt"):
                    async with client.transaction() as transaction:
                        transaction.publish("/queue/out", b"done")
                await client.publish("/queue/out", b"next")

        first = await broker.accept()
        for command in ("BEGIN", "SEND", "COMMIT"):
            await first.next_frame(command)
        await first.cut()
        second = await broker.accept()
        send = await second.next_frame("SEND")
        assert send.body == b"next", "an unknown transaction is not repeated"
        await second.confirm(send)
        await second.part()


async def test_what_the_broker_said_when_it_was_lost_is_the_cause(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(OutcomeUnknown) as caught:
                    async with client.transaction() as transaction:
                        transaction.publish("/topic/*", b"")
                assert isinstance(caught.value.__cause__, Refused)
                assert caught.value.__cause__.message == "a pattern"

        first = await broker.accept()
        for command in ("BEGIN", "SEND", "COMMIT"):
            await first.next_frame(command)
        await first.refuse(message="a pattern")


async def test_lost_before_commit_left_nothing_was_done(autojump_clock: MockClock) -> None:
    # Its bytes wait behind others that the broker does not read.
    broker = ScriptedBroker(lockstep=True)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/queue/in") as messages:
                message = await anext(messages)
                client.publish_nowait("/queue/out", b"x")
                await wait_all_tasks_blocked()
                with pytest.raises(TransactionLost, match="before COMMIT was sent: nothing of the transaction"):
                    async with client.transaction() as transaction:
                        message.ack(transaction=transaction)
                await client.flush()

        first = await broker.accept()
        await first.take_subscription()
        await first.deliver("1", b"1")
        await wait_all_tasks_blocked()
        await first.cut()
        second = await broker.accept()
        await second.take_subscription()
        await second.confirm(await second.next_frame("SEND"))
        await second.part("UNSUBSCRIBE")


async def test_without_acknowledgements_it_can_wait_for_the_next_connection(autojump_clock: MockClock) -> None:
    broker, is_lost = ScriptedBroker(), trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                async with client.transaction() as transaction:
                    transaction.publish("/queue/out", b"done")
                    await is_lost.wait()

        await (await broker.accept()).cut()
        is_lost.set()
        second = await broker.accept()
        for command in ("BEGIN", "SEND"):
            await second.next_frame(command)
        await second.confirm(await second.next_frame("COMMIT"))
        await second.part()


async def test_an_acknowledgement_that_is_late_ends_the_transaction_even_if_its_error_is_ignored(
    autojump_clock: MockClock,
) -> None:
    broker, is_lost = ScriptedBroker(), trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/queue/in") as messages:
                message = await anext(messages)
                await is_lost.wait()
                with pytest.raises(TransactionLost, match="the message comes again"):
                    await ignore_late(client, message)

        async def ignore_late(client: Client, message: Message) -> None:
            async with client.transaction() as transaction:
                transaction.publish("/queue/out", b"done")
                with pytest.raises(TransactionLost):
                    message.ack(transaction=transaction)

        first = await broker.accept()
        await first.take_subscription()
        await first.deliver("1", b"1")
        await wait_all_tasks_blocked()
        await first.cut()
        second = await broker.accept()
        await second.take_subscription()
        is_lost.set()
        await second.part("UNSUBSCRIBE")


async def test_a_refused_commit_says_why(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(max_unconfirmed_bytes=10_000) as client:
                with pytest.raises(Refused, match="disk"):
                    await do_much(client)

        async def do_much(client: Client) -> None:
            async with client.transaction() as transaction:
                transaction.publish("/queue/out", b"done")
                with pytest.raises(OutboxFull, match="10,000 bytes"):
                    transaction.publish("/queue/out", b"x" * 10_000)

        first = await broker.accept()
        for command in ("BEGIN", "SEND"):
            await first.next_frame(command)
        await first.refuse(await first.next_frame("COMMIT"), "disk full")
