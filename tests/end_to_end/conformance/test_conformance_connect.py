"""The checklist's items 18 to 25: CONNECT."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from stompbroker import __version__
from stompbroker.stomp import State, Version
from stompbroker.transport.transport import LINGER_S
from tests.end_to_end.conformance.mock_time import pass_time
from tests.end_to_end.conformance.versions import V1_0, every_version, from_1_1_on
from tests.stomp.reading import connection
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest


@every_version
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
async def test_item_18_connect_and_stomp_are_the_same(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str
) -> None:
    client = await broker.open()

    await client.send(command, accept_version=version.value, host="test")

    connected = await client.next_frame()
    assert (connected.command, connected.headers["version"]) == ("CONNECTED", version.value)


@pytest.mark.parametrize(
    "frame",
    [
        b"SEND\ndestination:/topic/a\nreceipt:r\n\n\0",
        b"SUBSCRIBE\nid:0\ndestination:/topic/a\nreceipt:r\n\n\0",
        b"DISCONNECT\nreceipt:r\n\n\0",
        b"CONNECTED\nversion:1.2\nreceipt:r\n\n\0",
        b"NONSENSE\nreceipt:r\n\n\0",
        b"connect\nreceipt:r\n\n\0",
        b"GET / HTTP/1.1\nHost:h\nreceipt:r\n\n\0",
    ],
    ids=["SEND", "SUBSCRIBE", "DISCONNECT", "CONNECTED", "nonsense", "lower case", "HTTP"],
)
async def test_item_18_anything_else_first_gets_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, frame: bytes
) -> None:
    client = await broker.open()

    await client.send_raw(frame)

    error = await client.expect_error("not connected", "must be CONNECT or STOMP")
    assert error.headers["receipt-id"] == "r"


@every_version
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
async def test_item_18_a_second_connect_gets_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str
) -> None:
    client = await broker.client(version)

    await client.send(command, accept_version=version.value, host="test")

    await client.expect_error("already connected", command)


async def test_item_18_two_connects_in_one_chunk_get_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.open()

    await client.send_raw(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0" * 2)

    assert (await client.next_frame()).command == "CONNECTED"
    await client.expect_error("already connected")


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("1.0", "1.0"),
        ("1.1", "1.1"),
        ("1.2", "1.2"),
        ("1.0,1.1,1.2", "1.2"),
        ("1.2,1.1,1.0", "1.2"),
        ("1.1,1.0", "1.1"),
        ("1.0,1.1", "1.1"),
        (" 1.1 , 1.0 ", "1.1"),
        ("1.1,2.0", "1.1"),
        ("3.0,1.0,nonsense,", "1.0"),
    ],
)
async def test_item_19_the_highest_common_version_is_chosen(
    autojump_clock: MockClock, broker: BrokerUnderTest, offered: str, chosen: str
) -> None:
    client = await broker.open()

    await client.send("CONNECT", accept_version=offered, host="test")

    assert (await client.next_frame()).headers["version"] == chosen


async def test_item_19_no_accept_version_means_1_0(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await broker.open()

    await client.send("CONNECT", login="me")

    assert (await client.next_frame()).headers["version"] == "1.0"
    assert client.session.protocol.version is Version.V1_0


@pytest.mark.parametrize("offered", ["1.3", "2.0,3.0", "", "1", "1.20", "11", "nonsense"])
async def test_item_20_without_a_common_version_the_error_says_which_there_are(
    autojump_clock: MockClock, broker: BrokerUnderTest, offered: str
) -> None:
    client = await broker.open()

    await client.send("CONNECT", accept_version=offered, host="test")

    error = await client.expect_error("version", repr(offered))
    assert error.headers["version"] == "1.0,1.1,1.2"
    assert error.headers["content-type"] == "text/plain"
    assert b"1.0,1.1,1.2" in error.body
    assert b"\nversion:1.0,1.1,1.2\n" in client.received


@from_1_1_on
async def test_item_21_connected_has_version_session_server_and_heart_beat(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    assert (
        client.received
        == (
            f"CONNECTED\nversion:{version.value}\nsession:{client.session.connection_id}\n"
            f"server:stompbroker/{__version__}\nheart-beat:100,1000\n\n\0\n"
        ).encode()
    )


async def test_item_21_in_1_0_connected_has_a_session_and_no_heart_beat(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.open()

    connected = await client.connect(V1_0)

    assert connected.headers["session"]
    assert "heart-beat" not in connected.headers


async def test_item_21_the_server_is_a_name_and_a_version(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await broker.open()

    connected = await client.connect()

    assert re.fullmatch(r"[^/\s]+/[^/\s]+( .*)?", connected.headers["server"])


@every_version
@pytest.mark.parametrize(("name", "sent"), [("RabbitMQ/3.13.0", "RabbitMQ/3.13.0"), ("a: b\\c", "a: b\\c"), ("", None)])
async def test_item_21_an_operator_may_give_the_server_another_name_or_none(
    autojump_clock: MockClock, version: Version, name: str, sent: str | None
) -> None:
    async with running_broker(server_header=name) as broker:
        client = await broker.open()

        connected = await client.connect(version)

        assert connected.headers.get("server") == sent


async def test_item_21_two_sessions_have_two_ids(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    first, second = await broker.open(), await broker.open()

    sessions = {(await client.connect()).headers["session"] for client in (first, second)}

    assert len(sessions) == 2


@every_version
def test_item_21_the_values_of_connected_are_not_escaped(version: Version) -> None:
    under_test = connection()
    under_test.receive(f"CONNECT\naccept-version:{version.value}\nhost:h\n\n\0".encode())

    sent = under_test.render_connected(session="a:b\\c", server="name/1 (since: C:\\)")

    assert b"\nsession:a:b\\c\nserver:name/1 (since: C:\\)\n" in sent


@every_version
async def test_item_22_a_missing_host_is_accepted(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.open()

    await client.send("CONNECT", accept_version=version.value)

    assert (await client.next_frame()).command == "CONNECTED"


@every_version
async def test_item_22_any_host_is_taken_for_ours(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.open()

    await client.send("CONNECT", accept_version=version.value, host="elsewhere.example.org")

    assert (await client.next_frame()).command == "CONNECTED"


@pytest.mark.parametrize(
    "headers",
    [{"accept_version": "1.3"}, {"accept_version": "1.2", "heart_beat": "x"}],
    ids=["version", "heart-beat"],
)
async def test_item_23_a_refused_connection_gets_an_error_and_ends(
    autojump_clock: MockClock, broker: BrokerUnderTest, headers: dict[str, str]
) -> None:
    client = await broker.open()

    await client.send_raw(
        client.frame("CONNECT", **headers) + client.frame("SEND", destination="/topic/a", receipt="too late")
    )

    await client.expect_error()
    assert client.received.startswith(b"ERROR\n")
    assert client.received.count(b"\0") == 1
    assert not broker.registry.topics


def test_item_23_after_a_refusal_nothing_more_is_read() -> None:
    under_test = connection()
    with pytest.raises(Exception, match="no common version"):
        under_test.receive(b"CONNECT\naccept-version:9\n\n\0")

    frames = under_test.receive(b"CONNECT\naccept-version:1.2\n\n\0")

    assert frames == []
    assert under_test.state is State.FAILED


@every_version
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
async def test_item_24_connect_gets_no_receipt(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str
) -> None:
    client = await broker.open()

    await client.send(command, accept_version=version.value, receipt="unwanted")

    connected = await client.next_frame()
    assert connected.command == "CONNECTED"
    assert "receipt-id" not in connected.headers
    await client.sync()


@pytest.mark.parametrize("ending", ["DISCONNECT", "vanished", "mistake", "silence"])
async def test_item_25_clients_that_come_and_go_leave_nothing_behind(
    autojump_clock: MockClock, broker: BrokerUnderTest, ending: str
) -> None:
    for _ in range(100):
        client = await broker.open()
        if ending != "silence":
            await client.connect()
            await client.subscribe(ack="client")
            await client.send("BEGIN", transaction="t")
            await client.publish(b"left", transaction="t")
            await client.publish(b"unacked")
            await client.next_message()
        if ending == "DISCONNECT":
            await client.send("DISCONNECT")
        elif ending == "mistake":
            await client.send("NONSENSE")
            assert (await client.next_frame()).command == "ERROR"
        await client.vanish()

    assert not broker.parts.sessions
    assert not broker.registry.subscriptions


async def test_item_25_a_client_that_stays_after_its_error_is_closed_soon(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client()
    await client.send("NONSENSE")
    await client.expect_error()

    await pass_time(LINGER_S)

    assert not broker.parts.sessions
