"""How a broker's process begins, ends, is killed and comes back, and what it does when descriptors run out."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.raw_client import TINY_BUFFER_BYTES, RawClient, send_frame
from tests.end_to_end.stomp_py_client import connected
from tests.support.broker_process import running_broker, wait_until
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.prepared_process import clean_environment, run_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker_process import Address, BrokerProcess

#: Longer than any test may take: a broker that ends earlier did not wait for it.
VERY_LONG_S = 600


# Beginning ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for the tests that leave it as they found it."""
    with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def test_the_commands_it_greets_with_work_as_printed(broker: BrokerProcess) -> None:
    _, _, subscribe, publish, _ = broker.output()
    environment = clean_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    with subprocess.Popen(
        shlex.split(subscribe), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as subscriber:
        try:
            assert subscriber.stdout is not None
            assert subscriber.stderr is not None
            assert subscriber.stderr.readline().startswith("Subscribed to /topic/greetings")

            subprocess.run(shlex.split(publish), env=environment, check=True, timeout=HARD_TIMEOUT_S)

            assert any("Hello, world" in line for line in subscriber.stdout)
        finally:
            subscriber.kill()


def test_a_second_broker_is_refused_the_data_directory_and_told_who_holds_it(broker: BrokerProcess) -> None:
    refused = run_program("serve", "--port", "0", "--data", str(broker.data))

    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"process {broker.process.pid} " in refused.stderr
    assert "Traceback" not in refused.stderr
    with connected(broker.address) as client:
        client.wait_applied()


def test_a_port_in_use_is_refused_with_a_sentence(broker: BrokerProcess, tmp_path: Path) -> None:
    port = str(broker.address.port)

    refused = run_program("serve", "--port", port, "--data", str(tmp_path))

    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"Cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_only_its_user_may_ask_it_for_statistics(broker: BrokerProcess) -> None:
    mode = (broker.data / "control.sock").stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_statistics_agree_with_what_happened(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, connected(broker.address) as client:
        client.subscribe("/topic/a", id="reader", ack="client-individual", prefetch_count="7")
        client.publish("/topic/a", *["x" * 10] * 5)
        client.publish("/topic/b", *["y" * 20] * 3)
        messages = client.inbox.wait_messages(5)
        client.acknowledge(messages[0])
        client.acknowledge(messages[3])
        client.wait_applied()

        shown = run_program("stats", "--json", "--data", str(broker.data))

        assert shown.returncode == 0, shown.stderr
        statistics = json.loads(shown.stdout)
        topics = {topic["name"]: topic for topic in statistics["topics"]}
        assert (topics["a"]["published"], topics["a"]["published_bytes"], topics["a"]["subscribers"]) == (5, 50, 1)
        assert (topics["b"]["published"], topics["b"]["published_bytes"], topics["b"]["subscribers"]) == (3, 60, 0)
        (subscription,) = statistics["subscriptions"]
        assert (subscription["key"], subscription["destination"]) == ("reader", "/topic/a")
        assert (subscription["ack"], subscription["prefetch"]) == ("client-individual", 7)
        assert (subscription["delivered"], subscription["acked"], subscription["in_flight"]) == (5, 2, 3)
        (connection,) = statistics["connections"]
        assert (connection["version"], connection["subscriptions"]) == ("1.2", 1)
        assert (statistics["totals"]["published"], statistics["totals"]["delivered"]) == (8, 5)


# Ending ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_at_shutdown_clients_get_what_they_are_owed_and_are_told(tmp_path: Path, number: signal.Signals) -> None:
    bodies = [b"%d" % index + b"x" * 400 for index in range(900)]
    with running_broker(tmp_path, shutdown_grace_s=VERY_LONG_S) as broker:
        with (
            RawClient.connected(broker.address, receive_buffer_bytes=TINY_BUFFER_BYTES) as reader,
            RawClient.connected(broker.address) as publisher,
        ):
            reader.subscribe("/topic/a")
            publisher.send_raw(b"".join(send_frame("/topic/a", body) for body in bodies))
            wait_until(lambda: broker.statistics()["totals"]["delivered"] == len(bodies), "all in the outbox")

            broker.signal(number)

            publisher.expect_error("broker is shutting down")
            messages, error = reader.messages_up_to_the_end()
            assert [message.body for message in messages] == bodies
            reader.check_error(error, "broker is shutting down")
        assert broker.wait_ended() == 0
        assert not (broker.data / "control.sock").exists()


@contextmanager
def stuck_subscriber(broker: BrokerProcess) -> Iterator[RawClient]:
    """A client that reads nothing, and to which the broker owes more than fits any buffer on the way."""
    with RawClient.connected(broker.address, receive_buffer_bytes=TINY_BUFFER_BYTES) as stuck:
        stuck.subscribe("/topic/a")
        with RawClient.connected(broker.address) as publisher:
            publisher.send_raw(send_frame("/topic/a", b"x" * 10_000) * 1000)
            publisher.send("DISCONNECT", receipt="all taken")
            publisher.expect_receipt("all taken")
        (subscription,) = broker.statistics()["subscriptions"]
        assert subscription["backlog"] > 0, "its outbox is full"
        yield stuck


def test_a_client_that_reads_nothing_delays_the_end_by_the_grace_at_most(tmp_path: Path) -> None:
    with running_broker(tmp_path, shutdown_grace_s=0.5, window_bytes="64 MiB") as broker:
        with stuck_subscriber(broker):
            asked_at = time.monotonic()
            broker.signal(signal.SIGTERM)

            assert broker.wait_ended() == 0
            took_s = time.monotonic() - asked_at

        assert took_s >= 0.5


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with running_broker(tmp_path, shutdown_grace_s=VERY_LONG_S, window_bytes="64 MiB") as broker:
        with stuck_subscriber(broker):
            broker.signal(signal.SIGTERM)
            broker.wait_logged("broker is stopping")
            assert broker.is_running

            broker.signal(signal.SIGTERM)

            assert broker.wait_ended() == 0
        assert "Traceback" not in broker.log()


def test_nobody_new_is_accepted_while_it_stops(tmp_path: Path) -> None:
    with running_broker(tmp_path, shutdown_grace_s=VERY_LONG_S, window_bytes="64 MiB") as broker:
        with stuck_subscriber(broker) as stuck:
            broker.signal(signal.SIGTERM)
            broker.wait_logged("broker is stopping")

            wait_until(lambda: is_refused(broker.address), "a refusal")

            stuck.reset()
            assert broker.wait_ended() == 0


def is_refused(address: Address) -> bool:
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_after_a_kill_it_starts_again_on_the_same_data(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        with connected(broker.address) as client:
            client.subscribe("/topic/a")
            broker.kill()
            client.inbox.wait_disconnected()
        assert (broker.data / "control.sock").is_socket(), "left behind"
        assert (broker.data / "broker.lock").exists()
        assert run_program("stats", "--data", str(broker.data)).returncode == 1

        broker.restart()

        with connected(broker.address) as client:
            client.subscribe("/topic/a")
            client.publish("/topic/a", "alive")
            client.inbox.wait_messages(1)
        assert broker.statistics()["totals"]["published"] == 1


# Room for connections -------------------------------------------------------------------------------------------------


def test_one_connection_too_many_is_told_so_and_another_may_come_when_one_has_gone(tmp_path: Path) -> None:
    with running_broker(tmp_path, max_connections=2) as broker:
        with RawClient.connected(broker.address) as first, RawClient.connected(broker.address):
            with RawClient(broker.address) as third:
                third.send("CONNECT", accept_version="1.2", host="test")
                third.expect_error("too many connections", "2 are served at a time")

            first.close()
            wait_until(lambda: broker.statistics()["connections_total"] == 1, "the end of the first")

            with RawClient.connected(broker.address) as another:
                another.subscribe("/topic/a")


def test_those_who_were_turned_away_take_no_room(tmp_path: Path) -> None:
    with running_broker(tmp_path, max_connections=2) as broker, ExitStack() as crowd:
        first, _ = (crowd.enter_context(RawClient.connected(broker.address)) for _ in range(2))
        turned_away = [crowd.enter_context(RawClient(broker.address)) for _ in range(10)]
        for each in turned_away:
            assert each.next_frame().headers["message"].startswith("too many connections")

        # They have not closed, and the broker waits a moment for them to do so.
        first.close()
        wait_until(lambda: broker.statistics()["connections_total"] == 1, "the end of the first")

        crowd.enter_context(RawClient.connected(broker.address)).subscribe("/topic/a")


def wait_until_managed(broker: BrokerProcess) -> None:
    url = broker.events("broker is starting")[0]["management"]

    def answers() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{url}/health/live", timeout=HARD_TIMEOUT_S):
            return True
        return False

    wait_until(answers, "an answer of the management endpoint")


def test_running_out_of_descriptors_hurts_nobody_who_is_connected(tmp_path: Path) -> None:
    open_files = 48
    with running_broker(tmp_path, open_files=open_files) as broker, ExitStack() as crowd:
        wait_until_managed(broker)  # it is made after the start, and needs descriptors for its modules
        old = crowd.enter_context(RawClient.connected(broker.address, heart_beat="0,100"))
        old.subscribe("/topic/a")

        # The kernel completes these connections by itself; the broker has no descriptor to take all of them with.
        newcomers = [crowd.enter_context(RawClient(broker.address)) for _ in range(open_files + 10)]
        broker.wait_logged("cannot accept connections")
        # The other listeners have none either, and somebody waits there.
        control = crowd.enter_context(socket.socket(socket.AF_UNIX))
        control.connect(str(broker.data / "control.sock"))
        management = crowd.enter_context(socket.socket())
        management.connect(("127.0.0.1", int(broker.events("broker is starting")[0]["management"].rpartition(":")[2])))
        wait_until(lambda: len(broker.events("cannot accept connections")) == 3, "a line of each listener")

        used_before_s, began_at = broker.processor_s(), time.monotonic()
        old.wait_heart_beats(15)
        used_s, took_s = broker.processor_s() - used_before_s, time.monotonic() - began_at
        assert used_s < 0.2 * took_s, "it spins"
        old.send_raw(send_frame("/topic/a", b"still here"))
        assert old.next_message().body == b"still here"

        for newcomer in newcomers[:open_files]:
            newcomer.close()
        newcomers[-1].connect()
        newcomers[-1].subscribe("/topic/a")
        old.send_raw(send_frame("/topic/a", b"for both"))
        assert old.next_message().body == newcomers[-1].next_message().body == b"for both"
        wait_until(lambda: len(broker.events("accepting connections again")) == 3, "the end of it for each listener")
        assert len(broker.events("cannot accept connections")) == 3
        listeners = {event["listener"] for event in broker.events("cannot accept connections")}
        assert listeners == {"stomp", "control", "http"}


def test_it_allows_itself_all_descriptors_it_can_have(tmp_path: Path) -> None:
    with running_broker(tmp_path, open_files=123) as broker:
        assert broker.events("broker is starting")[0]["open_files"] == 123
