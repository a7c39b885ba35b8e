"""`stompbroker spotty`: a real broker that goes away and comes back, and real clients."""

from __future__ import annotations

import json
import re
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pytest

from stompbroker.cli.spotty import _arguments, _options_of_serve, _settings
from stompbroker.config.data_directory import hold
from tests.end_to_end.raw_client import RawClient, send_frame
from tests.support.broker_process import Address, wait_until
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Program

#: Long enough for a test to look at the broker meanwhile.
LONG = "1000"
DESTINATION = "/topic/orders"


class Running(NamedTuple):
    process: subprocess.Popen[str]
    address: Address

    def family(self) -> list[psutil.Process]:
        """The broker, and the process that writes for it."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def broker(self) -> psutil.Process:
        (broker,) = psutil.Process(self.process.pid).children()
        return broker

    def connected(self, **headers: Any) -> RawClient:
        """A client, as soon as the broker lets it in."""

        def attempt() -> RawClient | None:
            with suppress(OSError, AssertionError):
                return RawClient.connected(self.address, **headers)
            return None

        return wait_until(attempt, "a connection")

    def refuses(self) -> bool:
        """Whether a connection is refused, and not merely reset."""
        try:
            RawClient(self.address).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            pass
        return False

    def wait_stopped(self) -> psutil.Process:
        broker = self.broker()
        wait_until(lambda: broker.status() == psutil.STATUS_STOPPED, "SIGSTOP")
        return broker

    def end(self, number: signal.Signals = signal.SIGINT) -> None:
        family = self.family()
        self.process.send_signal(number)
        assert self.process.wait(HARD_TIMEOUT_S) == 0
        assert_gone(family)


def assert_gone(family: list[psutil.Process]) -> None:
    assert family
    wait_until(lambda: not any(_is_alive(one) for one in family), "all processes end")


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@contextmanager
def spotty(program: Program, *arguments: str) -> Iterator[Running]:
    family: list[psutil.Process] = []
    more = ["--port", "0", "--http-port", "0", "--log-level", "error"]
    with program.start("spotty", *arguments, *more) as process:
        try:
            assert process.stdout is not None
            ready = re.search(r"is ready at stomp://127\.0\.0\.1:(\d+)", first := process.stdout.readline())
            assert ready, first
            running = Running(process, Address("127.0.0.1", int(ready[1])))
            family = running.family()
            yield running
        finally:
            with suppress(psutil.NoSuchProcess):
                family += psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()


def entries(log: Path, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [entry for entry in found if entry["event"] == event]


def test_what_was_confirmed_to_a_client_survives_kills(program: Program) -> None:
    confirmed: list[bytes] = []
    with spotty(program, "--mode", "kill", "--up", "0.3", "--down", "0.1") as running:
        broker = running.broker()

        def publish_until_lost() -> bool:
            """Whether there are receipts by now."""
            with suppress(OSError, AssertionError), running.connected(client_id="c") as client:
                client.subscribe(DESTINATION, durable_subscription_name="d", ack="client-individual")
                while True:
                    body = b"%d" % len(confirmed)
                    client.send_raw(send_frame(DESTINATION, body, receipt=body.decode()))
                    while (frame := client.next_frame()).command == "MESSAGE":
                        pass
                    assert frame.headers["receipt-id"] == body.decode()
                    confirmed.append(body)
            return len(confirmed) > 3

        wait_until(publish_until_lost, "some receipts before a kill")
        wait_until(lambda: not _is_alive(broker), "the end of the broker, whose connections were closed before")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(HARD_TIMEOUT_S) == 0

    with spotty(program, "--up", LONG) as running, running.connected(client_id="c") as client:
        client.subscribe(DESTINATION, durable_subscription_name="d", ack="auto")
        missing = set(confirmed)
        while missing:
            missing.discard(client.next_message().body)
        running.end()


def test_a_stopped_broker_is_silent_and_goes_on_with_the_same_connections(program: Program) -> None:
    with spotty(program, "--mode", "stop", "--up", "0.3", "--down", "0.3") as running:
        client = running.connected()

        broker = running.wait_stopped()
        client.send_raw(send_frame(DESTINATION, b"body", receipt="there"))

        client.expect_receipt("there")
        assert running.broker() == broker
        client.close()
        running.end()


def test_refused_clients_are_reset_and_come_back_to_the_same_broker(program: Program) -> None:
    with spotty(program, "--mode", "refuse", "--up", "0.3", "--down", "0.3") as running:
        broker = running.broker()
        client = running.connected()

        with pytest.raises(ConnectionResetError):
            client.next_frame()

        wait_until(running.refuses, "a refusal")
        running.connected().close()
        assert running.broker() == broker
        client.close()
        running.end()


def test_ctrl_c_stops_the_broker_with_its_last_words_to_clients(program: Program) -> None:
    with spotty(program, "--up", LONG) as running, running.connected() as client:
        family = running.family()

        running.process.send_signal(signal.SIGINT)

        client.expect_error("broker is shutting down")
        client.close()
        assert running.process.wait(HARD_TIMEOUT_S) == 0
        assert_gone(family)


@pytest.mark.parametrize("mode", ["kill", "stop", "refuse"])
def test_it_can_be_ended_during_an_outage(program: Program, tmp_path: Path, mode: str) -> None:
    log = tmp_path / "log"
    with spotty(program, "--mode", mode, "--up", "0", "--down", LONG, "--log", str(log)) as running:
        wait_until(lambda: entries(log, "down"), "the outage")
        if mode != "stop":
            wait_until(running.refuses, "a refusal")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(HARD_TIMEOUT_S) == 0

    assert entries(log, "up") == []
    assert len(entries(log, "end")) == 1


@pytest.mark.parametrize("is_stopped", [False, True])
def test_nothing_is_left_behind_when_it_is_killed(program: Program, is_stopped: bool) -> None:
    with spotty(program, "--mode", "stop", "--up", "0" if is_stopped else LONG, "--down", LONG) as running:
        family = running.family()
        assert len(family) == 2
        if is_stopped:
            running.wait_stopped()

        running.process.kill()

        assert_gone(family)


def test_the_same_seed_and_a_replay_have_the_same_outages(program: Program, tmp_path: Path) -> None:
    plan = ["--seed", "7", "--mode", "stop,refuse", "--up", "0..0.05", "--down", "0..0.05", "--times", "5"]
    logs = [tmp_path / name for name in ("first", "again", "replayed")]
    for arguments, log in zip([plan, plan, ["--replay", str(logs[0])]], logs, strict=True):
        with spotty(program, *arguments, "--log", str(log)) as running:
            assert running.process.wait(HARD_TIMEOUT_S) == 0

    found = [
        [(entry["number"], entry["mode"], entry["up_s"], entry["down_s"]) for entry in entries(log, "down")]
        for log in logs
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 5
    assert len(entries(logs[0], "up")) == 5


def test_it_ends_after_a_time(program: Program) -> None:
    with spotty(program, "--up", LONG, "--for", "0.1") as running:
        assert running.process.wait(HARD_TIMEOUT_S) == 0


def test_a_broker_that_dies_by_itself_is_no_outage(program: Program) -> None:
    with spotty(program, "--up", LONG) as running:
        running.broker().kill()

        assert running.process.wait(HARD_TIMEOUT_S) == 2
        assert running.process.stderr is not None
        assert "The broker went away by itself: it was killed by signal 9." in running.process.stderr.read()


def test_a_broker_that_cannot_start_has_its_own_words(program: Program) -> None:
    with hold(program.directory / "data"):
        done = program.run("spotty", "--port", "0", "--http-port", "0")

    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith("stompbroker: The data directory data is held by another broker: ")
    assert second.startswith("stompbroker: The broker did not start: it ended with exit code 2.")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--up 5..1", '--up: "5..1" is not seconds, such as 5 or 0.5..20'),
        ("--down soon", '--down: "soon" is not seconds'),
        ("--down nan", '--down: "nan" is not seconds'),
        ("--mode kill,burn", '--mode: "kill,burn" is not of these, with commas: kill, stop, refuse'),
        ("--replay log --seed 7", "--replay: the log has the outages, so it takes no plan"),
        ("--replay nowhere", "The log nowhere cannot be read"),
        ("--tiems 3", "No such option: --tiems"),
        ("--host 0.0.0.0", "stomp://0.0.0.0:61613 can be reached from elsewhere, and there is no login"),
        ("--listen unix:///tmp/s", "spotty relays connections over TCP, without the PROXY protocol: not unix:///tmp/s"),
        ("--log nowhere/log", "The log nowhere/log cannot be written"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(program: Program, arguments: str, sentence: str) -> None:
    done = program.run("spotty", *arguments.split())

    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "--host 127.0.0.1 --port 0"),
        ("-p 7000 --data d --set ledger=false", "--data d --set ledger=false --host 127.0.0.1 --port 0"),
        ("--set port=7000", "--host 127.0.0.1 --port 0"),
        ("--listen ws://[::1]:80/x?max_connections=3", "--listen ws://127.0.0.1:0/x?max_connections=3"),
        (
            "--port 1 --listen stomp://localhost:2 --http-port 0",
            "--http-port 0 --host 127.0.0.1 --port 0 --listen stomp://127.0.0.1:0",
        ),
    ],
)
def test_the_broker_gets_what_was_given_but_listens_where_only_the_relay_finds_it(
    given: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    options = _options_of_serve(given.split())

    assert _arguments(options, _settings(options)) == expected.split()


def test_two_endpoints_are_relayed(program: Program) -> None:
    listen = ["--listen", "ws://127.0.0.1:0/stomp", "--listen", "stomp://localhost:0", "--host", "127.0.0.1"]
    with spotty(program, "--up", LONG, *listen) as running:
        running.connected().close()
        running.end()
