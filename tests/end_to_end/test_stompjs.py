"""What browsers see: stompjs over WebSocket, in Node and in Chromium, against a broker in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.raw_client import RawClient
from tests.end_to_end.stompjs_client import (
    StompJsClient,
    Tab,
    connected,
    need_stompjs,
    open_tab,
    running_node,
    served_page,
)
from tests.management.browser import running_browser
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.end_to_end.stompjs_client import Place
    from tests.support.broker_process import BrokerProcess
    from tests.support.certificates import Certificates

MIB = 1024 * 1024
NACK_DELAY_MS = 50
HEART_BEAT_MS = 500
#: A client may be silent for two seconds, and must answer a probe within one.
HEART_BEAT_MARGIN = 4
RECONNECT_MS = 100

every_scheme = pytest.mark.parametrize("scheme", ["ws", "wss"])


@pytest.fixture(scope="module")
def page_port() -> Iterator[int]:
    with served_page() as port:
        yield port


@pytest.fixture(scope="module")
def broker(
    page_port: int, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[BrokerProcess]:
    """One for all tests here, each of which has a topic of its own. Pages of localhost may connect to /localhost."""
    listen = (
        "ws://127.0.0.1:0/ws",
        "wss://127.0.0.1:0/ws",
        f"ws://127.0.0.1:0/localhost?origin=http://localhost:{page_port}",
    )
    with running_broker(
        tmp_path_factory.mktemp("broker"),
        listen=" ".join(listen),
        redelivery_first_delay_ms=NACK_DELAY_MS,
        heart_beat_want_ms=HEART_BEAT_MS,
        heart_beat_margin=HEART_BEAT_MARGIN,
        **certificates.settings(),
    ) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    need_stompjs()
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def tab(browser: Browser, page_port: int) -> Iterator[Tab]:
    with open_tab(browser, f"http://127.0.0.1:{page_port}/") as opened:
        yield opened


@pytest.fixture(scope="module")
def node(certificates: Certificates) -> Iterator[Place]:
    with running_node(certificates.path("ca.pem")) as running:
        yield running


@pytest.fixture(params=["node", "tab"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@every_scheme
def test_messages_are_published_acknowledged_and_redelivered(
    broker: BrokerProcess, topic: str, place: Place, scheme: str
) -> None:
    with connected(place, broker.endpoint(scheme)) as client:
        client.subscribe(topic, ack="client-individual")
        client.publish(topic, "one", colour="blue")
        client.publish(topic, "two")
        one, two = client.wait_messages(2)
        assert (one.body, one.headers["colour"], two.body) == (b"one", "blue", b"two")

        client.acknowledge(0)
        client.refuse(1)

        again = client.wait_messages(3)[2]
        assert (again.body, again.headers["redelivered"]) == (b"two", "true")
        client.acknowledge(2)
        assert client.state()["errors"] == []


@every_scheme
def test_heart_beats_go_both_ways(broker: BrokerProcess, place: Place, scheme: str) -> None:
    with connected(place, broker.endpoint(scheme), beat_ms=HEART_BEAT_MS) as client:
        client.wait("beats_sent", 2)
        client.wait("beats_received", 2)

        assert client.state()["is_connected"]


@every_scheme
@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
def test_frames_come_back_in_the_kind_of_message_that_the_client_uses(
    broker: BrokerProcess, topic: str, place: Place, scheme: str, is_binary: bool
) -> None:
    body = "Zwölf Boxkämpfer 🥊\0 und mehr"
    with connected(place, broker.endpoint(scheme), is_binary=is_binary) as client:
        client.subscribe(topic)

        client.publish(topic, body)

        assert client.wait_messages(1)[0].body == body.encode()
        used, unused = ("binary", "text") if is_binary else ("text", "binary")
        state = client.state()
        assert state["sent"][used] > 0
        assert state["received"][used] > 0
        assert (state["sent"][unused], state["received"][unused]) == (0, 0)


@every_scheme
@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
def test_binary_and_large_bodies_arrive_as_they_were_sent(
    broker: BrokerProcess, topic: str, place: Place, scheme: str, is_binary: bool
) -> None:
    every_byte, large = bytes(range(256)), bytes(range(256)) * (MIB // 256)
    with connected(place, broker.endpoint(scheme), is_binary=is_binary) as client:
        client.subscribe(topic)

        client.publish(topic, every_byte)
        client.publish(topic, large)
        client.publish(topic, "x" * MIB)

        bodies = [message.body for message in client.wait_messages(3)]
        assert bodies == [every_byte, large, b"x" * MIB]


@every_scheme
@pytest.mark.parametrize("where", ["node", "tab"])
def test_a_client_connects_again_after_a_crash_and_gets_what_it_missed(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path: Path, scheme: str, where: str
) -> None:
    place: Place = request.getfixturevalue(where)
    durable = ("/topic/orders", {"id": "0", "ack": "client-individual", "durable-subscription-name": "orders"})
    client_id: dict[str, Any] = {"client-id": "billing"}
    with running_broker(tmp_path, listen=f"{scheme}://127.0.0.1:0/ws", **certificates.settings()) as broker:
        url = broker.endpoint(scheme)
        client = StompJsClient(place, url, reconnect_ms=RECONNECT_MS, subscriptions=[durable], **client_id)
        client.connect()
        client.publish("/topic/orders", "acknowledged")
        client.wait_messages(1)
        client.acknowledge(0)
        client.publish("/topic/orders", "not acknowledged")
        client.wait_messages(2)

        broker.kill()

        client.wait("closings", 1)
    with running_broker(tmp_path, listen=url, **certificates.settings()) as broker:
        with RawClient.connected(broker.address) as publisher:
            publisher.send("SEND", b"missed", destination="/topic/orders", receipt="sent")
            publisher.expect_receipt("sent")

        client.wait("connections", 2)

        bodies = [message.body for message in client.wait_messages(4)]
        assert sorted(bodies[2:]) == [b"missed", b"not acknowledged"]
        client.deactivate()


# Pages of other sites -------------------------------------------------------------------------------------------------


def test_a_page_of_another_host_cannot_connect_unless_its_origin_is_allowed(
    broker: BrokerProcess, topic: str, browser: Browser, page_port: int
) -> None:
    with open_tab(browser, f"http://localhost:{page_port}/") as elsewhere:
        refused = StompJsClient(elsewhere, broker.endpoint("ws"))
        refused.activate()
        refused.wait("closings", 1)
        refused.deactivate()
        assert refused.state()["connections"] == 0

        allowed = broker.endpoint("ws", path="/localhost")
        with connected(elsewhere, allowed) as client:
            client.subscribe(topic)
            client.publish(topic, "from another origin")
            client.wait_messages(1)


# Tabs in the background -----------------------------------------------------------------------------------------------


def test_a_tab_whose_timers_sleep_stays_connected_and_a_silent_tcp_client_does_not(
    broker: BrokerProcess, topic: str, browser: Browser, page_port: int
) -> None:
    with open_tab(browser, f"http://127.0.0.1:{page_port}/") as asleep:
        asleep.page.evaluate("putTimersToSleep()")
        client = StompJsClient(asleep, broker.endpoint("ws"), beat_ms=HEART_BEAT_MS)
        client.connect()
        client.subscribe(topic)
        sent = client.state()["sent"]

        # Each of these is silent for as long as a client may be.
        for _ in range(2):
            with RawClient.connected(broker.address, heart_beat=f"{HEART_BEAT_MS},0") as silent:
                silent.expect_error("heart-beat missing")

        state = client.state()
        assert state["sent"] == sent, "not a byte of STOMP in all that time"
        assert (state["is_connected"], state["closings"]) == (True, 0)
        client.publish(topic, "still here")
        assert client.wait_messages(1)[0].body == b"still here"
