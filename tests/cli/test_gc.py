"""`stompbroker gc explain`, against a scripted control socket, a real broker, and none."""

from __future__ import annotations

import json
import os
import pty
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from stompbroker.cli.gc import biggest_first, explanation
from tests.cli.failing_subscriber import client_of, make_letters
from tests.cli.scripted_answers import Refused, scripted_answers
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Program, RunningBroker

NOW = datetime(2030, 1, 1, 1, tzinfo=UTC)


@pytest.fixture
def data(program: Program) -> Path:
    """Where the settings' default finds it."""
    return program.directory / "data"


def topic(name: str, *, in_memory: int = 0, stored: int | None = None, **more: Any) -> dict[str, Any]:
    """With 100 bytes a message."""
    extent = None if stored is None else {"first_offset": 0, "next_offset": stored}
    return {
        "topic": name,
        "in_memory": {"messages": in_memory, "bytes": in_memory * 100},
        "stored": None if extent is None else {**extent, "messages": stored, "bytes": (stored or 0) * 100},
        "retention": None,
        "pinned_by": [],
        "collectable": {"messages": 0},
        "why": "nothing is kept",
    } | more


def pin(key: str, **more: Any) -> dict[str, Any]:
    return {
        "subscription": key,
        "destination": "/topic/orders",
        "durable": True,
        "connected": False,
        "members": int(more.get("connected", False)),
        "last_seen_at": "2030-01-01T00:30:00.000+00:00",
        "lowest_unsettled": 4,
        "unsettled": 13,
        "since": "2030-01-01T00:00:00.000+00:00",
    } | more


def explained(*topics: dict[str, Any], is_about_one: bool = False, width: int | None = None) -> list[str]:
    return list(explanation(biggest_first(topics), NOW, is_about_one=is_about_one, width=width))


def paged(topics: list[dict[str, Any]]) -> Any:
    """A broker with these topics."""
    by_name = {one["topic"]: one for one in topics}

    def respond(_: str, topic: str | None = None, after: str = "", limit: int = 100) -> dict[str, Any]:
        if topic is not None:
            if topic not in by_name:
                raise Refused(f"there is no topic {topic!r}")
            return {"total": 1, "topics": [by_name[topic]]}
        names = [name for name in sorted(by_name) if name > after]
        return {"total": len(by_name), "topics": [by_name[name] for name in names[:limit]]}

    return respond


@pytest.mark.parametrize("command", ["", "explain"])
def test_the_help_of_every_command_has_examples(program: Program, command: str) -> None:
    done = program.run("gc", *command.split(), "--help")

    assert done.returncode == 0
    assert f"stompbroker gc {command}" in done.stdout.split("Examples:")[1]


def test_no_broker_is_a_sentence(program: Program) -> None:
    done = program.run("gc", "explain")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stompbroker: No broker is running with the data directory data ")


def test_a_topic_is_a_block_of_facts() -> None:
    pins = [
        pin("billing/invoices"),
        pin("my \x1bsub", durable=False, connected=True, destination="/topic/or\tders.>", since=None, unsettled=1),
    ]
    retention = {"age_s": 7200.0, "max_bytes": 1024**3, "max_messages": 1000, "messages": 2, "bytes": 300}

    assert explained(
        topic("orders", in_memory=1, stored=17, pinned_by=pins, retention=retention, why="[b]\x1b is why")
    ) == [
        "orders:",
        "  in memory     1 message, 100 B",
        "  in the store  17 messages, 1.7 KiB (offsets 0 to 16)",
        "  retention     what is younger than 2 h and within 1 GiB and within 1,000 messages: 2 messages, 300 B",
        "  pinned by     billing/invoices (durable, not connected, last seen 30 min ago): "
        "13 messages unsettled from offset 4 on, since 2030-01-01 00:00:00 (1 h ago)",
        r"                my \x1bsub (not durable, by /topic/or%09ders.>, connected): "
        "1 message unsettled from offset 4 on",
        "  collectable   nothing now",
        r"  why           [b]\x1b is why",
    ]


def test_a_topic_in_memory_that_could_go() -> None:
    assert explained(topic("a b", in_memory=3, collectable={"messages": 3}, why="it goes")) == [
        "a%20b:",
        "  in memory     3 messages, 300 B",
        "  in the store  nothing; it lives in memory only",
        "  retention     none: what everybody has settled goes",
        "  pinned by     nobody",
        "  collectable   3 messages, by a run now",
        "  why           it goes",
    ]


def test_that_more_may_pin_it_than_are_named_is_said() -> None:
    lines = explained(topic("orders", stored=20, pinned_by=[pin(f"c/{number}") for number in range(5)]))

    assert "                (the 5 that are furthest behind; there may be others)" in lines


def test_the_biggest_come_first_and_those_without_anything_are_counted() -> None:
    topics = [topic("a"), topic("b", in_memory=5), topic("c", stored=1), topic("d", stored=9), topic("e", stored=0)]

    lines = explained(*topics)

    assert [line for line in lines if line.endswith(":")] == ["d:", "c:", "b:"]
    assert lines[-2:] == ["", "2 other topics keep nothing."]
    assert explained(*topics[1:4])[-1] == "  why           nothing is kept"
    assert explained(*topics[:4])[-1] == "1 other topic keeps nothing."


def test_nothing_kept_is_a_sentence() -> None:
    assert explained() == ["There are no topics."]
    assert explained(topic("a"), topic("b", stored=0)) == ["Nothing is kept (2 topics)."]


def test_one_topic_is_explained_also_if_it_keeps_nothing() -> None:
    lines = explained(topic("a", stored=0), is_about_one=True)

    assert lines[:3] == ["a:", "  in memory     nothing", "  in the store  nothing (the next offset is 0)"]


def test_on_a_terminal_lines_are_broken_between_words_and_names_are_not() -> None:
    name = "a-name-without-end @ " + "d" * 100

    lines = explained(topic("orders", stored=3, pinned_by=[pin(name)], why="some words " * 20), width=80)

    assert all(len(line) <= 80 for line in lines if "ddd" not in line)
    assert any(name in line for line in lines)


def test_all_answers_are_asked_for(program: Program, data: Path) -> None:
    with scripted_answers(data, paged([topic(f"t{number:02}", stored=number) for number in range(45)])) as control:
        done = program.run("gc", "explain", "--json")

    answer = json.loads(done.stdout)
    assert (answer["total"], len(answer["topics"])) == (45, 45)
    assert [one["topic"] for one in answer["topics"][:2]] == ["t44", "t43"]
    assert [params["after"] for _, params in control.calls] == ["", "t19", "t39"]


@pytest.mark.parametrize("given", ["orders", "/topic/orders"])
def test_one_topic_is_asked_for_by_its_name(program: Program, data: Path, given: str) -> None:
    with scripted_answers(data, paged([topic("orders"), topic("others", stored=1)])):
        done = program.run("gc", "explain", given)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("orders:\n")
    assert "others" not in done.stdout


def test_a_topic_that_is_not_there_is_a_sentence(program: Program, data: Path) -> None:
    with scripted_answers(data, paged([])):
        unknown, pattern = program.run("gc", "explain", "x"), program.run("gc", "explain", "x.*")

    assert (unknown.returncode, unknown.stderr) == (1, "stompbroker: The broker refuses: there is no topic 'x'\n")
    assert pattern.returncode == 2


def test_titles_stand_out_on_a_terminal(program: Program, data: Path) -> None:
    screen, terminal = pty.openpty()
    try:
        with scripted_answers(data, paged([topic("orders", stored=1)])):
            with program.start("gc", "explain", stdout=terminal) as process:
                process.communicate(timeout=HARD_TIMEOUT_S)
        shown = os.read(screen, 65536).decode()
    finally:
        os.close(screen)
        os.close(terminal)

    assert shown.startswith("\x1b[1morders:\x1b[0m\r\n  in memory ")
    assert shown.count("\x1b") == 2


# A real broker


def test_a_real_broker_says_who_pins_a_topic(own_broker: RunningBroker) -> None:
    program = own_broker.program
    with own_broker.subscriber("/topic/orders", "--durable", "invoices", "--client-id", "billing"):
        pass
    own_broker.run("publish", "/topic/orders", "one", "--count", "5")

    done = program.run("gc", "explain")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "orders:"
    assert any("5 messages" in line and "(offsets 0 to 4)" in line for line in lines)
    (pinned,) = [line for line in lines if line.startswith("  pinned by ")]
    assert "billing/invoices (durable, not connected, last seen " in pinned
    assert "5 messages unsettled from offset 0 on, since " in pinned


def test_a_real_broker_explains_dead_letters_by_their_retention(own_broker: RunningBroker) -> None:
    make_letters(own_broker, [b"one", b"two"])

    done = own_broker.program.run("gc", "explain", "DLQ.orders")

    assert done.returncode == 0
    assert "what is younger than 14 d and within 1 GiB: 2 messages, " in done.stdout
    assert "  pinned by     nobody\n" in done.stdout


def test_a_real_broker_with_nothing_to_keep_says_so(own_broker: RunningBroker) -> None:
    assert own_broker.program.run("gc", "explain").stdout == "There are no topics.\n"
    with client_of(own_broker) as client:
        client.subscribe("/topic/prices")

        assert own_broker.program.run("gc", "explain").stdout == "Nothing is kept (1 topic).\n"
        unknown = own_broker.program.run("gc", "explain", "unknown")
    assert unknown.returncode == 1
    assert "there is no topic 'unknown'" in unknown.stderr
