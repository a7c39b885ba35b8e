"""When there is no room, publishers to stored topics wait and nothing is lost; when there is, all goes on by itself."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.end_to_end.little_room import Ballast, FileSizeLimit, mounted_tmpfs
from tests.end_to_end.raw_client import RawClient, frame, send_frame, sending
from tests.support.broker_process import running_broker, wait_until
from tests.support.prepared_process import run_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.little_room import Room
    from tests.support.broker_process import BrokerProcess

MIB: Final = 1024 * 1024
BODY_BYTES: Final = 4000
STORED: Final = "/topic/stored"
TRANSIENT: Final = "/topic/transient"
#: What the broker can still store when the test begins, and several times that much to store.
LEFT_BYTES: Final = 4 * MIB
MESSAGES: Final = 4000
FILE_SYSTEM_BYTES: Final = 64 * MIB
#: The low-space mark, and twice as many messages as there is room for up to it.
MIN_FREE_BYTES: Final = 48 * MIB
MESSAGES_BEYOND_THE_MARK: Final = 8000

NAME_HEADER: Final = {"activemq.subscriptionName": "all of it"}


def durable(broker: BrokerProcess) -> RawClient:
    client = RawClient.connected(broker.address, client_id="durable")
    client.subscribe(STORED, ack="client-individual", **NAME_HEADER)
    return client


def subscribe_and_leave(broker: BrokerProcess) -> None:
    with durable(broker) as client:
        client.send("DISCONNECT", receipt="goodbye")
        client.expect_receipt("goodbye")


def numbered(number: int) -> bytes:
    return b"%08d" % number + b"x" * (BODY_BYTES - 8)


def all_messages(count: int = MESSAGES) -> bytes:
    """Each with a receipt, which is its number."""
    return b"".join(send_frame(STORED, numbered(number), receipt=str(number)) for number in range(count))


def expect_receipts(publisher: RawClient, numbers: range) -> None:
    for number in numbers:
        publisher.expect_receipt(str(number))


def take_and_acknowledge(client: RawClient, count: int) -> list[int]:
    """The numbers of the next `count` messages."""
    numbers: list[int] = []
    while len(numbers) < count:
        message = client.next_message()
        numbers.append(int(message.body[:8]))
        client.send_raw(frame("ACK", id=message.headers["ack"]))
    return numbers


def round_trips(client: RawClient) -> None:
    for number in range(50):
        client.send_raw(send_frame(TRANSIENT, b"%d" % number))
        assert client.next_message().body == b"%d" % number


def store_state(broker: BrokerProcess) -> dict[str, Any]:
    """As an operator asks for it."""
    finished = run_program("stats", "--json", "--data", str(broker.data))
    assert finished.returncode == 0, finished.stderr
    return dict(json.loads(finished.stdout)["store"])


def failure(broker: BrokerProcess) -> dict[str, Any] | None:
    """What an operator is told if the store is not well. One answer: a checkpoint may make room before the next."""
    state = store_state(broker)
    return None if state["state"] == "ok" else state


@pytest.fixture(params=["file size limit", "full file system"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[BrokerProcess, Room]]:
    """A broker, and the way to take room from it."""
    with place_of(request.param, tmp_path) as found:
        yield found


@contextmanager
def place_of(kind: str, directory: Path) -> Iterator[tuple[BrokerProcess, Room]]:
    if kind == "file size limit":
        with running_broker(directory, min_free_bytes=0) as broker:
            yield broker, FileSizeLimit(broker)
    else:
        data = directory / "data"
        with mounted_tmpfs(data, FILE_SYSTEM_BYTES), running_broker(directory, min_free_bytes=0) as broker:
            yield broker, Ballast(data)


def test_publishers_wait_while_there_is_no_room_and_go_on_when_there_is(place: tuple[BrokerProcess, Room]) -> None:
    broker, room = place
    subscribe_and_leave(broker)
    with RawClient.connected(broker.address) as publisher, RawClient.connected(broker.address) as other:
        other.subscribe(TRANSIENT)
        assert store_state(broker)["state"] == "ok"
        room.take(LEFT_BYTES)
        with sending(publisher, all_messages()) as under_way:
            failing = wait_until(lambda: failure(broker), "the store says that it fails")
            assert failing["reason"]

            round_trips(other)
            room.make()

            expect_receipts(publisher, range(MESSAGES))
            under_way.wait_done()
        wait_until(lambda: store_state(broker)["state"] == "ok", "the store has recovered")
    with durable(broker) as subscriber:
        assert take_and_acknowledge(subscriber, MESSAGES) == list(range(MESSAGES))


def test_what_has_a_receipt_is_there_when_a_broker_without_room_is_killed(place: tuple[BrokerProcess, Room]) -> None:
    broker, room = place
    subscribe_and_leave(broker)
    publisher = RawClient.connected(broker.address)
    room.take(LEFT_BYTES)
    with publisher, sending(publisher, all_messages()):
        wait_until(lambda: broker.statistics()["store"]["state"] != "ok", "the store says that it fails")
        broker.kill()
        receipted = receipts_up_to_the_end(publisher)
    if isinstance(room, Ballast):
        room.make()

    broker.restart()

    assert receipted == list(range(len(receipted)))
    assert len(receipted) < MESSAGES
    with durable(broker) as subscriber:
        assert take_and_acknowledge(subscriber, len(receipted)) == receipted


def receipts_up_to_the_end(publisher: RawClient) -> list[int]:
    """Of a broker that is gone."""
    receipts: list[int] = []
    try:
        while True:
            given = publisher.next_frame()
            assert given.command == "RECEIPT", given
            receipts.append(int(given.headers["receipt-id"]))
    except (AssertionError, ConnectionError) as ended:
        if isinstance(ended, AssertionError) and "closed" not in str(ended):
            raise
    return receipts


def test_a_backlog_up_to_the_low_space_mark_is_drained_by_its_consumer_and_publishing_resumes(tmp_path: Path) -> None:
    numbers = range(MESSAGES_BEYOND_THE_MARK)
    with (
        mounted_tmpfs(tmp_path / "data", FILE_SYSTEM_BYTES),
        running_broker(tmp_path, min_free_bytes=MIN_FREE_BYTES) as broker,
    ):
        subscribe_and_leave(broker)
        with RawClient.connected(broker.address) as publisher, RawClient.connected(broker.address) as other:
            other.subscribe(TRANSIENT)
            with sending(publisher, all_messages(len(numbers))) as under_way:
                wait_until(lambda: broker.statistics()["store"]["state"] != "ok", "the store says that it is full")
                round_trips(other)

                with durable(broker) as subscriber:
                    # Nothing but the consumer makes room from here on.
                    assert take_and_acknowledge(subscriber, len(numbers)) == list(numbers)

                expect_receipts(publisher, numbers)
                under_way.wait_done()
        wait_until(lambda: broker.statistics()["store"]["state"] == "ok", "the store has room again")


def test_consumers_make_room_on_a_full_disk_without_a_mark(tmp_path: Path) -> None:
    """Somebody else fills the disk, to the last byte: what is kept for deletions lets consumers make room."""
    first, rest = 400, range(400, MESSAGES)
    with mounted_tmpfs(tmp_path / "data", FILE_SYSTEM_BYTES), running_broker(tmp_path, min_free_bytes=0) as broker:
        subscribe_and_leave(broker)
        with RawClient.connected(broker.address) as publisher:
            # In two batches at least: a batch looks at what the ones before it have written.
            for numbers in range(first // 2), range(first // 2, first):
                publisher.send_raw(
                    b"".join(send_frame(STORED, numbered(number), receipt=str(number)) for number in numbers)
                )
                expect_receipts(publisher, numbers)
            reserve = broker.data / "reserve"
            wait_until(lambda: reserve.exists() and reserve.stat().st_size, "room is kept for deletions")
            Ballast(broker.data).take(LEFT_BYTES)
            frames = b"".join(send_frame(STORED, numbered(number), receipt=str(number)) for number in rest)
            with sending(publisher, frames) as under_way:
                wait_until(lambda: broker.statistics()["store"]["state"] != "ok", "the store says that it is full")

                with durable(broker) as subscriber:
                    # Nothing but the consumer makes room from here on.
                    assert take_and_acknowledge(subscriber, MESSAGES) == list(range(MESSAGES))

                expect_receipts(publisher, rest)
                under_way.wait_done()
        wait_until(lambda: broker.statistics()["store"]["state"] == "ok", "the store has room again")
