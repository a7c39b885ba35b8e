"""The process that writes to the embedded store: the broker survives it, it never survives the broker, and it holds
nothing that is not its own.

Law: real processes, and signals as an operator, a terminal or the kernel would send them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, final

import psutil
import pytest
import trio

from soak.crash_run import CrashSettings, run_crashes
from soak.stomp_client import round_trip
from tests.end_to_end.raw_client import RawClient, send_frame
from tests.support.broker_process import running_broker, wait_until
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.prepared_process import PYTHON, clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

MESSAGES: Final = 1000
LOST: Final = "the process that writes to the store is lost; a thread does it from now on"


def writing_process_of(broker: BrokerProcess) -> psutil.Process:
    _, writing = broker.family()
    return writing


def is_gone(process: psutil.Process) -> bool:
    """Not even a zombie is left."""
    return not process.is_running()


def publish_stored(publisher: RawClient, body: bytes) -> None:
    publisher.send_raw(send_frame("/topic/a", body, receipt=body.decode()))
    publisher.expect_receipt(body.decode())


def has_backlog(broker: BrokerProcess, units: int) -> bool:
    return bool(broker.statistics()["store"]["backlog_units"] >= units)


def durable(broker: BrokerProcess) -> RawClient:
    client = RawClient.connected(broker.address, client_id="billing")
    client.subscribe("/topic/a", durable_subscription_name="orders", ack="client-individual")
    return client


# It dies -------------------------------------------------------------------------------------------------------------


@final
class WritingProcessVictim:
    """The broker has to survive its loss, and to notice."""

    takes_connections_along = False

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._process = writing_process_of(broker)

    def kill(self) -> None:
        with suppress(psutil.NoSuchProcess):  # the last kill of a run finds none
            self._process.kill()

    async def bring_back(self) -> None:
        await round_trip(self._broker.address)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_lost_and_nobody_notices_when_it_is_killed_under_load(tmp_path: Path, seed: int) -> None:
    with running_broker(tmp_path) as broker:
        victim = WritingProcessVictim(broker)
        settings = CrashSettings(messages=MESSAGES, kills=1, seed=seed)

        outcome = trio.run(lambda: run_crashes(settings, broker, victim))

        assert outcome.complaints() == []
        assert outcome.tally.receipted >= 3 * MESSAGES
        # Connections lived, and what they had sent was stored once.
        assert outcome.tally.sent_again == 0
        assert [entry["reason"] for entry in broker.events(LOST)] == ["it was killed by signal 9"]
        assert len(broker.family()) == 1, "it was waited for"
        assert broker.statistics()["store"]["state"] == "ok"


def test_a_broker_that_has_lost_it_has_another_after_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        durable(broker).close()
        writing_process_of(broker).kill()
        with RawClient.connected(broker.address) as publisher:
            publish_stored(publisher, b"by a thread")
        broker.stop()

        broker.restart()

        with RawClient.connected(broker.address) as publisher:
            publish_stored(publisher, b"by a process")
        with durable(broker) as subscriber:
            assert [subscriber.next_message().body for _ in range(2)] == [b"by a thread", b"by a process"]
        assert len(broker.family()) == 2


# The broker dies -----------------------------------------------------------------------------------------------------


def test_it_does_not_outlive_a_broker_that_is_killed(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        durable(broker).close()
        writing = writing_process_of(broker)

        broker.kill()

        wait_until(lambda: is_gone(writing), "the end of the writing process")


def test_a_broker_starts_at_once_beside_what_a_killed_one_left_hanging(tmp_path: Path) -> None:
    """It may be in the middle of a batch; nothing that it holds keeps the next broker out."""
    with running_broker(tmp_path) as broker:
        durable(broker).close()
        writing = writing_process_of(broker)
        writing.suspend()
        try:
            with RawClient.connected(broker.address) as publisher:
                publisher.send_raw(send_frame("/topic/a", b"never confirmed", receipt="r"))
                wait_until(partial(has_backlog, broker, 1), "a batch on its way")
            broker.kill()

            broker.restart()

            with RawClient.connected(broker.address) as publisher:
                publish_stored(publisher, b"first")
        finally:
            writing.resume()
        wait_until(lambda: is_gone(writing), "the end of the writing process")
        with RawClient.connected(broker.address) as publisher:
            publish_stored(publisher, b"second")
        with durable(broker) as subscriber:
            assert [subscriber.next_message().body for _ in range(2)] == [b"first", b"second"]


# Ending --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_ends_both_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C in a terminal, and many a service manager: what was confirmed is written, and the log copied back."""
    with running_broker(tmp_path) as broker:
        durable(broker).close()
        with RawClient.connected(broker.address) as publisher:
            publish_stored(publisher, b"kept")
        writing = writing_process_of(broker)

        writing.send_signal(number)
        broker.signal(number)

        assert broker.wait_ended() == 0
        assert is_gone(writing)
        assert "Traceback" not in broker.log()
        assert not broker.events(LOST)
        assert [path.name for path in broker.data.glob("*.db-wal")] == []


@pytest.mark.parametrize("is_writing", [False, True])
def test_one_that_hangs_does_not_keep_the_broker_from_ending(tmp_path: Path, is_writing: bool) -> None:
    with running_broker(tmp_path, shutdown_grace_s=0.1) as broker:
        durable(broker).close()
        writing = writing_process_of(broker)
        writing.suspend()
        if is_writing:
            with RawClient.connected(broker.address) as publisher:
                publisher.send_raw(send_frame("/topic/a", b"never confirmed", receipt="r"))
                wait_until(lambda: broker.statistics()["store"]["backlog_units"], "a batch on its way")

        broker.signal(signal.SIGTERM)

        assert broker.wait_ended() == 0
        wait_until(lambda: is_gone(writing), "the end of the writing process")


def test_whoever_comes_back_while_one_hangs_has_not_been_taken_over(tmp_path: Path) -> None:
    """What the earlier connections said is still on its way to the store, and so they are known; nobody is there."""
    with running_broker(tmp_path) as broker:
        durable(broker).close()
        with RawClient.connected(broker.address) as publisher:
            for number in range(5):
                publish_stored(publisher, b"%d" % number)
        writing = writing_process_of(broker)
        writing.suspend()
        for number in range(5):
            with durable(broker) as returned:
                message = returned.next_message()
                assert message.body == b"%d" % number
                returned.send("ACK", id=message.headers["ack"], receipt="not confirmed")
                wait_until(partial(has_backlog, broker, number + 1), "the ACK on its way")
        writing.resume()


def test_one_that_hangs_counts_as_a_failing_store(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        durable(broker).close()
        writing = writing_process_of(broker)
        writing.suspend()
        with RawClient.connected(broker.address) as publisher:
            publisher.send_raw(send_frame("/topic/a", b"patience", receipt="r"))

            broker.wait_logged("the store hangs; publishers to stored topics wait")

            assert broker.statistics()["store"]["state"] == "failing"
            writing.resume()
            publisher.expect_receipt("r")
        broker.wait_logged("the store works again; publishers go on")


# What it holds -------------------------------------------------------------------------------------------------------


def test_it_holds_nothing_of_the_brokers(tmp_path: Path) -> None:
    """Neither the lock, which would keep the next broker out, nor what a client or a reader of our output waits for."""
    with running_broker(tmp_path) as broker, RawClient.connected(broker.address):
        durable(broker).close()
        writing = writing_process_of(broker)
        files = {os.readlink(link) for link in _descriptors(writing)}

        assert not any(name.endswith(("broker.lock", "/output")) for name in files)
        assert writing.net_connections("inet") == []
        assert [os.readlink(f"/proc/{writing.pid}/fd/{number}") for number in (0, 1)] == [os.devnull] * 2
        # The two that it is asked on.
        assert sum(name.startswith("socket:") for name in files) == 2


def _descriptors(process: psutil.Process) -> list[str]:
    return [f"/proc/{process.pid}/fd/{number}" for number in os.listdir(f"/proc/{process.pid}/fd")]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_a_broker_whose_standard_streams_are_closed_writes_in_a_process_as_well(tmp_path: Path, closed: str) -> None:
    """Their numbers are free then, and go to whatever is opened first."""
    data, log = tmp_path / "data", tmp_path / "log"
    command = [*PYTHON, "-m", "stompbroker", "serve", "--port", "0", "--http-port", "0", "--data", str(data)]
    shell = f'exec "$@" {closed} 2>{log}'
    with subprocess.Popen(["/bin/sh", "-c", shell, "sh", *command], env=clean_environment()) as started:
        try:
            wait_until(lambda: (data / "control.sock").exists() or started.poll() is not None, "its control socket")
            assert started.poll() is None, log.read_text()
            (writing,) = psutil.Process(started.pid).children()
            assert writing.status() != psutil.STATUS_ZOMBIE
            started.send_signal(signal.SIGTERM)
            assert started.wait(HARD_TIMEOUT_S) == 0
        finally:
            started.kill()
    assert "is lost" not in log.read_text()
    assert "Traceback" not in log.read_text()
