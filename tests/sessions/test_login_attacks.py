"""What somebody tries who wants in, or who was thrown out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jwt
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.stomp.connection import MAX_EARLY_BYTES
from stompbroker.transport import StreamTransport
from tests.sessions.guarded_broker import SECRET, broker_with, log_in, make_users, replace_in
from tests.support.users import PASSWORD, add_user, remove_user

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return make_users(tmp_path)


# Before login ---------------------------------------------------------------------------------------------------------


async def test_a_large_chunk_behind_connect_is_not_kept_while_it_is_checked(users: Path) -> None:
    """Line feeds make the chunks that are read larger; then everything comes in one."""
    async with broker_with(users) as broker:
        client = await broker.open()
        connect = client.frame("CONNECT", accept_version="1.2", login="alice", passcode=PASSWORD)
        session = client.session

        session.receive(b"\n" * 1000 + connect + b"x" * (MAX_EARLY_BYTES + 1))

        assert session.ending is not None
        assert session.credentials is None
        await client.expect_error("too much before CONNECTED")


async def test_nothing_behind_connect_is_parsed_before_the_answer(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a frame that is wrong in itself gets an answer of its own."""
    async with broker_with(users) as broker:
        asked, answer = trio.Event(), trio.Event()

        async def is_right(*_: object, **__: object) -> bool:
            asked.set()
            await answer.wait()
            return False

        monkeypatch.setattr(broker.parts.authenticator.passwords, "is_right", is_right)
        client = await broker.open()
        connect = client.frame("CONNECT", accept_version="1.2", login="alice", passcode="wrong horse")
        await client.send_raw(connect + b"CONNECT\n\n\0NONSENSE\nno colon\n\n\0")
        await asked.wait()
        await wait_all_tasks_blocked()
        assert client.session.outbox.put_bytes == 0

        answer.set()

        await client.expect_error("login refused")


async def test_a_second_connect_is_an_error_and_changes_nobody(users: Path) -> None:
    async with broker_with(users) as broker:
        client = await broker.open()
        connect = client.frame("CONNECT", accept_version="1.2", login="alice", passcode=PASSWORD)
        other = client.frame("CONNECT", accept_version="1.2", login="bob", passcode=PASSWORD)

        await client.send_raw(connect + other)

        assert (await client.next_frame()).command == "CONNECTED"
        await client.expect_error("already connected")
        assert client.session.client.grant.user == "alice"


async def test_a_login_during_shutdown_is_not_let_in(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_with(users) as broker:
        asked, answer = trio.Event(), trio.Event()

        async def is_right(*_: object, **__: object) -> bool:
            asked.set()
            with trio.CancelScope(shield=True):  # as a thread that hashes
                await answer.wait()
            return True

        monkeypatch.setattr(broker.parts.authenticator.passwords, "is_right", is_right)
        client = await broker.open()
        await client.send("CONNECT", accept_version="1.2", login="alice", passcode=PASSWORD)
        await asked.wait()

        broker.parts.dismiss_clients()
        answer.set()

        await client.expect_error("shutting down")
        assert b"CONNECTED" not in client.received


# Addresses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("[2001:db8::1]:1", "[2001:db8::2]:2", True),
        ("[2001:db8::1]:1", "[2001:db8:0:1::1]:2", False),
        ("[::ffff:192.0.2.1]:1", "192.0.2.1:2", True),
        ("192.0.2.1:1", "192.0.2.2:1", False),
        ("unix:10", "unix:11", True),
    ],
)
async def test_wrong_logins_count_for_all_addresses_that_one_person_has(
    users: Path, first: str, second: str, is_same: bool
) -> None:
    async with broker_with(users, max_login_failures=1) as broker:
        said = []
        for peer in (first, second):
            client = await broker.open()
            client.session.peer = peer
            await client.send("CONNECT", accept_version="1.2", login="alice", passcode="wrong horse")
            said.append(await client.expect_error("login refused"))

        assert (b"too many wrong logins" in said[1].body) is is_same


# After login ----------------------------------------------------------------------------------------------------------


async def test_a_user_who_may_not_send_so_fast_still_lives_while_it_is_not_read(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path, keys = tmp_path / "users.toml", tmp_path / "keys"
    add_user(path, "alice", write=[">"], limits={"max_messages_per_s": 10})
    keys.write_text(SECRET)
    async with broker_with(path, token_keys=str(keys)) as broker:
        token = jwt.encode({"sub": "alice", "exp": broker.clock.now_ns() // 10**9 + 3600}, SECRET, algorithm="HS256")
        client = await broker.client(authorization=f"Bearer {token}", heart_beat="1000,0")

        await client.publish(*[b"x"] * 200)
        for _ in range(20):
            await trio.sleep(1)
            await client.send_raw(b"\n")

        await client.sync()


async def test_what_is_parked_is_never_published_once_its_user_is_out(users: Path, store_directory: Path) -> None:
    """It is out, but its ERROR waits for a receipt of its own; meanwhile the topic takes messages again."""
    add_user(users, "carol", read=[">"], write=[">"])
    async with broker_with(users, store_in=store_directory, window_messages=10, default_prefetch=2) as broker:
        reader = await log_in(broker, "bob")
        await reader.subscribe("/topic/full", ack="client-individual")
        keeper = await log_in(broker, "bob", client_id="keeper")
        await keeper.subscribe("/topic/stored", durable_subscription_name="all", ack="auto")
        publisher = await log_in(broker, "carol")
        for number in range(12):
            await publisher.publish(b"%d" % number, destination="/topic/full")
        await publisher.sync()  # so that none of them is in one unit with what follows
        with broker.held_store():
            await publisher.publish(b"x", destination="/topic/stored", receipt="stored")
            await publisher.publish(b"12", destination="/topic/full")
            await wait_all_tasks_blocked()
            assert publisher.session.is_held_back
            full = broker.registry.topics["full"]
            published = full.published

            remove_user(users, "carol")
            broker.parts.authenticator.reload()
            await wait_all_tasks_blocked()
            for _ in range(published):
                await reader.send("ACK", id=(await reader.next_message()).headers["ack"])
            await wait_all_tasks_blocked()

        await publisher.expect_receipt("stored")
        await publisher.expect_error("login revoked")
        await broker.settle()
        assert full.published == published


async def test_a_commit_needs_the_permissions_that_hold_then(users: Path) -> None:
    async with broker_with(users) as broker:
        listener, client = await log_in(broker, "bob"), await log_in(broker)
        await listener.subscribe("/topic/prices.tea")
        await client.send("BEGIN", transaction="t")
        await client.publish(b"1", destination="/topic/prices.tea", transaction="t", receipt="sent")
        await client.expect_receipt("sent")

        replace_in(users, 'write = ["prices.*"]', 'write = ["elsewhere"]')
        broker.parts.authenticator.reload()
        await wait_all_tasks_blocked()
        await client.send("COMMIT", transaction="t", receipt="c")

        await client.expect_error("no permission to write")
        await listener.sync()


async def test_a_connect_with_a_large_body_is_not_kept(users: Path) -> None:
    async with broker_with(users) as broker:
        client = await broker.open()

        await client.send_raw(
            b"CONNECT\naccept-version:1.2\ncontent-length:10000000\n\n" + b"x" * (MAX_EARLY_BYTES + 1)
        )

        await client.expect_error("too much before CONNECTED")


async def test_to_connect_again_pays_no_debts_and_a_reset_client_keeps_no_place(
    users: Path, autojump_clock: MockClock
) -> None:
    # By token: the clock would leap while a password is hashed.
    add_user(users, "alice", write=[">"], limits={"max_messages_per_s": 10})
    keys = users.with_name("keys")
    keys.write_text(SECRET)
    async with broker_with(users, token_keys=str(keys)) as broker:
        claims = {"sub": "alice", "exp": broker.clock.now_ns() // 10**9 + 3600}
        token = f"Bearer {jwt.encode(claims, SECRET, algorithm='HS256')}"
        first = await broker.client(authorization=token)
        await first.publish(*[b"x"] * 100)
        await wait_all_tasks_blocked()
        published = broker.registry.topics["a"].published

        again = await broker.client(authorization=token)
        await again.publish(*[b"x"] * 100)
        await wait_all_tasks_blocked()

        assert broker.registry.topics["a"].published == published
        await first.sync()
        await again.sync()
        assert broker.registry.topics["a"].published == 200


async def test_nothing_is_hashed_for_a_client_that_has_left_the_line(
    users: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with broker_with(users) as broker:
        passwords = broker.parts.authenticator.passwords
        async with passwords.turns.turn(is_second=False):
            monkeypatch.setattr(StreamTransport, "has_left", lambda _: True)
            client = await broker.open()
            await client.send("CONNECT", accept_version="1.2", login="alice", passcode=PASSWORD)
            await wait_all_tasks_blocked()
            assert (len(broker.parts.sessions), passwords.turns.waiting) == (1, 1)

            await trio.sleep(1)

            assert (len(broker.parts.sessions), passwords.turns.waiting) == (0, 0)
        assert passwords.hashed == 0
