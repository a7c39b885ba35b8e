"""Clients that wait for themselves, or for each other, through topics that are full."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.end_to_end.raw_client import TINY_BUFFER_BYTES, RawClient, send_frame, sending
from tests.support.broker_process import running_broker, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

#: Fit together into what is read ahead from a held-back client, so that its answers behind them are seen.
MESSAGES: Final = 1_000
#: Much less than that: every topic here is full nearly all the time.
WINDOW_MESSAGES: Final = 20
PREFETCH: Final = 5

HEART_BEAT_MS: Final = 200
HEART_BEAT_MARGIN: Final = 4


def publish_numbers(client: RawClient, destination: str) -> None:
    client.send_raw(b"".join(send_frame(destination, b"%d" % number) for number in range(MESSAGES)))


def acknowledge_next(client: RawClient, number: int) -> None:
    message = client.next_message()
    assert message.body == b"%d" % number
    client.send("ACK", id=message.headers["ack"])


def wait_all_settled(broker: BrokerProcess) -> None:
    wait_until(
        lambda: all(each["acked"] == MESSAGES for each in broker.statistics()["subscriptions"]), "all acknowledged"
    )
    assert not any(each["held_back"] for each in broker.statistics()["connections"])


def test_a_client_may_publish_to_and_acknowledge_from_one_full_topic(tmp_path: Path) -> None:
    with running_broker(tmp_path, window_messages=WINDOW_MESSAGES) as broker:
        with RawClient.connected(broker.address) as client:
            client.subscribe("/topic/a", ack="client-individual", prefetch_count=str(PREFETCH))

            publish_numbers(client, "/topic/a")
            wait_until(lambda: broker.statistics()["connections"][0]["held_back"], "the client held back")
            for number in range(MESSAGES):
                acknowledge_next(client, number)

            wait_all_settled(broker)


def test_two_clients_in_a_ring_of_full_topics_go_on(tmp_path: Path) -> None:
    with running_broker(tmp_path, window_messages=WINDOW_MESSAGES) as broker:
        with RawClient.connected(broker.address) as left, RawClient.connected(broker.address) as right:
            left.subscribe("/topic/to-left", ack="client", prefetch_count=str(PREFETCH))
            right.subscribe("/topic/to-right", ack="client", prefetch_count=str(PREFETCH))

            publish_numbers(left, "/topic/to-right")
            publish_numbers(right, "/topic/to-left")
            wait_until(lambda: all(each["held_back"] for each in broker.statistics()["connections"]), "both held back")
            for number in range(MESSAGES):
                acknowledge_next(left, number)
                acknowledge_next(right, number)

            wait_all_settled(broker)


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_client_stuck_in_its_own_send_is_told_so_in_the_end(tmp_path: Path, ack: str) -> None:
    """It reads nothing until it has sent everything, and the broker cannot take everything until it reads."""
    with running_broker(tmp_path, window_bytes="1 MiB", block_timeout_s=0.5) as broker:
        with RawClient.connected(broker.address) as client:
            client.subscribe("/topic/a", ack=ack)

            client.send_raw(send_frame("/topic/a", b"x" * 10_000) * 6_000)

            _, error = client.messages_up_to_the_end()
            reason, _, _ = error.headers["message"].partition(" - ")
            assert reason in ("held back too long", "subscriber too slow")
            client.check_error(error, "/topic/a" if reason == "subscriber too slow" else "'a'")


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[tuple[BrokerProcess, RawClient]]:
    """A broker, and a client that keeps its topic "blocked" full by not reading."""
    with running_broker(
        tmp_path, window_bytes="1 MiB", heart_beat_want_ms=HEART_BEAT_MS, heart_beat_margin=HEART_BEAT_MARGIN
    ) as broker:
        with (
            RawClient.connected(broker.address, receive_buffer_bytes=TINY_BUFFER_BYTES) as stuck,
            RawClient.connected(broker.address) as publisher,
        ):
            stuck.subscribe("/topic/blocked")
            publisher.send_raw(send_frame("/topic/blocked", b"x" * 10_000) * 400)
            wait_until(lambda: broker.statistics()["topics"][0]["blocked"], "the topic full")
            yield broker, stuck


def is_held_back(broker: BrokerProcess, client: RawClient) -> bool:
    peer = "{}:{}".format(*client.socket.getsockname())
    return any(each["peer"] == peer and each["held_back"] for each in broker.statistics()["connections"])


def test_heart_beats_keep_a_client_connected_while_it_is_held_back(blocked: tuple[BrokerProcess, RawClient]) -> None:
    broker, stuck = blocked
    with RawClient.connected(broker.address, heart_beat=f"{HEART_BEAT_MS},{HEART_BEAT_MS}") as client:
        client.send_raw(send_frame("/topic/blocked", b"late", receipt="sent"))
        wait_until(lambda: is_held_back(broker, client), "the client held back")

        began_at = time.monotonic()
        while time.monotonic() - began_at < 2 * HEART_BEAT_MARGIN * HEART_BEAT_MS / 1000:
            client.wait_heart_beats(1)  # the broker's, at least one an interval
            client.send_raw(b"\n")
        assert is_held_back(broker, client)
        stuck.reset()

        client.expect_receipt("sent")


def test_a_held_back_client_that_falls_silent_is_disconnected(blocked: tuple[BrokerProcess, RawClient]) -> None:
    broker, _ = blocked
    with RawClient.connected(broker.address, heart_beat=f"{HEART_BEAT_MS},0") as client:
        client.send_raw(send_frame("/topic/blocked", b"late", receipt="sent"))

        client.expect_error("heart-beat missing")


def test_no_heart_beats_are_demanded_of_a_client_the_broker_does_not_read_from(
    blocked: tuple[BrokerProcess, RawClient],
) -> None:
    broker, stuck = blocked
    with RawClient.connected(broker.address, heart_beat=f"{HEART_BEAT_MS},{HEART_BEAT_MS}") as client:
        flood = send_frame("/topic/blocked", b"x" * 10_000) * 6_000 + send_frame("/topic/other", b"", receipt="sent")
        with sending(client, flood) as under_way:
            wait_until(lambda: is_held_back(broker, client), "the client held back")

            began_at = time.monotonic()
            while time.monotonic() - began_at < 2 * HEART_BEAT_MARGIN * HEART_BEAT_MS / 1000:
                client.wait_heart_beats(1)
            assert under_way.is_under_way
            stuck.reset()

            under_way.wait_done()
        client.expect_receipt("sent")
