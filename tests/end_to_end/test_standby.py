"""Two brokers on one PostgreSQL: when the one that serves is lost, the other one takes over, and never are there two.

Law: real processes, a real server and, between the two, a network that can be lost; `soak` has the parts. `make soak
ARGS="--standby"` does the same for longer.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import httpx
import pytest
import trio

from soak.crash_run import CrashSettings
from soak.database import migrate
from soak.standby_run import run_standby, running_pair
from tests.end_to_end.raw_client import RawClient, send_frame
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from soak.standby_run import Pair

#: Ends of processes that ask to be started again.
START_AGAIN: Final = 75
SENT: Final = 500


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[Pair]:
    migrate(postgres_url)
    with running_pair(tmp_path, postgres_url, lease_s=3.0) as pair:
        yield pair


def health_of(broker: BrokerProcess, question: str) -> httpx.Response:
    url = broker.wait_logged("answering for health alone")["management"]
    return httpx.get(f"{url.rstrip('/')}/health/{question}", trust_env=False)


def rest_of(client: RawClient) -> bytes:
    """What comes until the connection ends."""
    received = b""
    with suppress(ConnectionResetError):
        while chunk := client.socket.recv(65_536):
            received += chunk
    return received


def test_nothing_with_a_receipt_is_lost_however_the_broker_is(tmp_path: Path, pair: Pair) -> None:
    settings = CrashSettings(messages=400, kills=2, seed=1, stall_s=60.0)

    outcome = trio.run(lambda: run_standby(settings, pair, tmp_path / "lake"))

    assert outcome.complaints() == []
    # One of each kind.
    assert outcome.kills == len(outcome.remarks) == 3
    assert outcome.tally.confirmed_acks > 400


def test_a_broker_that_stood_still_past_its_lease_sends_nothing_more(pair: Pair) -> None:
    lost = pair.serving
    subscriber, publisher = (RawClient.connected(pair.address) for _ in range(2))
    with subscriber, publisher:
        subscriber.subscribe("/topic/in-memory")
        lost.signal(signal.SIGSTOP)
        publisher.send_raw(send_frame("/topic/in-memory", b"late", receipt="late") * SENT)
        pair.change_places()

        lost.signal(signal.SIGCONT)

        assert rest_of(subscriber) == b""
        assert rest_of(publisher) == b""
        assert lost.wait_ended() == START_AGAIN
    assert "nothing was sent since" in lost.log()


def test_a_broker_that_is_cut_off_ends_topics_in_memory_too_before_the_other_begins(pair: Pair) -> None:
    lost, successor = pair.serving, pair.waiting
    with RawClient.connected(pair.address) as client:
        client.subscribe("/topic/in-memory")
        pair.way_of(lost).hold()

        error = client.next_frame()

        assert error.command == "ERROR"
        assert error.headers["message"].startswith("broker may have lost its store")
        assert not successor.events("broker is starting")
    assert lost.wait_ended() == START_AGAIN
    assert "could not be renewed in time" in lost.log()
    pair.change_places()


def test_a_clean_end_hands_the_store_over_at_once(tmp_path: Path, postgres_url: str) -> None:
    migrate(postgres_url)
    # So long nobody would wait for the lease to run out.
    with running_pair(tmp_path, postgres_url, lease_s=3_600.0) as pair:
        pair.serving.stop()

        pair.change_places()

        taken = pair.serving.wait_logged("taken over from another broker")
        assert taken["why"] == "it has given its lease back"
        assert str(pair.waiting.process.pid) in taken["owner"]


def test_a_killed_broker_has_its_store_at_once_when_it_is_started_again(tmp_path: Path, postgres_url: str) -> None:
    migrate(postgres_url)
    with running_pair(tmp_path, postgres_url, lease_s=3_600.0) as pair:
        pair.serving.kill()

        pair.serving.restart()

        assert pair.waiting.is_running
        assert not pair.waiting.events("broker is starting")


def test_a_standby_lives_and_is_not_ready_and_listens_for_no_clients(pair: Pair) -> None:
    (line,) = pair.waiting.output()

    assert "is on stand-by for postgresql" in line
    assert str(pair.serving.process.pid) in line
    assert health_of(pair.waiting, "live").json() == {"status": "live"}
    ready = health_of(pair.waiting, "ready")
    assert (ready.status_code, ready.json()["detail"].partition(":")[0]) == (503, "standby")
    assert not pair.waiting.events("broker is starting")


def test_a_standby_ends_at_once_when_it_is_told_to(pair: Pair) -> None:
    pair.waiting.stop()

    assert pair.serving.is_running


def test_a_standby_outlasts_the_database(pair: Pair) -> None:
    pair.way_of(pair.waiting).close()

    pair.waiting.wait_logged("on stand-by, and the store cannot be reached")

    assert pair.waiting.is_running


def test_brokers_on_one_store_are_warned_of_two_lakes(tmp_path: Path, postgres_url: str) -> None:
    migrate(postgres_url)
    brokers = [BrokerProcess(tmp_path / name, ["--database", postgres_url]) for name in ("first", "second")]
    warning = "the last broker on this store had another data directory, and perhaps a lake in it"
    first, second = brokers
    try:
        for broker in brokers:
            broker.data.parent.mkdir()
        for broker in (first, first, second):
            broker.start()
            broker.stop()

        assert not first.events(warning)
        assert second.events(warning)
    finally:
        first.clean_up()
        second.clean_up()


def test_a_standby_needs_a_store_on_a_server(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, ["--standby"])

    with pytest.raises(AssertionError, match="exit code 2"):
        broker.start()

    assert "standby needs a store that two machines can reach" in broker.log()
