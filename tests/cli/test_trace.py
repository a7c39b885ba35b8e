"""`stompbroker trace`, against a scripted control socket, a real broker, and none."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from stompbroker.cli.terminal import print_uncut
from stompbroker.cli.trace import place, progress_table
from tests.cli.failing_subscriber import client_of, make_letters, refuse_all
from tests.cli.scripted_answers import scripted_answers

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


def at(seconds: float, now: datetime = NOW) -> str:
    return (now + timedelta(seconds=seconds)).isoformat()


def progress(key: str, state: str = "not sent", **more: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("first_attempt_at", "last_attempt_at", "next_attempt_at", "reason"))
    members = int(more.get("connected", True))
    about = {"subscription": key, "durable": True, "connected": True, "members": members}
    return about | {"state": state, "attempts": 0} | nothing | more


def found(*subscriptions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "topic": "orders",
        "offset": 17,
        "is_dead_letter": False,
        "published_at": at(-60),
        "expires_at": None,
        "body_bytes": 10,
        "subscriptions": list(subscriptions),
    } | more


def answer(*places: dict[str, Any], note: str | None = None) -> Any:
    return lambda _, message_id: {"message_id": message_id, "found": list(places), "note": note}


def test_the_help_has_examples(program: Program) -> None:
    done = program.run("trace", "--help")

    assert done.returncode == 0
    assert "stompbroker trace " in done.stdout.split("Examples:")[1]


def test_no_broker_is_a_sentence(program: Program) -> None:
    done = program.run("trace", "5f0c9a3e-1-1")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stompbroker: No broker is running with the data directory data ")


def test_each_place_has_a_title_and_a_table(program: Program, data: Path) -> None:
    now = datetime.now(UTC)
    waiting = progress(
        "billing/invoices",
        "waiting",
        attempts=3,
        first_attempt_at=at(-121, now),
        last_attempt_at=at(-61, now),
        next_attempt_at=at(3599, now),
        reason="[b]no\x1b such customer",
    )
    settled = progress("my\x07 sub", "settled", attempts=None, connected=False)
    letter = found(topic="DLQ.orders", offset=3, is_dead_letter=True)

    with scripted_answers(data, answer(found(waiting, settled, topic="a\tb"), letter)) as control:
        done = program.run("trace", "5f0c9a3e-1-1")

    assert (done.returncode, done.stderr) == (0, "")
    assert control.calls == [("trace", {"message_id": "5f0c9a3e-1-1"})]
    lines = lines_of(done.stdout)
    assert lines[0] == "Topic a%09b, offset 17"
    assert lines[1].startswith("published 2030-01-01 00:59:00 (")
    assert lines[1].endswith("), 10 B")
    assert lines[2:7] == [
        "subscription state attempts first attempt last attempt next attempt last reason",
        r"billing/invoices waiting 3 2 min ago 1 min ago in 59 min [b]no\x1b such customer",
        r"my\x07 sub settled (not connected)",
        "",
        "Dead letter 3 of orders",
    ]
    assert lines[8:] == ["stompbroker dead-letters show orders 3", "no subscription has to do with it here"]


@pytest.mark.parametrize(
    ("expires_at", "end"), [(None, "10 B"), (at(4), "10 B, expires in 4 s"), (at(-4), "10 B, expires 4 s ago")]
)
def test_when_it_expires_is_said(expires_at: str | None, end: str) -> None:
    _, line, *_ = place(found(expires_at=expires_at), NOW)

    assert line == f"  published 2030-01-01 00:59:00 (1 min ago), {end}"


@pytest.mark.parametrize(("due", "words"), [(at(4), "in 4 s"), (at(-9), "now"), (None, "")])
def test_what_is_due_is_about_to_happen(due: str | None, words: str) -> None:
    table = progress_table([progress("c/n", "waiting", next_attempt_at=due)], NOW)

    assert [str(cell) for cell in table.columns[5].cells] == [words]


@pytest.mark.parametrize("width", [40, 80, 140])
def test_a_subscription_is_never_cut(width: int) -> None:
    console = Console(width=width, force_terminal=True, no_color=True)
    one = progress("s" * 60, "waiting", reason="a reason that takes many words to say, and a few more")
    with console.capture() as capture:
        print_uncut(progress_table([one], NOW), console=console)

    assert capture.get().splitlines()[1].startswith("s" * 60 + "  ")


def test_nowhere_is_said_with_why(program: Program, data: Path) -> None:
    with scripted_answers(data, answer(note="it is not kept\x1b any more")):
        done, as_json = program.run("trace", "x"), program.run("trace", "x", "--json")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "stompbroker: it is not kept\\x1b any more\n"
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["found"] == []


def test_json_is_what_the_broker_says(program: Program, data: Path) -> None:
    one = found(progress("c/n"))

    with scripted_answers(data, answer(one)):
        done = program.run("trace", "x", "--json")

    assert json.loads(done.stdout) == {"message_id": "x", "found": [one], "note": None}


# A real broker


def test_a_real_broker_tells_of_every_subscription(own_broker: RunningBroker) -> None:
    (message_id,) = refuse_all(own_broker, [b"one"], reason="no such customer", delay="604800000")
    with client_of(own_broker) as other:
        other.subscribe("/topic/orders", id="late", ack="client")
        (second,) = refuse_all(own_broker, [b"two"], reason="too late", delay="604800000")
        other.next_message()
        done = own_broker.program.run("trace", message_id)
        both = own_broker.program.run("trace", second)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Topic orders, offset 0\n")
    row = next(line for line in lines_of(done.stdout) if line.startswith("billing/invoices "))
    assert row.startswith("billing/invoices waiting (not connected) 1 ")
    assert row.endswith(" in 6 d no such customer")
    assert any(line.startswith("late in flight 1 ") for line in lines_of(both.stdout))


def test_a_real_broker_finds_a_dead_letter_by_the_id_of_the_message(own_broker: RunningBroker) -> None:
    (message_id,) = make_letters(own_broker, [b"one"])

    done = own_broker.program.run("trace", message_id)

    assert done.returncode == 0
    assert "Dead letter 0 of orders\n" in done.stdout
    assert "stompbroker dead-letters show orders 0\n" in done.stdout


def test_a_real_broker_says_why_it_finds_nothing(own_broker: RunningBroker) -> None:
    with client_of(own_broker) as client:
        client.subscribe("/topic/prices")
        client.send("SEND", b"one", destination="/topic/prices")
        message_id = client.next_message().headers["message-id"]
    gone = own_broker.program.run("trace", message_id)
    never = own_broker.program.run("trace", "never-made")

    assert (gone.returncode, never.returncode) == (1, 1)
    assert gone.stderr.startswith(f"stompbroker: {message_id} is not kept any more: ")
    assert "no message was ever called 'never-made'" in never.stderr
