"""The checklist's items 32 to 36: receipts and ERROR frames."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import lockstep_stream_pair, wait_all_tasks_blocked

from stompbroker.delivery import Gate
from stompbroker.errors import PeerViolation
from stompbroker.transport import StreamTransport
from tests.end_to_end.conformance.versions import V1_0, answer, every_answer, every_version, from_1_1_on
from tests.support.broker_under_test import Client, running_broker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.changes import JournalStatistics, Unit
    from stompbroker.stomp import Version
    from tests.support.broker_under_test import BrokerUnderTest


@every_version
async def test_item_32_every_frame_with_a_receipt_gets_exactly_one(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    seen_before = len(client.received)

    await client.send("SUBSCRIBE", id="0", destination="/topic/b", receipt="SUBSCRIBE")
    await client.send("SEND", destination="/topic/a", receipt="SEND")
    await client.send("BEGIN", transaction="t", receipt="BEGIN")
    await client.send("SEND", destination="/topic/a", transaction="t", receipt="SEND in it")
    await client.send("COMMIT", transaction="t", receipt="COMMIT")
    await client.send("BEGIN", transaction="t", receipt="BEGIN again")
    await client.send("ABORT", transaction="t", receipt="ABORT")
    await client.send("UNSUBSCRIBE", id="0", receipt="UNSUBSCRIBE")
    await client.send("DISCONNECT", receipt="DISCONNECT")

    receipts = [
        "SUBSCRIBE",
        "SEND",
        "BEGIN",
        "SEND in it",
        "COMMIT",
        "BEGIN again",
        "ABORT",
        "UNSUBSCRIBE",
        "DISCONNECT",
    ]
    for receipt in receipts:
        await client.expect_receipt(receipt)
    await client.expect_closed()
    assert client.received[seen_before:] == b"".join(b"RECEIPT\nreceipt-id:%b\n\n\0\n" % r.encode() for r in receipts)


@every_answer
@pytest.mark.parametrize("in_transaction", [False, True], ids=["alone", "in a transaction"])
async def test_item_32_an_answer_with_a_receipt_gets_one(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str, in_transaction: bool
) -> None:
    client = await broker.subscriber(version=version, ack="client")
    await client.publish(b"x")
    message = await client.next_message()
    await client.send("BEGIN", transaction="t")

    await answer(client, command, message, receipt="r", **({"transaction": "t"} if in_transaction else {}))

    await client.expect_receipt("r")


@every_version
async def test_item_32_a_frame_without_a_receipt_gets_none(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("SUBSCRIBE", id="0", destination="/topic/b")
    await client.publish(b"x")
    await client.send("BEGIN", transaction="t")
    await client.send("COMMIT", transaction="t")
    await client.send("UNSUBSCRIBE", id="0")

    await client.expect_nothing()


@every_version
async def test_item_32_receipts_come_in_the_order_of_their_frames(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    receipts = [str(number) for number in range(2000)]

    await client.send_raw(
        b"".join(client.frame("SEND", destination=f"/topic/{int(r) % 3}", receipt=r) for r in receipts)
    )

    for receipt in receipts:
        await client.expect_receipt(receipt)


async def test_item_32_two_frames_may_ask_for_the_same_receipt(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client()

    await client.publish(b"one", b"two", receipt="same")

    await client.expect_receipt("same")
    await client.expect_receipt("same")
    await client.expect_nothing()


@every_version
async def test_item_32_what_was_sent_before_the_connection_was_lost_still_counts(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)

    await publisher.publish(*(b"%d" % number for number in range(1500)))
    await publisher.vanish()

    bodies = [message.body for message in await subscriber.next_messages(1500)]
    assert bodies == [b"%d" % number for number in range(1500)]


@every_version
async def test_item_32_what_was_sent_before_a_mistake_still_counts(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)

    await publisher.send_raw(
        publisher.frame("SEND", b"good", destination="/topic/a", receipt="r")
        + publisher.frame("NONSENSE")
        + publisher.frame("SEND", b"too late", destination="/topic/a")
    )

    await publisher.expect_receipt("r")
    await publisher.expect_error("unknown command")
    assert (await subscriber.next_message()).body == b"good"
    await subscriber.expect_nothing()


#: Frames that fail, each with what the ERROR says. The client has subscription 0, and `open` is an open transaction.
FAILING = {
    "SEND without destination": ("SEND", {}, "destination"),
    "SEND to no topic": ("SEND", {"destination": "/topic/"}, "invalid destination"),
    "SEND to a pattern": ("SEND", {"destination": "/topic/*"}, "invalid destination"),
    "SEND in an unknown transaction": (
        "SEND",
        {"destination": "/topic/a", "transaction": "none"},
        "unknown transaction",
    ),
    "SUBSCRIBE without destination": ("SUBSCRIBE", {"id": "1"}, "destination"),
    "SUBSCRIBE to no topic": ("SUBSCRIBE", {"id": "1", "destination": "//"}, "invalid destination"),
    "SUBSCRIBE twice": ("SUBSCRIBE", {"id": "0", "destination": "/topic/b"}, "subscription exists"),
    "UNSUBSCRIBE from nothing": ("UNSUBSCRIBE", {"id": "1"}, "unknown subscription"),
    "BEGIN twice": ("BEGIN", {"transaction": "open"}, "transaction already open"),
    "BEGIN without transaction": ("BEGIN", {}, "transaction"),
    "COMMIT of nothing": ("COMMIT", {"transaction": "none"}, "unknown transaction"),
    "ABORT of nothing": ("ABORT", {"transaction": "none"}, "unknown transaction"),
    "ACK of nothing": ("ACK", {"id": "9-9", "message-id": "none", "subscription": "0"}, "unknown"),
    "unknown command": ("NONSENSE", {}, "unknown command"),
}


@every_version
@pytest.mark.parametrize("failing", FAILING)
async def test_item_33_a_failed_frame_gets_an_error_instead_of_its_receipt_and_the_connection_ends(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, failing: str
) -> None:
    command, headers, said = FAILING[failing]
    client = await broker.subscriber(version=version)
    if headers.get("transaction") == "open":
        await client.send("BEGIN", transaction="open")

    await client.send(command, receipt="what:failed", **headers)

    error = await client.expect_error(said)
    assert said in error.headers["message"]
    assert error.body.decode().strip() in error.headers["message"]
    assert error.headers["receipt-id"] == "what:failed"
    assert error.headers["content-type"] == "text/plain"
    assert error.headers["content-length"] == str(len(error.body))
    assert not broker.registry.subscriptions


async def test_item_33_an_error_for_a_frame_without_receipt_has_no_receipt_id(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client()

    await client.send("NONSENSE")

    assert "receipt-id" not in (await client.expect_error()).headers


@every_version
async def test_item_33_too_large_a_body_that_comes_in_pieces_is_named_by_its_receipt(
    autojump_clock: MockClock, version: Version
) -> None:
    async with running_broker(max_body_bytes=100) as broker:
        client = await broker.client(version)

        await client.send_raw(b"SEND\ndestination:/topic/a\nreceipt:r\n\n")
        await client.send_raw(b"x" * 101)

        error = await client.expect_error("body too large")
        assert error.headers["receipt-id"] == "r"


@every_version
async def test_item_33_the_headers_of_an_error_are_escaped(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    seen_before = len(client.received)

    await client.send("NONSENSE", receipt="a:b")

    await client.expect_error()
    shown = b"a:b" if version is V1_0 else b"a\\cb"
    assert b"\nreceipt-id:" + shown + b"\n" in client.received[seen_before:]


@every_version
async def test_item_33_the_message_of_an_error_is_one_line_of_bounded_length_that_ends_with_what_is_allowed(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    seen_before = len(client.received)

    await client.send("SUBSCRIBE", id="0", destination="/topic/a", ack="on\r\na:\\rainy" * 1000 + " day")

    error = await client.expect_error("unknown ack mode")
    message = error.headers["message"]
    assert message.startswith("unknown ack mode - ack:on")
    assert message.endswith("day is not one of auto, client, client-individual")
    assert len(message) <= 500
    head, _, _ = client.received[seen_before:].partition(b"\n\n")
    assert [line.partition(b":")[0] for line in head.split(b"\n")] == [
        *(b"ERROR", b"message", b"content-type", b"content-length")
    ]
    assert b"\r" not in head


def test_item_33_the_message_of_an_error_holds_nothing_that_ends_a_line_or_a_frame() -> None:
    violation = PeerViolation("no", "first\nsecond\r\nthird\0fourth\x85fifth")

    assert violation.message == "no - first second third fourth fifth"
    assert PeerViolation("no").message == "no"


@every_version
async def test_item_33_nothing_more_is_taken_from_a_client_after_its_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    client = await broker.client(version)
    await client.send("NONSENSE")
    await client.expect_error()

    await client.publish(b"too late")

    await subscriber.expect_nothing()


async def test_item_34_the_error_is_read_behind_everything_owed_before_it(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    """The stream is in lockstep: it takes no byte before the client reads, as a full socket does."""
    async with trio.open_nursery() as nursery:
        ours, theirs = lockstep_stream_pair()
        nursery.start_soon(broker.parts.serve_connection, StreamTransport(theirs, "lockstep"))
        await wait_all_tasks_blocked()
        client = Client(ours, next(iter(broker.parts.sessions.values())))
        await client.connect()
        await client.subscribe()
        await client.publish(*(b"%d" % number for number in range(100)))
        await wait_all_tasks_blocked()

        await client.send("NONSENSE")
        await wait_all_tasks_blocked()

        assert len(await client.next_messages(100)) == 100
        assert (await client.next_frame()).command == "ERROR"
        await client.expect_closed()


@pytest.mark.parametrize("command", ["NONSENSE", "DISCONNECT"])
async def test_item_34_the_connection_is_half_closed_first_so_that_the_last_word_can_be_read(
    autojump_clock: MockClock, broker: BrokerUnderTest, command: str
) -> None:
    client = await broker.client()

    await client.send(command, receipt="last")
    assert (await client.next_frame()).headers["receipt-id"] == "last"
    await client.expect_closed()

    # Closed for good, this would be a broken stream; on a socket it would be answered with a reset.
    await client.send_raw(b"\n")
    await wait_all_tasks_blocked()
    await client.send_raw(b"\n")


class HoldingJournal:
    """Takes the place of the broker's, and keeps every unit until it is told that it is durable."""

    can_store = False
    is_overfull = False

    def __init__(self, broker: BrokerUnderTest) -> None:
        self._broker = broker
        self._units: list[Unit] = []
        self.gate = Gate()
        broker.parts.session_context = replace(broker.parts.session_context, journal=self)

    @property
    def pending_units(self) -> int:
        return len(self._units)

    def submit(self, unit: Unit) -> None:
        self._units.append(unit)

    async def wait_idle(self) -> None:
        raise NotImplementedError

    def next_subscription_id(self) -> int:
        raise NotImplementedError

    def statistics(self) -> JournalStatistics:
        raise NotImplementedError

    def complete_all(self) -> None:
        units, self._units = self._units, []
        for unit in units:
            unit.complete(self._broker.clock.now_ns())


@every_version
async def test_item_35_a_receipt_waits_until_the_message_is_stored(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    journal = HoldingJournal(broker)
    publisher = await broker.client(version)

    await publisher.publish(b"one", receipt="1")
    await publisher.publish(b"two", receipt="2")
    await publisher.expect_nothing()
    journal.complete_all()

    await publisher.expect_receipt("1")
    await publisher.expect_receipt("2")


@every_version
async def test_item_35_the_receipt_of_commit_waits_until_the_transaction_is_stored(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    journal = HoldingJournal(broker)
    publisher = await broker.client(version)

    await publisher.send("BEGIN", transaction="t")
    await publisher.publish(b"one", transaction="t")
    await publisher.send("COMMIT", transaction="t", receipt="committed")
    await publisher.expect_nothing()
    journal.complete_all()

    await publisher.expect_receipt("committed")


@every_version
async def test_item_35_disconnect_is_confirmed_when_everything_before_it_is_stored(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    journal = HoldingJournal(broker)
    publisher = await broker.client(version)

    await publisher.publish(b"one", receipt="1")
    await publisher.send("DISCONNECT", receipt="2")
    await publisher.expect_nothing()
    journal.complete_all()

    await publisher.expect_receipt("1")
    await publisher.expect_receipt("2")
    await publisher.expect_closed()


@every_version
async def test_item_36_the_receipt_of_subscribe_comes_before_its_first_message(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send_raw(
        client.frame("SEND", b"too early", destination="/topic/a")
        + client.frame("SUBSCRIBE", id="0", destination="/topic/a", receipt="subscribed")
        + client.frame("SEND", b"first", destination="/topic/a")
    )

    await client.expect_receipt("subscribed")
    assert (await client.next_message()).body == b"first"
    await client.expect_nothing()


@from_1_1_on
async def test_item_36_so_it_is_while_others_publish(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    publisher = await broker.client()
    client = await broker.client(version)

    for number in range(20):
        await publisher.publish(b"%d" % number)
    await client.send("SUBSCRIBE", id="0", destination="/topic/a", receipt="r")
    for number in range(20):
        await publisher.publish(b"%d" % number)
    await publisher.publish(b"last")

    await client.expect_receipt("r")
    while (await client.next_message()).body != b"last":
        pass
