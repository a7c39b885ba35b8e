"""`stompbroker publish`, against a real broker and against none."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import PROGRAM
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from tests.cli.conftest import Program, RunningBroker


def received(broker: RunningBroker, count: int, *publish: str, given: str | bytes = b"") -> list[dict[str, object]]:
    """What a subscriber of `t` gets of one publish command."""
    with broker.subscriber("t", "--json", "--count", str(count)) as subscriber:
        done = broker.run("publish", "t", *publish, given=given)
        assert done.returncode == 0, done.stderr
        output, _ = subscriber.communicate(timeout=HARD_TIMEOUT_S)
    return [json.loads(line) for line in output.splitlines()]


def bodies(messages: list[dict[str, object]]) -> list[object]:
    return [message["body"] for message in messages]


def test_a_message_reaches_a_subscriber_with_its_headers(broker: RunningBroker) -> None:
    (message,) = received(broker, 1, "Hello, world", "-H", "content-type:text/plain", "-H", "a b:c:d\\e")

    assert message["body"] == "Hello, world"
    headers = message["headers"]
    assert isinstance(headers, dict)
    assert (headers["content-type"], headers["a b"], headers["destination"]) == ("text/plain", "c:d\\e", "t")


def test_it_says_what_was_published(broker: RunningBroker) -> None:
    done = broker.run("publish", "/topic/t", "Hello")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Published 1 message (5 bytes) to /topic/t, all confirmed.\n"


def test_standard_input_is_one_body_byte_for_byte(broker: RunningBroker) -> None:
    (message,) = received(broker, 1, "-", given=b"line\n\0\xff\n")

    assert (message["body"], message["encoding"]) == ("bGluZQoA/wo=", "base64")


def test_without_a_body_standard_input_is_read(broker: RunningBroker) -> None:
    assert bodies(received(broker, 1, given="from a pipe")) == ["from a pipe"]


def test_an_empty_body_is_a_message_too(broker: RunningBroker) -> None:
    assert bodies(received(broker, 1, "")) == [""]


def test_each_line_can_be_a_message(broker: RunningBroker) -> None:
    assert bodies(received(broker, 4, "--lines", given="one\ntwo\r\n\nlast")) == ["one", "two", "", "last"]


def test_a_line_is_sent_when_it_comes_not_when_the_input_ends(broker: RunningBroker) -> None:
    publish = ["publish", *broker.address, "t", "--lines"]
    with broker.subscriber("t", "--body-only") as subscriber:
        with broker.program.start(*publish, stdin=subprocess.PIPE) as publisher:
            assert publisher.stdin is not None
            assert subscriber.stdout is not None
            for line in ("one\n", "two\n"):
                publisher.stdin.write(line)
                publisher.stdin.flush()

                assert subscriber.stdout.readline() == line


def test_a_count_repeats_the_body_and_numbers_it_only_if_asked_to(broker: RunningBroker) -> None:
    assert bodies(received(broker, 2, "{n} {n}", "--count", "2")) == ["{n} {n}", "{n} {n}"]
    assert bodies(received(broker, 2, "{n} {n}", "--count", "2", "--number")) == ["1 1", "2 2"]


@pytest.mark.parametrize("receipt", ["--receipt", "--no-receipt"])
def test_many_messages_are_all_published_in_order(broker: RunningBroker, receipt: str) -> None:
    count = 5_000  # several times as many as may be unconfirmed

    messages = received(broker, count, "{n}", "--number", "--count", str(count), receipt)

    assert bodies(messages) == [str(number) for number in range(1, count + 1)]


def test_json_sums_it_up(broker: RunningBroker) -> None:
    summary = json.loads(broker.run("publish", "t", "12345", "--count", "10", "--json").stdout)

    assert {key: summary[key] for key in ("destination", "published", "receipts", "body_bytes")} == {
        "destination": "t",
        "published": 10,
        "receipts": 10,
        "body_bytes": 50,
    }
    assert summary["rate"] == pytest.approx(10 / summary["seconds"], rel=0.1)


def test_json_says_when_no_receipts_were_asked_for(broker: RunningBroker) -> None:
    assert json.loads(broker.run("publish", "t", "x", "--no-receipt", "--json").stdout)["receipts"] is None


def test_a_rate_is_not_exceeded(broker: RunningBroker) -> None:
    started_at = time.monotonic()

    summary = json.loads(broker.run("publish", "t", "x", "--count", "11", "--rate", "50", "--json").stdout)

    assert 0.2 <= summary["seconds"] <= time.monotonic() - started_at


def test_a_refusal_of_the_broker_is_shown_with_its_reason(broker: RunningBroker) -> None:
    done = broker.run("publish", "/topic/a.*", "x", "--count", "3")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stompbroker: The broker refused: ")
    assert "3 messages had been sent, 0 of them confirmed." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broker_that_dies_is_noticed(own_broker: RunningBroker) -> None:
    publish = ["publish", *own_broker.address, "t", "--lines"]
    with own_broker.subscriber("t", "--body-only") as subscriber:
        with own_broker.program.start(*publish, stdin=subprocess.PIPE) as publisher:
            assert publisher.stdin is not None
            assert subscriber.stdout is not None
            publisher.stdin.write("one\n")
            publisher.stdin.flush()
            assert subscriber.stdout.readline() == "one\n"

            own_broker.stop()

            assert publisher.wait(HARD_TIMEOUT_S) == 1
            assert publisher.stderr is not None
            assert "stompbroker: " in publisher.stderr.read()


def test_a_long_run_has_a_progress_bar_on_a_terminal(broker: RunningBroker) -> None:
    controller, terminal = pty.openpty()
    command = [*PROGRAM, "publish", *broker.address, "t", "x", "--count", "20000"]
    environment = broker.program.environment | {"TERM": "xterm"}
    try:
        done = subprocess.run(command, stderr=terminal, stdout=subprocess.PIPE, text=True, env=environment, check=True)
        shown = os.read(controller, 1 << 20).decode()
    finally:
        os.close(controller)
        os.close(terminal)

    assert "publishing" in shown
    assert "/20000" in shown
    assert re.fullmatch(
        r"Published 20,000 messages \(20,000 bytes\) to t in .* s, .* a second, all confirmed\.\n", done.stdout
    )


# Without a broker


def test_nobody_listening_is_a_sentence(program: Program) -> None:
    done = program.run("publish", "--port", "1", "t", "x")

    assert (done.returncode, done.stdout) == (1, "")
    assert "No broker listens on 127.0.0.1:1." in done.stderr
    assert "stompbroker serve" in done.stderr
    assert "make serve" in done.stderr


def test_the_address_comes_from_the_settings_if_it_is_not_given(program: Program) -> None:
    (program.directory / "stompbroker.toml").write_text('host = "0.0.0.0"\nport = 2')

    assert "No broker listens on 127.0.0.1:2." in program.run("publish", "t", "x").stderr


def test_a_port_that_only_the_broker_knows_has_to_be_given(program: Program) -> None:
    done = program.run("publish", "t", "x", STOMPBROKER_PORT="0")

    assert done.returncode == 2
    assert "name the one it has taken" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["t", "x", "-H", "nocolon"], '"nocolon" is not of the form NAME:VALUE'),
        (["t", "x", "-H", ":value"], "is not of the form NAME:VALUE"),
        (["t", "x", "-H", "destination:u"], 'the header "destination" is set by the argument DEST'),
        (["t", "x", "-H", "receipt:u"], 'the header "receipt" is set by --receipt'),
        (["t", "x", "--lines"], "leave BODY out"),
        (["t", "--lines", "--count", "2"], "leave --count out"),
        (["t", "x", "--count", "0"], "--count"),
        ([], "DEST"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_anything_is_sent(
    program: Program, arguments: list[str], words: str
) -> None:
    done = program.run("publish", *arguments)

    assert done.returncode == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_a_destination_that_is_not_utf8_is_refused(program: Program) -> None:
    done = program.run("publish", os.fsdecode(b"\xff"), "x")

    assert done.returncode == 2
    assert "is not valid UTF-8" in done.stderr
