"""A subscriber that does not read costs its own topic what the policy says, and everybody else nothing."""

from __future__ import annotations

import selectors
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.end_to_end.raw_client import TINY_BUFFER_BYTES, RawClient, send_frame, sending
from tests.support.broker_process import running_broker, wait_until
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

MIB: Final = 1024 * 1024
BODY_BYTES: Final = 10_000
WINDOW_BYTES: Final = MIB
#: Many times what the window, the parking and every buffer on the way hold together.
FLOOD_MESSAGES: Final = 10_000

FLOODED: Final = "/topic/flooded"
QUIET: Final = "/topic/quiet"


def body(number: int) -> bytes:
    return b"%08d" % number + b"x" * (BODY_BYTES - 8)


def number_in(received: bytes) -> int:
    return int(received[:8])


def flood(topic: str) -> bytes:
    """Numbered messages, and behind them a frame whose receipt says that all were taken."""
    messages = b"".join(send_frame(topic, body(number)) for number in range(FLOOD_MESSAGES))
    return messages + b"BEGIN\ntransaction:t\nreceipt:all taken\n\n\0"


def non_reader(
    broker: BrokerProcess, topic: str, *, id: str = "0", receive_buffer_bytes: int = TINY_BUFFER_BYTES
) -> RawClient:
    """A subscriber for which next to nothing fits into the kernel's buffers."""
    client = RawClient.connected(broker.address, receive_buffer_bytes=receive_buffer_bytes)
    client.subscribe(topic, id=id)
    return client


def statistics_of(broker: BrokerProcess, client: RawClient) -> dict[str, Any]:
    host, port = client.socket.getsockname()
    (connection,) = [each for each in broker.statistics()["connections"] if each["peer"] == f"{host}:{port}"]
    return dict(connection)


def wait_held_back(broker: BrokerProcess, flooder: RawClient) -> None:
    wait_until(lambda: statistics_of(broker, flooder)["held_back"], "the flooder held back")


# Block ----------------------------------------------------------------------------------------------------------------


def test_block_holds_back_the_flooder_and_nobody_else(tmp_path: Path) -> None:
    with running_broker(tmp_path, window_bytes=WINDOW_BYTES) as broker, ExitStack() as clients:
        stuck = clients.enter_context(non_reader(broker, FLOODED))
        flooder = clients.enter_context(RawClient.connected(broker.address))
        other = clients.enter_context(RawClient.connected(broker.address))
        other.subscribe(QUIET)

        with sending(flooder, flood(FLOODED)) as under_way:
            wait_held_back(broker, flooder)

            # Round trips through the other topic, one after the other, and then all at once.
            for number in range(200):
                other.send_raw(send_frame(QUIET, b"%d" % number))
                assert other.next_message().body == b"%d" % number
            with sending(other, b"".join(send_frame(QUIET, body(number)) for number in range(2000))) as rest:
                assert [number_in(other.next_message().body) for _ in range(2000)] == list(range(2000))
                rest.wait_done()

            assert under_way.is_under_way
            # Window, parking, outbox, and a chunk that was read before it was known.
            assert statistics_of(broker, flooder)["bytes_in"] < WINDOW_BYTES + 3 * MIB

            stuck.reset()

            under_way.wait_done()
        flooder.expect_receipt("all taken")
        assert broker.statistics()["totals"]["published"] == FLOOD_MESSAGES + 2200


def test_block_goes_on_when_the_subscriber_reads_again_and_loses_nothing(tmp_path: Path) -> None:
    with running_broker(tmp_path, window_bytes=WINDOW_BYTES) as broker, ExitStack() as clients:
        slow = clients.enter_context(non_reader(broker, FLOODED, receive_buffer_bytes=64 * 1024))
        flooder = clients.enter_context(RawClient.connected(broker.address))

        with sending(flooder, flood(FLOODED)) as under_way:
            wait_held_back(broker, flooder)

            numbers = [number_in(slow.next_message().body) for _ in range(FLOOD_MESSAGES)]

            under_way.wait_done()
        assert numbers == list(range(FLOOD_MESSAGES))


def test_block_disconnects_the_subscriber_that_pins_the_topic_for_too_long(tmp_path: Path) -> None:
    with running_broker(tmp_path, window_bytes=WINDOW_BYTES, block_timeout_s=0.2) as broker, ExitStack() as clients:
        stuck = clients.enter_context(non_reader(broker, FLOODED, id="the culprit"))
        flooder = clients.enter_context(RawClient.connected(broker.address))

        with sending(flooder, flood(FLOODED)) as under_way:
            under_way.wait_done()
        flooder.expect_receipt("all taken")

        logged = broker.wait_logged("disconnected a subscriber that blocked its topic")
        assert (logged["subscription"], logged["topic"]) == ("the culprit", "flooded")
        messages, error = stuck.messages_up_to_the_end()
        assert [number_in(message.body) for message in messages] == list(range(len(messages)))
        stuck.check_error(error, "subscriber too slow", "'the culprit'", FLOODED)


# Other policies -------------------------------------------------------------------------------------------------------

POLICIES: Final = "\n".join(
    f"""
    [[topics]]
    pattern = "{slow_subscriber}.**"
    slow_subscriber = "{slow_subscriber}"
    window_bytes = {WINDOW_BYTES}
    """
    for slow_subscriber in ("drop-oldest", "drop-newest", "disconnect")
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all policies: a topic has the one it is named after."""
    with running_broker(tmp_path_factory.mktemp("broker"), config=POLICIES) as running:
        yield running


def flood_a_non_reader(broker: BrokerProcess, topic: str) -> tuple[RawClient, int]:
    """The flooder is never held back. Returns a subscriber that has not read anything meanwhile, and what it lost."""
    stuck = non_reader(broker, topic, id="the slow one")
    with RawClient.connected(broker.address) as flooder, sending(flooder, flood(topic)) as under_way:
        under_way.wait_done()
        flooder.expect_receipt("all taken")
    dropped = sum(each["dropped"] for each in broker.statistics()["subscriptions"] if each["destination"] == topic)
    return stuck, dropped


def test_drop_oldest_keeps_the_newest_for_whoever_reads_late(broker: BrokerProcess) -> None:
    stuck, dropped = flood_a_non_reader(broker, "/topic/drop-oldest.flooded")
    with stuck:
        numbers = [number_in(stuck.next_message().body) for _ in range(FLOOD_MESSAGES - dropped)]

    assert dropped > FLOOD_MESSAGES // 2
    assert numbers == sorted(set(numbers))
    newest = WINDOW_BYTES // BODY_BYTES // 2
    assert numbers[-newest:] == list(range(FLOOD_MESSAGES - newest, FLOOD_MESSAGES))


def test_drop_newest_keeps_the_oldest_and_goes_on_when_there_is_room(broker: BrokerProcess) -> None:
    topic = "/topic/drop-newest.flooded"
    stuck, dropped = flood_a_non_reader(broker, topic)
    with stuck:
        numbers = [number_in(stuck.next_message().body) for _ in range(FLOOD_MESSAGES - dropped)]

        assert dropped > FLOOD_MESSAGES // 2
        assert numbers == sorted(set(numbers))
        oldest = WINDOW_BYTES // BODY_BYTES // 2
        assert numbers[:oldest] == list(range(oldest))
        stuck.send_raw(send_frame(topic, b"there is room again"))
        assert stuck.next_message().body == b"there is room again"


def test_disconnect_disconnects_the_one_that_does_not_keep_up(broker: BrokerProcess) -> None:
    stuck, _ = flood_a_non_reader(broker, "/topic/disconnect.flooded")
    with stuck:
        messages, error = stuck.messages_up_to_the_end()

        assert [number_in(message.body) for message in messages] == list(range(len(messages)))
        stuck.check_error(error, "subscriber too slow", "'the slow one'", "did not keep up")


@pytest.mark.parametrize("slow_subscriber", ["drop-oldest", "drop-newest", "disconnect"])
def test_a_subscriber_that_reads_gets_everything_whatever_happens_to_the_other(
    broker: BrokerProcess, slow_subscriber: str
) -> None:
    topic = f"/topic/{slow_subscriber}.shared"
    with ExitStack() as clients:
        reader = clients.enter_context(RawClient.connected(broker.address))
        reader.subscribe(topic)
        clients.enter_context(non_reader(broker, topic))
        flooder = clients.enter_context(RawClient.connected(broker.address))

        # In portions that fit the window, so that a reader that reads cannot fall behind.
        for start in range(0, 2000, 50):
            flooder.send_raw(b"".join(send_frame(topic, body(number)) for number in range(start, start + 50)))
            assert [number_in(reader.next_message().body) for _ in range(50)] == list(range(start, start + 50))


# Memory ---------------------------------------------------------------------------------------------------------------

MEMORY_LIMIT_BYTES: Final = 32 * MIB
PUSHED_BYTES: Final = 200 * MIB
#: What may be charged beyond the limit. The broker looks at the budget between chunks, not within one, and when it is
#: used up every connection and every topic may still keep a little, so that they can go on.
SLACK_BYTES: Final = MIB
SLACK_PER_PUBLISHER_BYTES: Final = 64 * 1024
SLACK_PER_TOPIC_BYTES: Final = 64 * 1024
#: What the process may grow by: the budget counts payloads, and the allocator rounds, keeps and fragments.
GROWTH_BYTES: Final = 4 * MEMORY_LIMIT_BYTES


@pytest.mark.parametrize(("publishers", "topics"), [(100, 1), (100, 100)], ids=["all to one topic", "a topic each"])
def test_memory_is_bounded_whatever_is_pushed_through(tmp_path: Path, publishers: int, topics: int) -> None:
    """First nobody reads, so that the budget is under as much pressure as there can be."""
    per_publisher = PUSHED_BYTES // BODY_BYTES // publishers
    with (
        running_broker(
            tmp_path, memory_limit=MEMORY_LIMIT_BYTES, max_body_bytes=MIB, max_transaction_bytes=MIB
        ) as broker,
        ExitStack() as clients,
    ):
        before_bytes = broker.resident_bytes()
        subscribers = [clients.enter_context(RawClient.connected(broker.address)) for _ in range(topics)]
        for number, subscriber in enumerate(subscribers):
            subscriber.subscribe(f"/topic/{number:03d}")
        floods = []
        for number in range(publishers):
            flooder = clients.enter_context(RawClient.connected(broker.address))
            data = send_frame(f"/topic/{number % topics:03d}", body(number)) * per_publisher
            floods.append(clients.enter_context(sending(flooder, data)))
        wait_until(
            lambda: (
                sum(each["held_back"] or each["bytes_in"] >= len(data) for each in broker.statistics()["connections"])
                == publishers
            ),
            "all publishers held back, but for those that were through before the first one was",
        )

        receive_messages(subscribers, publishers * per_publisher)

        for flood in floods:
            flood.wait_done()
        memory = broker.statistics()["memory"]
        assert memory["peak_bytes"] > MEMORY_LIMIT_BYTES // 2 or topics == 1, "there was no pressure"
        slack_bytes = SLACK_BYTES + publishers * SLACK_PER_PUBLISHER_BYTES + topics * SLACK_PER_TOPIC_BYTES
        assert memory["peak_bytes"] <= MEMORY_LIMIT_BYTES + slack_bytes
        assert broker.resident_bytes() - before_bytes <= GROWTH_BYTES
        wait_until(lambda: broker.statistics()["memory"]["used_bytes"] < MIB, "all of it given back")


def receive_messages(subscribers: list[RawClient], count: int) -> None:
    """Read from all of them whatever comes first, until `count` messages have come; their bodies hold no NUL."""
    with selectors.DefaultSelector() as selector:
        for subscriber in subscribers:
            selector.register(subscriber.socket, selectors.EVENT_READ)
        received = 0
        while received < count:
            ready = selector.select(HARD_TIMEOUT_S)
            assert ready, f"after {received} of {count} messages no more come"
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                chunk = key.fileobj.recv(MIB)
                assert chunk, "the broker closed a connection"
                received += chunk.count(b"\0")
