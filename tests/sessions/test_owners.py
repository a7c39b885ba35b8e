"""A durable subscription belongs to the user who made it; one from a time without login can be adopted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.control import ControlError
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest, Client

NAMED = {"durable_subscription_name": "invoices"}
ADDRESSED = {"durable": "true"}
BY_QUEUE = {"x_queue_name": "invoices"}


def add_users(directory: Path) -> None:
    add_user(directory / "users.toml", "alice", read=["orders.>"], write=["orders.>"])
    add_user(directory / "users.toml", "bob", read=["orders.>"], write=["orders.>"])
    add_user(directory / "users.toml", "carol", read=["prices.>"])


async def log_in(broker: BrokerUnderTest, user: str) -> Client:
    return await broker.client(client_id="billing", login=user, passcode=PASSWORD)


async def store(broker: BrokerUnderTest, *bodies: bytes) -> None:
    publisher = await broker.client(login="alice", passcode=PASSWORD)
    await publisher.publish(*bodies, destination="/topic/orders.new")
    await publisher.sync()


@pytest.mark.parametrize("naming", [NAMED, ADDRESSED, BY_QUEUE])
async def test_two_users_have_a_subscription_each_under_the_same_name(
    store_directory: Path, naming: dict[str, str]
) -> None:
    add_users(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        alice, bob = await log_in(broker, "alice"), await log_in(broker, "bob")
        for client in (alice, bob):
            await client.subscribe("/topic/orders.>", ack="client-individual", **naming)

        await store(broker, b"1")

        assert await alice.next_bodies(1) == await bob.next_bodies(1) == [b"1"]
        owners = {identity.owner for identity in broker.registry.durable}
        assert owners == {"alice", "bob"}
        assert len({subscription.key for subscription in broker.registry.durable.values()}) == 2


@pytest.mark.parametrize("destination", ["/topic/orders.>", "/dsub/invoices"])
async def test_whoever_may_not_read_any_more_cannot_resume_it(store_directory: Path, destination: str) -> None:
    add_users(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        alice = await log_in(broker, "alice")
        await alice.subscribe("/topic/orders.>", **NAMED)
        await alice.vanish()
        await store(broker, b"secret")
    add_user(store_directory / "users.toml", "alice", read=["orders.old"])
    async with running_broker(store_in=store_directory) as broker:
        alice = await log_in(broker, "alice")

        await alice.send("SUBSCRIBE", id="0", destination=destination, **({} if "dsub" in destination else NAMED))

        await alice.expect_error("not allowed", f"to read '{destination}'")


async def test_nobody_else_can_resume_delete_or_learn_of_it(store_directory: Path) -> None:
    add_users(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        alice = await log_in(broker, "alice")
        await alice.subscribe("/topic/orders.>", ack="client-individual", **NAMED)

        for frame in (
            {"id": "0", "destination": "/dsub/invoices"},
            {"id": "0", "destination": "/dsub/nothing-of-the-kind"},
        ):
            bob = await log_in(broker, "bob")
            await bob.send("SUBSCRIBE", **frame)
            error = await bob.expect_error("unknown durable subscription")
            assert "alice" not in str(error)
        for naming in (NAMED, ADDRESSED, {"destination": "/dsub/invoices", **ADDRESSED}):
            bob = await log_in(broker, "bob")
            await bob.send("UNSUBSCRIBE", id="invoices", **naming)
            await bob.expect_error("unknown durable subscription")

        await alice.sync()
        assert len(broker.registry.durable) == 1


async def test_a_store_from_before_login_loses_no_backlog(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        first = await broker.durable_subscriber("/topic/orders.>", "invoices")
        await broker.store_messages(b"1", b"2", destination="/topic/orders.new")
        await first.vanish()

    add_users(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        carol = await log_in(broker, "carol")
        await carol.send("SUBSCRIBE", id="0", destination="/dsub/invoices")
        await carol.expect_error("unknown durable subscription")
        carol = await log_in(broker, "carol")
        await carol.subscribe("/topic/prices.>", **NAMED)
        alice = await log_in(broker, "alice")
        await alice.subscribe("/topic/orders.>", ack="client-individual", **NAMED)
        assert await alice.next_bodies(2) == [b"1", b"2"]
        bob = await log_in(broker, "bob")
        await bob.subscribe("/topic/orders.>", ack="client-individual", **NAMED)
        await broker.expect_silence(bob)
        await alice.vanish()

    async with running_broker(store_in=store_directory) as broker:
        bob = await log_in(broker, "bob")
        await bob.send("SUBSCRIBE", id="0", destination="/dsub/invoices", ack="client-individual", receipt="s")
        await bob.expect_receipt("s")
        await broker.expect_silence(bob)
        alice = await log_in(broker, "alice")
        await alice.send("SUBSCRIBE", id="0", destination="/dsub/invoices", ack="client-individual", receipt="s")
        await alice.expect_receipt("s")
        assert await alice.next_bodies(2) == [b"1", b"2"]


async def test_an_operator_gives_a_subscription_to_a_user(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        first = await broker.durable_subscriber("/topic/orders.>", "invoices")
        await broker.store_messages(b"1", destination="/topic/orders.new")
        await first.vanish()
    add_users(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        (subscription,) = broker.registry.durable.values()

        answer = await broker.parts.control.call("give_subscription", {"id": subscription.public_id, "owner": "bob"})

        assert (answer["owner"], answer["key"]) == ("bob", "bob/billing/invoices")
        bob = await log_in(broker, "bob")
        await bob.subscribe("/topic/orders.>", ack="client-individual", **NAMED)
        assert await bob.next_bodies(1) == [b"1"]


async def test_a_frame_that_is_refused_makes_nobody_an_owner(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        first = await broker.durable_subscriber("/topic/orders.>", "invoices")
        await broker.store_messages(b"1", destination="/topic/orders.new")
        await first.vanish()
    add_users(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        bob = await log_in(broker, "bob")
        await bob.send("SUBSCRIBE", id="0", destination="/topic/orders.other", **NAMED)
        await bob.expect_error("another destination")
        for frame in (NAMED, {"destination": "/dsub/invoices", **ADDRESSED}):
            bob = await log_in(broker, "bob")
            await bob.send("UNSUBSCRIBE", id="0", **frame)
            await bob.expect_error("durable subscription")

        alice = await log_in(broker, "alice")
        await alice.subscribe("/topic/orders.>", ack="client-individual", **NAMED)
        assert await alice.next_bodies(1) == [b"1"]


@pytest.mark.parametrize("owner", ["", "\ud800", ">", "a/b", ":token", "x" * 65])
async def test_a_subscription_is_given_to_users_only(store_directory: Path, owner: str) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber("/topic/orders.>", "invoices")).vanish()
        (subscription,) = broker.registry.durable.values()

        with pytest.raises(ControlError, match="owner cannot be a user"):
            await broker.parts.control.call("give_subscription", {"id": subscription.public_id, "owner": owner})

        await broker.store_messages(b"still written")


async def test_two_are_given_on_in_turn_and_the_store_takes_both(store_directory: Path) -> None:
    """The second gets the name that the first gives up; its row was to be written before already."""
    add_users(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        for user in ("alice", "bob"):
            client = await log_in(broker, user)
            await client.subscribe("/topic/orders.>", ack="client-individual", **NAMED)
            await client.vanish()
        await broker.settle()
        of_alice, of_bob = (
            next(each for each in broker.registry.durable.values() if each.identity and each.identity.owner == owner)
            for owner in ("alice", "bob")
        )
        broker.registry.unsaved.note_subscription(of_bob)
        async with trio.open_nursery() as nursery:
            with broker.held_store():
                for one, owner in ((of_alice, "carol"), (of_bob, "alice")):
                    given = {"id": one.public_id, "owner": owner}
                    nursery.start_soon(broker.parts.control.call, "give_subscription", given)
                    await wait_all_tasks_blocked()
    async with running_broker(store_in=store_directory) as broker:
        assert {each.owner for each in broker.registry.durable} == {"carol", "alice"}
