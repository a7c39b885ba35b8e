"""`stompbroker dead-letters`, against a scripted control socket, a real broker, and none.

It is long because each of its four commands is tried all three ways.
"""

from __future__ import annotations

import base64
import json
import os
import pty
import signal
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from stompbroker.cli.dead_letter_orders import Move, skipped_lines
from stompbroker.cli.dead_letters import letter_lines, letter_table
from stompbroker.cli.terminal import print_uncut
from tests.cli.conftest import running_broker
from tests.cli.failing_subscriber import client_of, make_letters
from tests.cli.scripted_answers import Refused, ScriptedLetters, Vanished, letter, scripted_answers
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Program, RunningBroker

NOW = datetime(2030, 1, 1, 1, tzinfo=UTC)


@pytest.fixture
def data(program: Program) -> Path:
    """Where the settings' default finds it."""
    return program.directory / "data"


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.parametrize("command", ["", "list", "show", "redrive", "purge"])
def test_the_help_of_every_command_has_examples(program: Program, command: str) -> None:
    done = program.run("dead-letters", *command.split(), "--help")

    assert done.returncode == 0
    assert f"stompbroker dead-letters {command}" in done.stdout.split("Examples:")[1]


@pytest.mark.parametrize(
    "command", [["list"], ["list", "orders"], ["show", "orders", "1"], ["redrive", "orders"], ["purge", "orders"]]
)
def test_no_broker_is_a_sentence(program: Program, command: list[str]) -> None:
    done = program.run("dead-letters", *command)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stompbroker: No broker is running with the data directory data ")


# The list


def test_without_a_topic_those_with_letters_are_listed(program: Program, data: Path) -> None:
    hour_ago = (datetime.now(UTC) - timedelta(minutes=61)).isoformat()
    topic = "[red]a\x1bb"

    with scripted_answers(data, ScriptedLetters(letter(0, died_at=hour_ago, body_bytes=2048), topic=topic)):
        done = program.run("dead-letters", "list")
        as_json = program.run("dead-letters", "list", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    assert lines_of(done.stdout) == ["topic letters bytes oldest", "[red]a%1Bb 1 2 KiB 1 h ago"]
    assert json.loads(as_json.stdout)["topics"][0]["topic"] == topic


def test_every_letter_is_a_line(program: Program, data: Path) -> None:
    minute_ago = (datetime.now(UTC) - timedelta(seconds=61)).isoformat()
    letters = [
        letter(3, died_at=minute_ago, reason="[b]no\nsuch\x1b customer", cause="refused", attempts=1),
        letter(17, died_at=minute_ago, subscription="my sub", body_bytes=3 * 1024),
    ]

    with scripted_answers(data, ScriptedLetters(*letters)):
        done = program.run("dead-letters", "list", "orders")

    assert (done.returncode, done.stderr) == (0, "")
    assert lines_of(done.stdout) == [
        "offset died subscription attempts cause reason message id size",
        r"3 1 min ago billing/invoices 1 refused [b]no\x0asuch\x1b customer 5f0c9a3e-1-3 10 B",
        "17 1 min ago my sub 10 attempts used up 5f0c9a3e-1-17 3 KiB",
    ]


@pytest.mark.parametrize("width", [40, 80, 140])
def test_on_a_narrow_terminal_neither_a_subscription_nor_an_id_is_cut(width: int) -> None:
    console = Console(width=width, force_terminal=True, no_color=True)
    one = letter(1, subscription="s" * 50, reason="because of something that takes many words to say")
    with console.capture() as capture:
        print_uncut(letter_table([one], NOW), console=console)

    first = capture.get().splitlines()[1]
    assert "s" * 50 in first
    assert "5f0c9a3e-1-1 " in first


@pytest.mark.parametrize("topic", ["orders", "/topic/orders", "DLQ.orders", "/topic/DLQ.orders", "/topic/DLQ/orders"])
def test_a_topic_is_known_by_its_own_name_and_by_that_of_its_letters(program: Program, data: Path, topic: str) -> None:
    with scripted_answers(data, ScriptedLetters(letter(5))) as control:
        done = program.run("dead-letters", "list", topic)

    assert "5f0c9a3e-1-5" in done.stdout
    assert [params["topic"] for params in control.params_of("dead_letters")] == ["orders"]


@pytest.mark.parametrize(("topic", "words"), [("orders.*", "is a pattern"), ("DLQ", "whose dead letters"), ("", "no")])
def test_what_is_no_topic_is_refused(program: Program, topic: str, words: str) -> None:
    done = program.run("dead-letters", "list", topic)

    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize("option", ["--subscription", "--reason", "--message-id", "--offset"])
def test_a_filter_needs_a_topic(program: Program, option: str) -> None:
    done = program.run("dead-letters", "list", option, "1")

    assert done.returncode == 2
    assert option in done.stderr


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (["--subscription", "other"], [1]),
        (["--reason", "TIME"], [2, 700]),
        (["--message-id", "5f0c9a3e-1-3"], [3]),
        (["--offset", "699"], [699]),
        (["--reason", "timeout", "--offset", "700"], [700]),
        (["--reason", "nothing like it"], []),
    ],
)
def test_filters_choose_letters_however_far_apart_they_lie(
    program: Program, data: Path, arguments: list[str], offsets: list[int]
) -> None:
    letters = [letter(number) for number in range(701)]
    letters[1]["subscription"] = "other"
    letters[2]["reason"] = letters[700]["reason"] = "a timeout"

    with scripted_answers(data, ScriptedLetters(*letters)):
        done = program.run("dead-letters", "list", "orders", "--json", *arguments)

    answer = json.loads(done.stdout)
    assert [one["offset"] for one in answer["letters"]] == offsets
    assert not answer["has_more"]


def test_a_list_that_is_cut_says_so(program: Program, data: Path) -> None:
    with scripted_answers(data, ScriptedLetters(*map(letter, range(500)))):
        cut = program.run("dead-letters", "list", "orders")
        longer = program.run("dead-letters", "list", "orders", "--limit", "499", "--json")
        whole = program.run("dead-letters", "list", "orders", "--limit", "500", "--json")

    assert len(cut.stdout.splitlines()) == 1 + 100 + 1
    assert cut.stdout.endswith("… and more; --limit shows more than 100.\n")
    assert [json.loads(done.stdout)["has_more"] for done in (longer, whole)] == [True, False]
    assert [one["offset"] for one in json.loads(whole.stdout)["letters"]] == list(range(500))


def test_nothing_there_is_a_sentence(program: Program, data: Path) -> None:
    with scripted_answers(data, ScriptedLetters()):
        commands = [["list"], ["list", "orders"], ["list", "unknown", "--reason", "x"], ["redrive", "orders"]]
        done = [program.run("dead-letters", *command) for command in commands]

    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 4
    assert [one.stdout for one in done] == [
        "There are no dead letters.\n",
        "There are no dead letters of orders.\n",
        'There are no dead letters of unknown with a reason like "x".\n',
        "There are no dead letters of orders; nothing was redriven.\n",
    ]


def test_what_the_broker_refuses_is_said(program: Program, data: Path) -> None:
    def respond(method: str, **params: object) -> dict[str, Any]:
        if method == "dead_letter_topics":
            return {"topics": [{"topic": "orders"}]}
        raise Refused("the store cannot be read")

    with scripted_answers(data, respond):
        done = program.run("dead-letters", "list", "orders")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "stompbroker: The broker refuses: the store cannot be read\n"


# One letter


def shown(body: bytes, **more: Any) -> list[str]:
    headers = [["message-id", "m"], ["colour", "re\nd"]]
    one = letter(17, destination="/topic/orders", headers=headers, **more)
    return list(letter_lines(one, "orders", body, NOW))


def test_a_letter_is_shown_with_all_that_is_known_of_it() -> None:
    assert shown("{\r\n\t€\x1b[1m\n}\n".encode(), reason="no such\x07customer") == [
        "Dead letter 17 of orders",
        "  died           2030-01-01 00:10:01 (49 min ago)",
        "  cause          attempts used up",
        r"  reason         no such\x07customer",
        "  subscription   billing/invoices (durable)",
        "  attempts       10",
        "  first attempt  2030-01-01 00:00:01 (59 min ago)",
        "  last attempt   2030-01-01 00:10:00 (50 min ago)",
        "  published      2030-01-01 00:00:00 (1 h ago)",
        "  destination    /topic/orders",
        "  message id     5f0c9a3e-1-17 (the letter's own is 5f0c9a3e-1-1017)",
        "Headers",
        "  message-id: m",
        r"  colour: re\x0ad",
        "Body (14 B)",
        "  {",
        "  \t€\\x1b[1m",
        "  }",
    ]


def test_what_is_not_known_is_left_out() -> None:
    lines = shown(b"", first_attempt_at=None, last_attempt_at=None, is_durable=False, subscription="my sub")

    assert not any("attempt " in line for line in lines)
    assert "  reason        (none was given)" in lines
    assert "  subscription  my sub (not durable)" in lines
    assert lines[-1] == "No body"


@pytest.mark.parametrize("body", [b"\xff\xfeabc", b"\x08\x01\x12\x03abc"])
def test_what_is_not_text_is_shown_in_hexadecimal(body: bytes) -> None:
    *_, title, dump, hint = shown(body)

    assert title == f"Body ({len(body)} B, not text)"
    assert dump.startswith(f"  00000000  {body.hex(' ')}  ")
    assert dump.endswith("abc")
    assert "--body FILE" in hint


@pytest.mark.parametrize(("size", "dumped"), [(1024, 64), (1025, 64), (17, 2)])
def test_of_a_large_body_the_first_kibibyte_is_shown(size: int, dumped: int) -> None:
    lines = shown(b"\0" * size)

    body = lines[lines.index("Headers") + 4 : -1]
    assert len([line for line in body if line.startswith("  0000")]) == dumped
    assert [line for line in body if "more" in line] == (["  … and 1 byte more"] if size == 1025 else [])


def respond_with(body: bytes) -> Any:
    headers = {"destination": "/topic/orders", "headers": [["a", "[b]"]]}
    return lambda method, **params: letter(params["offset"], body=base64.b64encode(body).decode(), **headers)


def test_the_body_goes_to_a_file_or_to_stdout_byte_by_byte(program: Program, data: Path) -> None:
    body = "\x1b\n\0ü".encode()

    with scripted_answers(data, respond_with(body)):
        to_file = program.run("dead-letters", "show", "orders", "17", "--body", "there")
        to_stdout = program.run("dead-letters", "show", "DLQ.orders", "17", "--body", "-")
        nowhere = program.run("dead-letters", "show", "orders", "17", "--body", "no/such/place")

    assert to_file.stdout == "Wrote the body, 5 bytes, to there.\n"
    assert (program.directory / "there").read_bytes() == body
    assert to_stdout.stdout.encode() == body
    assert nowhere.returncode == 2
    assert nowhere.stderr == "stompbroker: The body cannot be written to no/such/place: No such file or directory.\n"


def test_json_has_the_body_as_the_broker_gave_it(program: Program, data: Path) -> None:
    with scripted_answers(data, respond_with(b"abc")) as control:
        done = program.run("dead-letters", "show", "orders", "17", "--json")
        refused = program.run("dead-letters", "show", "orders", "17", "--json", "--body", "-")

    assert base64.b64decode(json.loads(done.stdout)["body"]) == b"abc"
    assert control.calls == [("dead_letter", {"topic": "orders", "offset": 17})]
    assert refused.returncode == 2


# Moving many


@pytest.mark.parametrize(
    ("command", "consequence"),
    [
        (["redrive", "orders"], "would be sent to the subscriptions that failed"),
        (["redrive", "orders", "--to", "topic"], "would be sent to everybody who subscribes to /topic/orders"),
        (["purge", "orders"], "would be gone for good"),
    ],
)
def test_a_program_moves_letters_only_with_yes(
    program: Program, data: Path, command: list[str], consequence: str
) -> None:
    letters = ScriptedLetters(*map(letter, range(1500)))

    with scripted_answers(data, letters):
        refused = program.run("dead-letters", *command, "--reason", "")
        assert len(letters.letters) == 1500
        done = program.run("dead-letters", *command, "--yes")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f'stompbroker: 1,500 dead letters of orders with a reason like "" {consequence}; '
        "to have that done, say so with --yes.\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("Purged" if "purge" in command else "Redriven") + " 1,500 dead letters of orders.\n"
    assert letters.letters == []


@pytest.mark.parametrize(("typed", "is_done"), [("y\n", True), ("n\n", False), ("\n", False), ("\x04", False)])
def test_a_person_is_asked(program: Program, data: Path, typed: str, is_done: bool) -> None:
    letters = ScriptedLetters(letter(1), letter(2, subscription="other"))
    keyboard, terminal = pty.openpty()
    try:
        with scripted_answers(data, letters):
            command = ["dead-letters", "purge", "orders", "--subscription", "other"]
            with program.start(*command, stdin=terminal) as process:
                os.write(keyboard, typed.encode())
                output, errors = process.communicate(timeout=HARD_TIMEOUT_S)
    finally:
        os.close(keyboard)
        os.close(terminal)

    assert "1 dead letter of orders for other would be gone for good. Do it? [y/N]" in errors
    assert ("Nothing was purged." in errors) is not is_done
    assert output == ("Purged 1 dead letter of orders for other.\n" if is_done else "")
    assert process.returncode == (0 if is_done else 1)
    assert [one["offset"] for one in letters.letters] == ([1] if is_done else [1, 2])


def test_letters_are_moved_in_chunks_and_no_more_than_the_limit(program: Program, data: Path) -> None:
    letters = ScriptedLetters(*map(letter, range(1000)))

    with scripted_answers(data, letters) as control:
        done = program.run("dead-letters", "redrive", "orders", "--limit", "250", "--to", "topic", "--yes", "--json")

    assert json.loads(done.stdout) == {"topic": "orders", "redriven": 250, "skipped": [], "is_interrupted": False}
    chunks = control.params_of("redrive_dead_letters")
    assert [(chunk["after"], chunk["limit"], chunk["to"]) for chunk in chunks] == [
        (-1, 100, "topic"),
        (99, 100, "topic"),
        (199, 50, "topic"),
    ]
    assert letters.letters[0]["offset"] == 250


def test_what_dies_meanwhile_is_left_alone(program: Program, data: Path) -> None:
    letters = ScriptedLetters(*map(letter, range(150)))

    def die_again() -> None:
        last = letters.letters[-1]["offset"]
        letters.letters += [letter(last + 1 + number) for number in range(100)]

    letters.before_chunk = die_again
    with scripted_answers(data, letters):
        done = program.run("dead-letters", "redrive", "orders", "--yes")

    assert done.stdout == "Redriven 150 dead letters of orders.\n"
    assert [one["offset"] for one in letters.letters] == list(range(150, 350))


def test_what_has_gone_meanwhile_is_said(program: Program, data: Path) -> None:
    letters = ScriptedLetters(*map(letter, range(10)))

    def expire() -> None:
        letters.letters = letters.letters[4:]

    letters.before_chunk = expire
    with scripted_answers(data, letters):
        done = program.run("dead-letters", "purge", "orders", "--yes")

    assert done.returncode == 0
    assert done.stdout == "Purged 6 dead letters of orders.\n4 others had gone in the meantime.\n"


def test_what_is_skipped_is_grouped_by_why_and_stays(program: Program, data: Path) -> None:
    letters = ScriptedLetters(*[letter(number, subscription="abc"[number % 3]) for number in range(30)])
    letters.why_not = {"a": "its subscription 'a' is gone", "b": "[b] \x1b"}

    with scripted_answers(data, letters):
        done = program.run("dead-letters", "redrive", "orders", "--yes")
        as_json = program.run("dead-letters", "redrive", "orders", "--subscription", "b", "--yes", "--json")

    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "Redriven 10 dead letters of orders.",
        "Skipped 20, which stay where they are:",
        "  10: its subscription 'a' is gone (at offsets 0, 3, 6, 9, 12, 15, 18, 21, 24, 27)",
        r"  10: [b] \x1b (at offsets 1, 4, 7, 10, 13, 16, 19, 22, 25, 28)",
    ]
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["skipped"] == [{"why": "[b] \x1b", "offsets": list(range(1, 30, 3))}]


def test_of_many_reasons_the_most_frequent_are_told() -> None:
    skipped = {f"reason {number}": list(range(number)) for number in range(1, 15)}

    lines = list(skipped_lines(skipped))

    assert len(lines) == 11
    assert lines[0] == "  14: reason 14 (at offsets 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …)"
    assert lines[-1] == "  10 for 4 other reasons; --json has all"


@pytest.mark.parametrize(
    ("rate", "chunk"), [(None, 100), (0.5, 1), (10, 1), (19, 1), (20, 2), (999, 99), (1000, 100), (1e6, 100)]
)
def test_chunks_are_a_tenth_of_a_seconds_letters(rate: float | None, chunk: int) -> None:
    assert Move(method="", done="", doing="", consequence="", rate=rate).chunk == chunk


def test_a_rate_is_kept(program: Program, data: Path) -> None:
    with scripted_answers(data, ScriptedLetters(*map(letter, range(8)))) as control:
        done = program.run("dead-letters", "redrive", "orders", "--rate", "20", "--yes")

    assert done.returncode == 0
    assert [params["limit"] for params in control.params_of("redrive_dead_letters")] == [2, 2, 2, 2]
    times = [at_s for at_s, (method, _) in zip(control.called_at_s, control.calls, strict=True) if "redrive" in method]
    pauses = [after - before for before, after in pairwise(times)]
    assert min(pauses) > 0.09


def test_ctrl_c_waits_for_the_chunk_and_says_how_far_it_came(program: Program, data: Path) -> None:
    letters = ScriptedLetters(*map(letter, range(300)))
    is_asked, may_answer = threading.Event(), threading.Event()

    def wait() -> None:
        is_asked.set()
        may_answer.wait(HARD_TIMEOUT_S)

    letters.before_chunk = wait
    with scripted_answers(data, letters):
        # A hundred take a tenth of a second, in which the signal is noticed.
        with program.start("dead-letters", "redrive", "orders", "--rate", "1000", "--yes") as process:
            assert is_asked.wait(HARD_TIMEOUT_S)
            process.send_signal(signal.SIGINT)
            may_answer.set()
            output, errors = process.communicate(timeout=HARD_TIMEOUT_S)

    assert (process.returncode, errors) == (130, "")
    assert output == "Interrupted. Redriven 100 of 300 dead letters of orders; the others are still there.\n"
    assert len(letters.letters) == 200


def test_ctrl_c_ends_a_pause_at_once(program: Program, data: Path) -> None:
    letters = ScriptedLetters(letter(1), letter(2))
    is_asked = threading.Event()
    letters.before_chunk = is_asked.set

    with scripted_answers(data, letters):
        with program.start("dead-letters", "redrive", "orders", "--rate", "0.001", "--yes", "--json") as process:
            assert is_asked.wait(HARD_TIMEOUT_S)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=HARD_TIMEOUT_S)

    assert process.returncode == 130
    assert json.loads(output) == {"topic": "orders", "redriven": 1, "skipped": [], "is_interrupted": True}


@pytest.mark.parametrize(
    ("refuses", "words"),
    [
        (True, ["The broker refuses: the store is full", "  200 letters had been purged."]),
        (False, ["went away before it answered.", "  200 letters had been purged, and perhaps up to 100 more."]),
    ],
)
def test_a_failure_in_the_middle_says_how_far_it_came(
    program: Program, data: Path, refuses: bool, words: list[str]
) -> None:
    letters = ScriptedLetters(*map(letter, range(1000)))

    def fail_later() -> None:
        if len(letters.letters) <= 800:
            raise Refused("the store is full") if refuses else Vanished

    letters.before_chunk = fail_later
    with scripted_answers(data, letters):
        done = program.run("dead-letters", "purge", "orders", "--yes")

    assert (done.returncode, done.stdout) == (1, "")
    for line, part in zip(done.stderr.splitlines(), words, strict=True):
        assert line.endswith(part)


def test_a_terminal_gets_a_progress_bar(program: Program, data: Path) -> None:
    screen, terminal = pty.openpty()
    try:
        with scripted_answers(data, ScriptedLetters(*map(letter, range(300)))):
            on_terminal = replace(program, environment=program.environment | {"TERM": "xterm"})
            with on_terminal.start("dead-letters", "redrive", "orders", "--yes", stderr=terminal) as process:
                output, _ = process.communicate(timeout=HARD_TIMEOUT_S)
        shown = os.read(screen, 65536).decode()
    finally:
        os.close(screen)
        os.close(terminal)

    assert output == "Redriven 300 dead letters of orders.\n"
    assert "redriving" in shown
    assert "300/300" in shown


# A real broker


def test_letters_are_listed_shown_redriven_and_purged(own_broker: RunningBroker) -> None:
    program = own_broker.program
    first, second, third = make_letters(own_broker, [b"one", b"two \xff", b"three"], reason="no such \x1b customer")

    topics, letters = program.run("dead-letters", "list"), program.run("dead-letters", "list", "orders")
    assert lines_of(topics.stdout)[1].startswith("orders 3 ")
    assert [line.split()[-3] for line in letters.stdout.splitlines()[1:]] == [first, second, third]
    assert r" billing/invoices 1 refused no such \x1b customer " in lines_of(letters.stdout)[1]

    one = program.run("dead-letters", "show", "/topic/orders", "1")
    assert "  colour: red\n" in one.stdout
    assert "  dead-letter-message-id: " + second in one.stdout
    assert "74 77 6f 20 ff" in one.stdout
    missing = program.run("dead-letters", "show", "orders", "3")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "stompbroker: The broker refuses: there is no dead letter at offset 3 of DLQ.orders\n"

    redriven = program.run("dead-letters", "redrive", "orders", "--message-id", second, "--yes")
    assert redriven.stdout == f"Redriven 1 dead letter of orders about message {second}.\n"
    durable = ["/topic/orders", "--durable", "invoices", "--client-id", "billing", "--json", "--count", "1"]
    again = json.loads(own_broker.run("subscribe", *durable).stdout)
    assert base64.b64decode(again["body"]) == b"two \xff"
    assert (again["headers"]["redrive-of"], again["headers"]["destination"]) == (second, "/topic/orders")

    purged = program.run("dead-letters", "purge", "DLQ.orders", "--offset", "0", "--yes")
    assert purged.stdout == "Purged 1 dead letter of orders at offset 0.\n"
    left = json.loads(program.run("dead-letters", "list", "orders", "--json").stdout)["letters"]
    assert [one["original_message_id"] for one in left] == [third]


def test_a_letter_goes_to_the_one_that_failed_or_to_the_whole_topic(own_broker: RunningBroker) -> None:
    make_letters(own_broker, [b"one", b"two"])
    with client_of(own_broker) as other:
        other.subscribe("/topic/orders")

        for target in (["--limit", "1"], ["--to", "topic"]):
            done = own_broker.program.run("dead-letters", "redrive", "orders", *target, "--yes")
            assert done.stdout == "Redriven 1 dead letter of orders.\n"

        assert other.next_message().body == b"two"
    durable = ["/topic/orders", "--durable", "invoices", "--client-id", "billing", "--body-only", "--count", "2"]
    assert own_broker.run("subscribe", *durable).stdout == "one\ntwo\n"


def test_what_cannot_be_redriven_is_skipped(own_broker: RunningBroker) -> None:
    make_letters(own_broker, [b"one", b"two"])
    own_broker.program.run("subscriptions", "rm", "billing/invoices", "--yes")

    done = own_broker.program.run("dead-letters", "redrive", "orders", "--yes")

    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "Redriven no dead letters of orders.",
        "Skipped 2, which stay where they are:",
        "  2: its subscription 'billing/invoices' is gone; redrive it to the topic (at offsets 0, 1)",
    ]


def test_letters_outlive_the_broker_and_can_be_subscribed_to(program: Program) -> None:
    with running_broker(program) as broker:
        (message_id,) = make_letters(broker, [b"one"])

    with running_broker(program) as broker:
        replay = ["/topic/DLQ.orders", "-H", "from:earliest", "--json", "--count", "1"]
        received = json.loads(broker.run("subscribe", *replay).stdout)

        assert received["body"] == "one"
        assert received["headers"]["dead-letter-message-id"] == message_id
        assert received["headers"]["dead-letter-cause"] == "refused"
        assert program.run("dead-letters", "redrive", "orders", "--yes").returncode == 0


def test_thousands_of_letters_are_moved(own_broker: RunningBroker) -> None:
    make_letters(own_broker, [b"%d" % number for number in range(1000)])
    make_letters(own_broker, [b"%d" % number for number in range(1000, 1500)], reason="timeout")
    program = own_broker.program

    purged = program.run("dead-letters", "purge", "orders", "--reason", "TIMEOUT", "--yes")
    redriven = program.run("dead-letters", "redrive", "orders", "--yes")

    assert purged.stdout == 'Purged 500 dead letters of orders with a reason like "TIMEOUT".\n'
    assert redriven.stdout == "Redriven 1,000 dead letters of orders.\n"
    durable = ["/topic/orders", "--durable", "invoices", "--client-id", "billing", "--body-only", "--count", "1000"]
    assert own_broker.run("subscribe", *durable).stdout.split() == [str(number) for number in range(1000)]
