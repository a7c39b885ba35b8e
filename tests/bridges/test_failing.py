"""A broker that is away, refuses or is silent: seen with its reason, tried again, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from stompbroker.actors import bridge
from stompbroker.bridges import CrossingState
from tests.support.bridging import (
    bodies_in,
    bridge_to,
    bridged_broker,
    client_of,
    connected,
    free_ports,
    quiet,
    until,
)
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.broker import Broker

EVENTS = "/topic/events.>"


async def shown(broker: Broker) -> list[dict[str, Any]]:
    answer = await broker.control.call("bridges", {})
    return list(answer["bridges"])


async def test_what_was_published_meanwhile_follows_when_the_other_is_back(tmp_path: Path) -> None:
    here, there = free_ports(2)
    table = bridge_to(there, name="there", send=[EVENTS, "/queue/jobs"])
    async with bridged_broker(tmp_path / "here", here, table) as broker, client_of(here) as publisher:
        async with bridged_broker(tmp_path / "there", there):
            await connected(broker)
            async with client_of(there, client_id="reader") as reader, reader.subscribe(EVENTS, durable="all"):
                pass
        await until(lambda: f"127.0.0.1:{there}" in (broker.crossings[0].problem or ""))

        for number in range(250):
            await publisher.publish_soon("/topic/events.a", b"%d" % number)
            await publisher.publish_soon("/queue/jobs", b"%d" % number)
        await publisher.flush()
        (one,) = await shown(broker)
        assert (one["state"], one["backlog"], one["lag_s"] >= 0) == ("retrying", 500, True)

        async with bridged_broker(tmp_path / "there", there), client_of(there, client_id="reader") as reader:
            in_order = [b"%d" % number for number in range(250)]
            assert await bodies_in(reader, EVENTS, 250) == in_order
            assert await bodies_in(reader, "/queue/jobs", 250) == in_order
            await quiet(broker)
            await until(lambda: not any(one.unsettled for one in broker.registry.durable.values()))  # the queue, too
            (one,) = await shown(broker)
            assert (one["state"], one["backlog"], one["sent"], one["lag_s"]) == ("connected", 0, 500, 0.0)


async def test_a_message_that_is_refused_waits_and_others_pass(tmp_path: Path) -> None:
    here, there = free_ports(2)
    table = bridge_to(there, name="there", send=[EVENTS])
    async with (
        bridged_broker(tmp_path / "there", there, max_body_bytes=1000) as other,
        bridged_broker(tmp_path / "here", here, table, redelivery_first_delay_ms=60_000) as broker,
        client_of(here) as publisher,
    ):
        await connected(broker)

        for body in (b"one", b"x" * 1001, b"two"):
            await publisher.publish("/topic/events.a", body)

        await until(lambda: sum(topic.published for topic in other.registry.topics.values()) == 2)
        (kept,) = broker.registry.durable.values()
        # The other two are settled when their receipts have come back.
        await until(lambda: kept.unsettled == kept.waiting == 1)
        await until(lambda: broker.crossings[0].state is CrossingState.CONNECTED)
        (one,) = await shown(broker)
        assert (one["refused"], one["backlog"], one["sent"]) == (1, 1, 2)
        assert "1000" in one["problem"]


async def test_the_others_pass_however_many_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Were each refusal one failure more, the last wait would be hours.
    monkeypatch.setattr(bridge, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(bridge, "LONGEST_WAIT_S", 1e6)
    here, there = free_ports(2)
    table = bridge_to(there, name="there", send=[EVENTS])
    async with (
        bridged_broker(tmp_path / "there", there, max_body_bytes=1000),
        bridged_broker(tmp_path / "here", here, table, redelivery_first_delay_ms=60_000) as broker,
        client_of(here) as publisher,
    ):
        await connected(broker)

        for _ in range(25):
            await publisher.publish("/topic/events.a", b"x" * 1001)
            await publisher.publish("/topic/events.a", b"good")

        (crossing,) = broker.crossings
        await until(lambda: crossing.sent == crossing.refused == 25)


@pytest.mark.parametrize("direction", ["send", "receive"])
async def test_with_login_the_other_broker_needs_a_user_with_the_role(tmp_path: Path, direction: str) -> None:
    here, there = free_ports(2)
    (tmp_path / "there").mkdir()
    users = tmp_path / "there" / "users.toml"
    add_user(users, "london", read=["events.>"], write=["events.>"])
    (tmp_path / "passcode").write_text(f"{PASSWORD}\n")
    table = bridge_to(
        there, name="there", login="london", passcode_file=str(tmp_path / "passcode"), **{direction: [EVENTS]}
    )
    is_sent = direction == "send"
    source = client_of(here) if is_sent else client_of(there, login="london", passcode=PASSWORD)
    async with (
        bridged_broker(tmp_path / "there", there),
        bridged_broker(tmp_path / "here", here, table) as broker,
        source as client,
    ):
        if is_sent:
            await connected(broker)
            await client.publish("/topic/events.a", b"one")
        (crossing,) = broker.crossings
        await until(lambda: "role bridge" in (crossing.problem or ""))

        add_user(users, "london", read=["events.>"], write=["events.>"], roles=["bridge"])

        if not is_sent:
            await connected(broker)
            await client.publish("/topic/events.a", b"one")
        await until(lambda: crossing.sent == 1)


async def test_a_wrong_login_is_tried_again_and_its_file_read_anew(tmp_path: Path) -> None:
    here, there = free_ports(2)
    (tmp_path / "there").mkdir()
    add_user(tmp_path / "there" / "users.toml", "london", write=["events.>"], roles=["bridge"])
    passcode = tmp_path / "passcode"
    table = bridge_to(there, name="there", login="london", passcode_file=str(passcode), send=[EVENTS])
    async with bridged_broker(tmp_path / "there", there), bridged_broker(tmp_path / "here", here, table) as broker:
        (crossing,) = broker.crossings
        await until(lambda: f"{passcode} cannot be read: No such file" in (crossing.problem or ""))

        passcode.write_text("wrong")
        await until(lambda: "wrong login or passcode" in (crossing.problem or ""))
        passcode.write_text(PASSWORD)

        await connected(broker)


async def test_a_broker_that_gives_no_receipts_is_left_and_asked_again(tmp_path: Path) -> None:
    here, there = free_ports(2)
    table = bridge_to(there, name="there", send=[EVENTS], receipt_timeout_s=1)
    sent: list[bytes] = []

    async def be_silent(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"CONNECTED\nversion:1.2\n\n\0")
        async for chunk in stream:
            sent.append(bytes(chunk))

    async with bridged_broker(tmp_path / "here", here, table) as broker, client_of(here) as publisher:
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_tcp, be_silent, there)
            await connected(broker)
            await publisher.publish("/topic/events.a", b"one")
            (crossing,) = broker.crossings
            await until(lambda: crossing.problem == "A receipt has not come for 1 seconds.")
            await until(lambda: b"".join(sent).count(b"\n\none\0") == 2)
            nursery.cancel_scope.cancel()
        async with bridged_broker(tmp_path / "there", there):
            await quiet(broker)
            assert crossing.sent == 1


async def test_a_message_of_a_queue_that_comes_back_in_a_circle_is_a_dead_letter_in_the_end(tmp_path: Path) -> None:
    here, there = free_ports(2)
    async with (
        bridged_broker(
            tmp_path / "there", there, bridge_to(here, name="back", send=["/queue/jobs"]), max_attempts=1
        ) as other,
        bridged_broker(tmp_path / "here", here, bridge_to(there, name="on", send=["/queue/jobs"])) as broker,
        client_of(here) as publisher,
        client_of(there) as reader,
    ):
        await connected(broker, other)

        await publisher.publish("/queue/jobs", b"one")

        assert await bodies_in(reader, "/queue/DLQ.jobs", 1) == [b"one"]
        assert "has come back in a circle" in (other.crossings[0].problem or "")
