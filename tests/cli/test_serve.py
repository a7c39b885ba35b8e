"""`stompbroker serve`: how it starts, how it refuses to, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompbroker.cli.serve import announce
from stompbroker.config import Settings
from stompbroker.transport import Endpoint, Scheme
from tests.cli.conftest import PROGRAM, running_broker
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.users import add_user

if TYPE_CHECKING:
    from tests.cli.conftest import Program, RunningBroker


def test_it_says_where_it_listens_and_how_to_try_it(own_broker: RunningBroker) -> None:
    own_broker.stop()
    assert own_broker.process.stdout is not None
    rest = own_broker.process.stdout.read()

    *tries, watch = rest.splitlines()
    assert watch.startswith("Watch it at http://127.0.0.1:")
    assert tries == [
        "Try it, each in a terminal of its own:",
        f"  stompbroker subscribe --port {own_broker.port} /topic/greetings",
        f'  stompbroker publish --port {own_broker.port} /topic/greetings "Hello, world"',
    ]


ENDPOINT = Endpoint(Scheme.STOMP, "127.0.0.1", 61613)


@pytest.mark.parametrize(
    ("host", "port", "url", "options"),
    [
        ("127.0.0.1", 61613, "stomp://127.0.0.1:61613", ""),
        ("127.0.0.1", 7000, "stomp://127.0.0.1:7000", " --port 7000"),
        ("0.0.0.0", 61613, "stomp://0.0.0.0:61613", ""),
        ("::1", 61613, "stomp://[::1]:61613", " --host ::1"),
        ("::", 61613, "stomp://[::]:61613", " --host ::1"),
        ("192.0.2.1", 7000, "stomp://192.0.2.1:7000", " --host 192.0.2.1 --port 7000"),
    ],
)
def test_the_examples_reach_the_broker_wherever_it_listens(
    capsys: pytest.CaptureFixture[str], host: str, port: int, url: str, options: str
) -> None:
    announce([Endpoint(Scheme.STOMP, host, port)], Settings(data=Path("data")))

    first, _, subscribe, publish = capsys.readouterr().out.splitlines()
    assert f"{url} (data in data)" in first
    assert subscribe == f"  stompbroker subscribe{options} /topic/greetings"
    assert publish == f'  stompbroker publish{options} /topic/greetings "Hello, world"'


@pytest.mark.parametrize(
    ("listen", "has_login", "options"),
    [
        (["stomp://0.0.0.0:61613"], True, " --url stomp://NAME@127.0.0.1:61613"),
        (["stomp+tls://192.0.2.1:7000"], False, " --url stomp+tls://192.0.2.1:7000"),
        (["stomp+tls://[::]:61612"], True, " --url stomp+tls://NAME@[::1]:61612"),
        (["unix:///run/broker.sock"], False, " --url unix:///run/broker.sock"),
        (["unix:///run/broker.sock"], True, " --url unix://NAME@/run/broker.sock"),
        (["ws://127.0.0.1:80/stomp", "unix:///s", "stomp+tls://h:1", "stomp://h:2"], False, " --host h --port 2"),
        (["stomp://h:1?proxy=10.0.0.0/8", "stomp+tls://h:2"], True, " --url stomp+tls://NAME@h:2"),
        (["wss://127.0.0.1:443/stomp"], True, None),
    ],
)
def test_the_examples_fit_what_is_served(
    capsys: pytest.CaptureFixture[str], listen: list[str], has_login: bool, options: str | None
) -> None:
    endpoints = [Endpoint.parse(text) for text in listen]

    announce(endpoints, Settings(data=Path("data")), has_login=has_login)

    first, *rest = capsys.readouterr().out.splitlines()
    assert f" is ready at {endpoints[0]} (data in data)" in first
    assert rest[: len(listen) - 1] == [f"and at {endpoint}" for endpoint in endpoints[1:]]
    examples = [line for line in rest if "greetings" in line]
    assert [line.removeprefix("  stompbroker subscribe") for line in examples[:1]] == (
        [] if options is None else [f"{options} /topic/greetings"]
    )
    assert ("Try it, each in a terminal of its own:" in rest) == (options is not None)


def test_the_examples_trust_the_certificate_that_the_command_makes(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(data=Path("my data"), tls_certificate="my data/certificate.pem")

    announce([Endpoint.parse("stomp+tls://127.0.0.1:61612")], settings)

    assert " --url stomp+tls://127.0.0.1:61612 --ca 'my data/certificate.pem' /topic" in capsys.readouterr().out


def test_it_listens_wherever_it_is_told_to(program: Program) -> None:
    path = program.directory / "broker.sock"
    listen = ["--listen", "stomp://127.0.0.1:0", "--listen", f"unix://{path}"]
    with program.start("serve", "--http-port", "0", *listen) as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()

        assert re.search(r" is ready at stomp://127\.0\.0\.1:\d+ \(data in data\)$", first)
        assert second == f"and at unix://{path}\n"
        assert program.run("publish", "--url", f"unix://{path}", "t", "x").returncode == 0

        process.send_signal(signal.SIGTERM)
        assert process.wait(HARD_TIMEOUT_S) == 0


def test_an_address_that_others_reach_needs_login_or_the_word_that_this_is_meant(program: Program) -> None:
    refused = program.run("serve", "--host", "0.0.0.0", "--port", "0")

    assert (refused.returncode, refused.stdout) == (2, "")
    (sentence,) = [line for line in refused.stderr.splitlines() if line.startswith("stompbroker: ")]
    assert "stomp://0.0.0.0:0 can be reached from elsewhere, and there is no login" in sentence
    assert "Add a user: stompbroker users add NAME --data data" in sentence
    assert sentence.endswith("say that this is meant: --set anonymous=true")

    for reason in (["--set", "anonymous=true"], []):
        if not reason:
            add_user(program.directory / "data" / "users.toml", "alice")
        with program.start("serve", "--host", "0.0.0.0", "--port", "0", "--http-port", "0", *reason) as process:
            assert process.stdout is not None
            assert "is ready at stomp://0.0.0.0:" in process.stdout.readline()


def test_it_is_served_behind_two_dashes_as_well(program: Program) -> None:
    done = program.run("--", "serve", "--host", "0.0.0.0", "--database", "memory", "--set", "http_enabled=false")

    assert done.returncode == 2
    assert done.stderr.startswith("stompbroker: stomp://0.0.0.0:61613 can be reached from elsewhere")


def test_behind_a_proxy_nobody_can_be_anonymous(program: Program) -> None:
    done = program.run("serve", "--listen", "stomp://127.0.0.1:0?proxy=127.0.0.1", "--set", "anonymous=true")

    assert (done.returncode, done.stdout) == (2, "")
    assert "is behind a proxy" in done.stderr
    assert "users add NAME" in done.stderr


@pytest.mark.parametrize(
    ("database", "words"),
    [
        ("", "(data in data)"),
        ("memory", "(data in data, database memory)"),
        ("postgresql+psycopg://u:secret@h/d", "(data in data, database postgresql+psycopg://u:***@h/d)"),
    ],
)
def test_a_database_that_is_not_the_default_is_named(
    capsys: pytest.CaptureFixture[str], database: str, words: str
) -> None:
    announce([ENDPOINT], Settings(data=Path("data"), database=database))

    assert capsys.readouterr().out.splitlines()[0].endswith(words)


def test_a_database_that_is_none_is_refused_without_its_password(program: Program) -> None:
    done = program.run("serve", "--database", "postgresql://u:secret@h/d")

    assert (done.returncode, done.stdout) == (2, "")
    assert '- database = "postgresql://…" (flag --database): allowed is ' in done.stderr
    assert "secret" not in done.stderr
    assert not (program.directory / "data").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_gracefully(own_broker: RunningBroker, number: signal.Signals) -> None:
    own_broker.stop(number)

    assert own_broker.process.returncode == 0
    assert not (own_broker.data / "control.sock").exists()


def test_options_environment_and_file_all_reach_the_broker(program: Program) -> None:
    (program.directory / "stompbroker.toml").write_text('log_level = "error"')
    with running_broker(program, "--log-level", "debug", "--set", "memory_limit=64 MiB") as broker:
        assert broker.statistics()["memory"]["limit_bytes"] == 64 * 1024**2

    log = [json.loads(line) for line in (program.directory / "log").read_text().splitlines()]
    assert log, "at level error there would be nothing"


def test_settings_that_are_wrong_are_refused_before_anything_is_opened(program: Program) -> None:
    done = program.run("serve", "--port", "70000", "--set", "max_wating=5")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "stompbroker: These settings cannot be used:",
        '  - unknown key "max_wating" in flag --set; did you mean "max_waiting"?',
        "  - port = 70000 (flag --port): allowed is a whole number from 0 to 65535",
    ]
    assert not (program.directory / "data").exists()


def test_a_port_in_use_is_refused_with_a_sentence(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        done = program.run("serve", "--port", str(port))

    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(rf"^stompbroker: .*{port}", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_a_data_directory_in_use_is_refused_with_a_sentence(own_broker: RunningBroker) -> None:
    done = own_broker.program.run("serve", "--port", "0", "--data", str(own_broker.data))

    assert (done.returncode, done.stdout) == (2, "")
    assert f"held by another broker: process {own_broker.process.pid} on " in done.stderr
    assert "Traceback" not in done.stderr
    assert own_broker.run("publish", "t", "x").returncode == 0, "the first broker is not disturbed"


def test_a_broker_that_was_killed_can_be_started_again(program: Program) -> None:
    with program.start("serve", "--port", "0", "--http-port", "0") as process:
        assert process.stdout is not None
        assert "is ready" in process.stdout.readline()
        process.kill()
        process.wait(HARD_TIMEOUT_S)
    assert (program.directory / "data" / "control.sock").is_socket()
    assert program.run("stats").returncode == 1

    with running_broker(program) as broker:
        assert broker.statistics()["topics"] == []


def test_it_serves_on_when_nobody_reads_what_it_prints(program: Program) -> None:
    with program.start("serve", "--port", "0", "--http-port", "0") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "is ready" in process.stdout.readline()
        process.stdout.close()
        process.stderr.close()

        assert program.run("stats", "--json").returncode == 0

        process.send_signal(signal.SIGTERM)
        assert process.wait(HARD_TIMEOUT_S) == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to see the streams of a process")
def test_no_socket_or_file_takes_the_place_of_a_closed_stream(program: Program) -> None:
    """`stompbroker serve <&- >&- 2>&-`, as some who start services do."""
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *PROGRAM, "serve", "--port", "0", "--http-port", "0"]
    with subprocess.Popen(closing, cwd=program.directory, env=program.environment) as process:
        try:
            while program.run("stats", "--json").returncode:
                assert process.poll() is None
            for number in range(3):
                assert os.path.samefile(f"/proc/{process.pid}/fd/{number}", os.devnull)
        finally:
            process.kill()


def test_the_examples_name_the_program_as_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a checkout it is not on the path, and what is printed is to be copied as it stands."""
    program = tmp_path / "stompbroker"
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(program)])

    announce([ENDPOINT], Settings(data=Path("data")))
    monkeypatch.setenv("PATH", str(tmp_path))
    announce([ENDPOINT], Settings(data=Path("data")))

    out = capsys.readouterr().out
    assert f"  {program} subscribe /topic/greetings\n" in out
    assert "  stompbroker subscribe /topic/greetings\n" in out
