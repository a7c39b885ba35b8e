"""No frame but CONNECT counts before login, and afterwards only what the user may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jwt
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.errors import PeerViolation
from stompbroker.stomp import Connection, Limits
from stompbroker.stomp.connection import MAX_EARLY_BYTES
from tests.sessions.guarded_broker import SECRET, broker_with, log_in, make_users, replace_in
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user, remove_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return make_users(tmp_path)


@pytest.fixture
async def guarded(users: Path) -> AsyncIterator[BrokerUnderTest]:
    """A broker that asks for login."""
    async with broker_with(users) as broker:
        yield broker


# Login ----------------------------------------------------------------------------------------------------------------


async def test_who_has_the_password_is_connected(guarded: BrokerUnderTest) -> None:
    client = await log_in(guarded)

    await client.publish(b"1", destination="/topic/prices.tea")
    await client.sync()


@pytest.mark.parametrize(
    "credentials",
    [
        {},
        {"login": "alice"},
        {"login": "alice", "passcode": "wrong horse"},
        {"login": "nobody", "passcode": PASSWORD},
        {"passcode": PASSWORD},
    ],
)
async def test_nothing_behind_a_wrong_connect_counts(guarded: BrokerUnderTest, credentials: dict[str, str]) -> None:
    listener = await log_in(guarded, "bob")
    await listener.subscribe("/topic/>")
    client = await guarded.open()
    connect = client.frame("CONNECT", accept_version="1.2", host="test", **credentials)
    behind = client.frame("SEND", b"smuggled", destination="/topic/prices.tea", receipt="1")
    behind += client.frame("SUBSCRIBE", id="0", destination="/topic/>", receipt="2")

    await client.send_raw(connect + behind)

    await client.expect_error("login refused")
    assert b"RECEIPT" not in client.received
    await listener.sync()
    assert "prices.tea" not in guarded.registry.topics


async def test_what_is_sent_behind_connect_waits_for_the_answer_and_then_counts_in_order(
    guarded: BrokerUnderTest,
) -> None:
    client = await guarded.open()
    stream = client.frame("CONNECT", accept_version="1.2", host="test", login="alice", passcode=PASSWORD)
    stream += client.frame("SUBSCRIBE", id="0", destination="/topic/prices.tea", receipt="1")
    stream += client.frame("SEND", b"tea", destination="/topic/prices.tea", receipt="2")

    await client.send_raw(stream)

    frames = [await client.next_frame() for _ in range(4)]
    assert [frame.command for frame in frames] == ["CONNECTED", "RECEIPT", "RECEIPT", "MESSAGE"]


def test_only_so_much_is_kept_behind_a_connect_that_is_being_checked() -> None:
    protocol = Connection(Limits(), 100, 1000)
    protocol.receive(b"CONNECT\naccept-version:1.2\n\n\0SEND\n")

    assert protocol.receive(b"x" * (MAX_EARLY_BYTES - len(b"SEND\n"))) == []
    with pytest.raises(PeerViolation, match="too much before CONNECTED"):
        protocol.receive(b"x")


@pytest.mark.parametrize("is_admitted", [True, False])
async def test_the_time_for_connecting_counts_from_admission_until_connected(
    users: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, is_admitted: bool
) -> None:
    async with broker_with(users, connect_timeout_s=10) as broker:

        async def check_for_ever(*_: object, on_turn: Any, **__: object) -> bool:
            if is_admitted:
                on_turn()
            await trio.sleep_forever()
            raise AssertionError

        monkeypatch.setattr(broker.parts.authenticator.passwords, "is_right", check_for_ever)
        client = await broker.open()
        await client.send("CONNECT", accept_version="1.2", login="alice", passcode=PASSWORD)
        await wait_all_tasks_blocked()

        await trio.sleep(3600)

        if is_admitted:
            await client.expect_error("not connected in time")
        else:
            assert client.session.ending is None
            await client.vanish()


async def test_who_came_without_login_has_to_leave_when_there_is_a_first_user(tmp_path: Path) -> None:
    path = tmp_path / "data" / "users.toml"
    async with running_broker(data=tmp_path / "data", users_file="") as broker:
        client = await broker.subscriber()
        add_user(path, "alice", read=[">"])

        broker.parts.authenticator.reload()

        await client.expect_error("login revoked")


# Permission -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("destination", ["/topic/prices.tea.green", "/topic/orders", "/topic/DLQ.prices.tea"])
async def test_publishing_needs_permission_and_a_refused_send_makes_no_topic(
    guarded: BrokerUnderTest, destination: str
) -> None:
    client = await log_in(guarded)

    await client.publish(b"1", destination=destination, receipt="1")

    error = await client.expect_error("no permission to write", destination)
    assert error.headers["receipt-id"] == "1"
    assert not guarded.registry.topics


@pytest.mark.parametrize("destination", ["/topic/>", "/topic/*", "/topic/orders", "/topic/DLQ.>", "/topic/*.tea"])
@pytest.mark.parametrize("more", [{}, {"durable": "true"}, {"from": "earliest"}])
async def test_subscribing_needs_a_permission_that_contains_the_pattern(
    guarded: BrokerUnderTest, destination: str, more: dict[str, str]
) -> None:
    client = await log_in(guarded)

    await client.send("SUBSCRIBE", id="0", destination=destination, **more)

    await client.expect_error("no permission to read", destination)
    assert not guarded.registry.topics


async def test_a_transaction_is_refused_as_soon_as_it_publishes_elsewhere(guarded: BrokerUnderTest) -> None:
    client = await log_in(guarded)

    await client.send("BEGIN", transaction="t")
    await client.publish(b"1", destination="/topic/orders", transaction="t")

    await client.expect_error("no permission to write")


async def test_an_endpoint_may_be_for_some_users_only(guarded: BrokerUnderTest) -> None:
    client = await guarded.open()
    client.session.allowed_users = frozenset({"bob"})
    client.session.endpoint = "stomp://127.0.0.1:1"

    await client.send("CONNECT", accept_version="1.2", login="alice", passcode=PASSWORD)

    await client.expect_error("alice", "stomp://127.0.0.1:1")


# Revocation -----------------------------------------------------------------------------------------------------------


async def test_an_open_subscription_ends_when_its_permission_does(guarded: BrokerUnderTest, users: Path) -> None:
    reader, other = await log_in(guarded), await log_in(guarded)
    await reader.subscribe("/topic/prices.>")
    await other.subscribe("/topic/prices.tea")

    replace_in(users, 'read = ["prices.>"]', 'read = ["prices.*"]')
    guarded.parts.authenticator.reload()

    await reader.expect_error("no permission to read", "/topic/prices.>")
    await other.sync()


async def test_a_plan_is_made_anew_when_the_rules_change(guarded: BrokerUnderTest, users: Path) -> None:
    writer = await log_in(guarded)
    # Its head never changes, so it is planned only once.
    await writer.publish(b"1", destination="/topic/prices.tea")
    await writer.sync()

    replace_in(users, 'write = ["prices.*"]', 'write = ["elsewhere"]')
    guarded.parts.authenticator.reload()
    await wait_all_tasks_blocked()
    await writer.publish(b"2", destination="/topic/prices.tea")

    await writer.expect_error("no permission to write")


async def test_another_password_ends_the_connections_of_the_old_one(guarded: BrokerUnderTest, users: Path) -> None:
    client, other = await log_in(guarded), await log_in(guarded, "bob")

    add_user(users, "alice", read=["prices.>"], password="another one")
    guarded.parts.authenticator.reload()

    await client.expect_error("login revoked")
    await other.sync()


async def test_a_user_that_is_removed_is_out_within_seconds(users: Path) -> None:
    """By the file alone: nobody tells the broker."""
    async with broker_with(users) as broker:
        client, other = await log_in(broker), await log_in(broker, "bob")

        remove_user(users, "alice")

        await client.expect_error("login revoked")
        await other.sync()


async def test_the_end_of_a_token_ends_its_connection(users: Path, tmp_path: Path, autojump_clock: MockClock) -> None:
    keys = tmp_path / "keys"
    keys.write_text(SECRET)
    async with broker_with(users, token_keys=str(keys)) as broker:
        now_s = broker.clock.now_ns() // 10**9
        token = jwt.encode({"sub": "alice", "exp": now_s + 60}, SECRET, algorithm="HS256")
        client = await broker.client(authorization=f"Bearer {token}")

        await client.sync()
        await trio.sleep(61)

        await client.expect_error("token expired")


# Limits ---------------------------------------------------------------------------------------------------------------


async def test_a_user_has_so_many_connections_and_subscriptions(users: Path) -> None:
    async with broker_with(users, max_user_connections=2, max_user_subscriptions=2) as broker:
        first, second = await log_in(broker), await log_in(broker)
        await first.subscribe("/topic/prices.a")
        await second.subscribe("/topic/prices.a")
        third = await broker.open()
        await third.send("CONNECT", accept_version="1.2", login="alice", passcode=PASSWORD)
        await third.expect_error("too many connections", "alice")
        await log_in(broker, "bob")

        await first.send("SUBSCRIBE", id="1", destination="/topic/prices.b")

        await first.expect_error("too many subscriptions", "alice")
        await first.vanish()
        again = await log_in(broker)
        await again.subscribe("/topic/prices.b")


async def test_a_user_that_sends_too_many_messages_is_read_more_slowly(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path, keys = tmp_path / "users.toml", tmp_path / "keys"
    add_user(path, "alice", write=[">"], limits={"max_messages_per_s": 10})
    keys.write_text(SECRET)
    async with broker_with(path, token_keys=str(keys)) as broker:
        token = jwt.encode({"sub": "alice", "exp": broker.clock.now_ns() // 10**9 + 3600}, SECRET, algorithm="HS256")
        client = await broker.client(authorization=f"Bearer {token}")
        began_at = trio.current_time()

        for _ in range(10):
            await client.publish(*[b"x"] * 10)
            await client.sync()

        assert 8 <= trio.current_time() - began_at <= 11
