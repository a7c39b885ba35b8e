"""The client and the broker itself, in a process of its own: over every carrier, and killed on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from cryptography.x509.oid import NameOID

from stompbroker.client import (
    BackOff,
    Client,
    LoginRefused,
    Message,
    NobodyListens,
    NoConnection,
    Problem,
    TlsOptions,
    connect,
)
from stompbroker.signals import Signal
from tests.support.broker_process import running_broker
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker_process import BrokerProcess
    from tests.support.certificates import Certificates

CARRIERS = ["stomp", "stomp+tls", "ws", "wss", "unix"]


@pytest.fixture(scope="module")
def authority(certificates: Certificates) -> Certificates:
    certificates.issue("client", (NameOID.COMMON_NAME, "client"))
    return certificates


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Certificates) -> Iterator[BrokerProcess]:
    """One for all carriers: each has destinations of its own."""
    directory = tmp_path_factory.mktemp("broker")
    add_user(directory / "users.toml", "alice", read=[">", "queue:>"], write=[">", "queue:>"])
    with running_broker(
        directory,
        listen="stomp://127.0.0.1:0 stomp+tls://127.0.0.1:0 ws://127.0.0.1:0/ws wss://127.0.0.1:0/ws "
        f"unix://{directory}/stomp.sock",
        users_file=directory / "users.toml",
        **authority.settings(),
    ) as running:
        yield running


def client_of(broker: BrokerProcess, carrier: str, authority: Certificates, **options: Any) -> Client:
    is_encrypted = carrier in ("stomp+tls", "wss")
    tls = TlsOptions(ca=Path(authority.path("ca.pem"))) if is_encrypted else None
    login = {"login": "alice", "passcode": PASSWORD} | options
    return connect(broker.endpoint(carrier), tls=tls, give_up_after=HARD_TIMEOUT_S, **login)


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_everything_over_every_carrier(broker: BrokerProcess, authority: Certificates, carrier: str) -> None:
    name = carrier.replace("+", "-")
    large = bytes(range(256)) * 4096

    async def reverse(message: Message) -> bytes:
        return message.body[::-1]

    async with client_of(broker, carrier, authority) as client:
        report = await client.publish(f"/queue/{name}", large, headers={"report": "true", "a:b": "c\nd"})
        assert (report["matched"], report["offset"]) == ("1", "0")
        async with client.subscribe(f"/queue/{name}") as messages:
            message = await anext(messages)
            assert (message.body == large, message.headers["a:b"]) == (True, "c\nd")
            async with client.transaction() as transaction:
                transaction.publish(f"/queue/{name}.done", b"done")
                message.ack(transaction=transaction)
        async with client.subscribe(f"/queue/{name}.done") as messages:
            message = await anext(messages)
            message.nack(delay=0, reason="once more")
            again = await anext(messages)
            assert (again.id, again.is_redelivered) == (message.id, True)
            await again.ack_confirmed()
        async with client.serve(f"/topic/{name}", reverse, group="servers"):
            assert (await client.call(f"/topic/{name}", b"abc", timeout=HARD_TIMEOUT_S)).body == b"cba"
        with pytest.raises(NobodyListens):
            await client.call(f"/topic/{name}.nobody", b"abc", timeout=HARD_TIMEOUT_S)
        assert await client.aclose()


async def test_a_wrong_password_is_not_tried_again(broker: BrokerProcess, authority: Certificates) -> None:
    with pytest.raises(LoginRefused, match="wrong login or passcode"):
        async with client_of(broker, "stomp", authority, passcode="wrong"):
            pytest.fail("not let in")


async def test_a_websocket_where_none_is(broker: BrokerProcess) -> None:
    endpoint = broker.endpoint("ws")
    for url in (f"{endpoint}/elsewhere", endpoint.replace("ws://", "stomp://").removesuffix("/ws")):
        with pytest.raises(NoConnection) as caught:
            async with connect(url, give_up_after=0):
                pytest.fail("not connected")
        assert caught.value.problem in (Problem.NO_WEBSOCKET, Problem.NO_STOMP)


async def test_a_broker_that_is_killed_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    """Every message is in the log once, reaches the durable subscriber, and in order, deliveries again aside."""
    count, kills = 2_000, 3
    per_life = count // (kills + 1)
    received, seen = list[int](), set[int]()
    published = set[tuple[int, str]]()
    progress, killed = Signal(), 0
    path = tmp_path / "s"
    with running_broker(tmp_path, listen=f"stomp://127.0.0.1:0 unix://{path}") as broker:
        url = f"unix://{path}"

        def patient(**options: Any) -> Client:
            return connect(url, back_off=BackOff(first_s=0.01, longest_s=0.1, seed=1), **options)

        all_received = trio.Event()

        async def publish() -> None:
            async with patient() as client:
                for number in range(count):
                    # So that the broker is killed while messages are on their way, and not after: each of its lives
                    # has its share of them.
                    while number - len(seen) > 100 or number >= (killed + 1) * per_life:
                        await progress.wait()
                    await client.publish_soon("/topic/a", b"%d" % number)
                await client.flush()
                assert client.statistics.confirmed == count
                assert client.statistics.connections > kills

        async def receive(*, task_status: trio.TaskStatus[None]) -> None:
            async with patient(client_id="c") as client:
                async with client.subscribe("/topic/a", durable="n") as messages:
                    task_status.started()
                    async for message in messages:
                        received.append(int(message.body))
                        seen.add(int(message.body))
                        published.add((int(message.body), message.id))
                        message.ack()
                        progress.wake()
                        if len(seen) == count:
                            break
            all_received.set()

        with trio.fail_after(HARD_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                await nursery.start(receive)
                nursery.start_soon(publish)
                for kill in range(1, kills + 1):
                    while len(seen) < kill * per_life - 200:
                        await progress.wait()
                    await trio.to_thread.run_sync(broker.kill)
                    killed = kill
                    progress.wake()
                    path.unlink(missing_ok=True)
                    await trio.to_thread.run_sync(broker.restart)
                await all_received.wait()

    firsts = list(dict.fromkeys(received))
    assert firsts == sorted(firsts)
    assert len(published) == count
