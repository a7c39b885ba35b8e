"""`stompbroker subscriptions` and `… rm`, against a scripted control socket, a real broker, and none."""

from __future__ import annotations

import json
import os
import pty
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from stompbroker.cli.subscriptions import near, subscription_table
from stompbroker.cli.terminal import print_uncut
from tests.cli.conftest import running_broker
from tests.cli.scripted_answers import addressed, named, scripted_subscriptions, shared
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Program, RunningBroker


@pytest.fixture
def data(program: Program) -> Path:
    """Where the settings' default finds it."""
    return program.directory / "data"


# The list


def test_every_subscription_is_a_line(program: Program, data: Path) -> None:
    here = named("billing", "invoices", connected=True, peer="192.0.2.1:5000", backlog=12345, in_flight=2, waiting=1)
    hour_ago = (datetime.now(UTC) - timedelta(minutes=61)).isoformat()
    gone = addressed("audit", "/topic/[red]orders.>", last_seen_at=hour_ago)

    with scripted_subscriptions(data, here, gone):
        done = program.run("subscriptions")

    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines == [
        "name destination ack state backlog in flight waiting created",
        "audit @ [red]orders.> /topic/[red]orders.> client last seen 1 h ago 0 0 0 2029-12-31 23:59:59",
        "billing/invoices /topic/t individual connected (192.0.2.1:5000) 12,345 2 1 2029-12-31 23:59:59",
    ]


def test_groups_and_queues_have_members_and_no_peer(program: Program, data: Path) -> None:
    group = shared("group:billing @ orders", 3, backlog=7, held_up=4, keys_held_up=1)
    exclusive = shared("group:one @ orders", 2, sharing="exclusive")
    ending = shared("group:passing @ orders", 1, durable=False, created_at=None, last_seen_at=None)
    queue = shared("/queue/jobs", 0, durable=False, created_at=None, last_seen_at=None)

    with scripted_subscriptions(data, group, exclusive, ending, queue, named("c", "n", durable=False)):
        done = program.run("subscriptions")

    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[1:] == [
        "/queue/jobs /queue/jobs individual no members 0 0 0",
        "group:billing @ orders /topic/orders individual 3 members, 4 held up behind 1 key 7 0 0 2029-12-31 23:59:59",
        "group:one @ orders /topic/orders individual 2 members, exclusive 0 0 0 2029-12-31 23:59:59",
        "group:passing @ orders /topic/orders individual 1 member 0 0 0",
    ]


def test_a_name_is_never_cut(program: Program, data: Path) -> None:
    long = "n" * 250

    with scripted_subscriptions(data, named("c", long, destination=f"/topic/{long}")):
        done = program.run("subscriptions", COLUMNS="60")

    assert done.stdout.splitlines()[1].startswith(f"c/{long}  /topic/{long}  ")


@pytest.mark.parametrize("width", [40, 150, 180])
def test_on_a_narrow_terminal_other_columns_fold_before_a_name_does(width: int) -> None:
    console = Console(width=width, force_terminal=True, no_color=True)
    one = addressed("a name", "/topic/" + "d" * 60, backlog=1234567, connected=True, peer="192.0.2.1:5000")
    with console.capture() as capture:
        print_uncut(subscription_table([one], datetime.now(UTC)), console=console)

    _, first, *more = capture.get().splitlines()
    assert first.startswith(f"a%20name @ {'d' * 60}  ")
    assert first.endswith("  1,234,567          0        0  2029-12-31 23:59:59")
    assert more, "the destination goes on below"


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(-5, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (86400 * 400, "400 d")],
)
def test_the_age_is_in_the_largest_unit(seconds: int, age: str) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    table = subscription_table([named("c", "n")], now)

    assert [str(cell) for cell in table.columns[3].cells] == [f"last seen {age} ago"]


def test_more_than_one_answer_is_asked_for_until_all_are_there(program: Program, data: Path) -> None:
    many = [named("c", f"{number:05}") for number in range(2500)]

    with scripted_subscriptions(data, *many) as control:
        done = program.run("subscriptions", "--json")

    answer = json.loads(done.stdout)
    assert answer == {"total": 2500, "subscriptions": many}
    assert [params.get("cursor") for params in control.asked] == [None, "1000", "2000", None]


def test_no_subscriptions_is_said_together_with_how_to_make_one(program: Program, data: Path) -> None:
    with scripted_subscriptions(data):
        done = program.run("subscriptions")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("There are no durable subscriptions, groups or queues.")
    assert "stompbroker subscribe /topic/orders --durable" in done.stdout
    assert "stompbroker subscribe /queue/jobs" in done.stdout


@pytest.mark.parametrize("command", [["subscriptions"], ["subscriptions", "rm", "c/n"]])
def test_no_broker_is_a_sentence(program: Program, command: list[str]) -> None:
    done = program.run(*command)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stompbroker: No broker is running with the data directory data ")


# Deleting


@pytest.mark.parametrize(
    ("key", "arguments"),
    [
        ("c/n", ["c/n"]),
        ("a @ b", ["a @ b"]),
        ("a @ b", ["a", "@", "b"]),
        ("x%2Fy/z", ["x%2Fy/z"]),
    ],
)
def test_what_the_list_shows_deletes_it(program: Program, data: Path, key: str, arguments: list[str]) -> None:
    with scripted_subscriptions(data, named("c", "n"), addressed("a", "/topic/b"), named("x/y", "z")) as control:
        done = program.run("subscriptions", "rm", *arguments)

    assert (done.returncode, done.stderr) == (0, "")
    assert control.deleted == [key]
    assert done.stdout.startswith("Deleted ")
    assert done.stdout.endswith("; 0 messages it had still to get given up.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["subscriptions", "rm", "c/n", "--data", "elsewhere"],
        ["subscriptions", "--data", "elsewhere", "rm", "c/n"],
        ["subscriptions", "--config", "other.toml", "rm", "c/n"],
    ],
)
def test_the_broker_may_be_named_before_or_after_rm(program: Program, arguments: list[str]) -> None:
    (program.directory / "other.toml").write_text('data = "elsewhere"')
    with scripted_subscriptions(program.directory / "elsewhere", named("c", "n")) as control:
        assert program.run(*arguments).returncode == 0

    assert control.deleted == ["c/n"]


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"backlog": 1}, "c/n has a backlog of 1 message; "),
        ({"backlog": 1500, "in_flight": 2}, "c/n has a backlog of 1,500 messages and 2 messages in flight; "),
        ({"in_flight": 3}, "c/n has 3 messages in flight; "),
    ],
)
def test_a_program_gives_up_messages_only_with_yes(
    program: Program, data: Path, counts: dict[str, int], words: str
) -> None:
    with scripted_subscriptions(data, named("c", "n", **counts)) as control:
        refused = program.run("subscriptions", "rm", "c/n")
        assert control.deleted == []
        done = program.run("subscriptions", "rm", "c/n", "--yes", "--json")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"stompbroker: {words}to give them up and delete it, say so with --yes.\n"
    assert json.loads(done.stdout) == {"id": "c/n!", "key": "c/n", "backlog": counts.get("backlog", 0)}


@pytest.mark.parametrize(("typed", "deleted"), [("y\n", ["c/n"]), ("n\n", []), ("\n", []), ("\x04", [])])
def test_a_person_is_asked(program: Program, data: Path, typed: str, deleted: list[str]) -> None:
    keyboard, terminal = pty.openpty()
    try:
        with scripted_subscriptions(data, named("c", "n", backlog=7)) as control:
            with program.start("subscriptions", "rm", "c/n", stdin=terminal) as process:
                os.write(keyboard, typed.encode())
                output, errors = process.communicate(timeout=HARD_TIMEOUT_S)
    finally:
        os.close(keyboard)
        os.close(terminal)

    assert control.deleted == deleted
    assert "c/n has a backlog of 7 messages. Give them up and delete it? [y/N]" in errors
    assert output == ("Deleted c/n; 7 messages it had still to get given up.\n" if deleted else "")
    assert process.returncode == (0 if deleted else 1)


def test_a_key_that_is_not_there_is_answered_with_near_ones(program: Program, data: Path) -> None:
    with scripted_subscriptions(data, named("billing", "invoices"), named("x", "y")) as control:
        near = program.run("subscriptions", "rm", "biling/invoices")
        far = program.run("subscriptions", "rm", "nothing-like-it")

    assert (near.returncode, far.returncode) == (1, 1)
    assert near.stderr.splitlines() == [
        'stompbroker: There is no durable subscription, group or queue "biling/invoices". Did you mean:',
        "  billing/invoices",
    ]
    assert '"stompbroker subscriptions" lists all there are' in far.stderr
    assert control.deleted == []


def test_near_names_come_likeliest_first_and_are_few() -> None:
    known = [named("billing", f"invoice{number}") for number in range(20)] + [named("x", "y")]

    assert near(known, "billing/invoice7x")[0] == "billing/invoice7"
    assert len(near(known, "billing/invoice")) == 3
    assert near(known, "zzz") == []


# A real broker


def test_a_durable_subscription_is_listed_resumed_and_deleted(own_broker: RunningBroker) -> None:
    program = own_broker.program
    durable = ["/topic/orders", "--durable", "invoices", "--client-id", "billing", "--body-only"]
    with own_broker.subscriber(*durable):
        (here,) = json.loads(program.run("subscriptions", "--json").stdout)["subscriptions"]
    assert (here["client_id"], here["durable_name"], here["ack"]) == ("billing", "invoices", "client-individual")
    assert here["connected"]

    own_broker.run("publish", "/topic/orders", "{n}", "--number", "--count", "5")
    resumed = own_broker.run("subscribe", *durable, "--count", "2")
    assert resumed.stdout == "1\n2\n"
    assert " last seen " in program.run("subscriptions").stdout

    refused = program.run("subscriptions", "rm", "billing/invoices")
    assert "has a backlog of 3 messages" in refused.stderr
    done = program.run("subscriptions", "rm", "billing/invoices", "--yes")
    assert done.stdout == "Deleted billing/invoices; 3 messages it had still to get given up.\n"
    assert program.run("subscriptions").stdout.startswith("There are no durable subscriptions")


def test_groups_and_queues_are_listed_with_their_members_and_deleted(own_broker: RunningBroker) -> None:
    program = own_broker.program
    group = ["/topic/orders", "--group", "billing", "--body-only"]
    with own_broker.subscriber(*group), own_broker.subscriber(*group), own_broker.subscriber("/queue/jobs"):
        lines = program.run("subscriptions").stdout.splitlines()
        assert [line.split()[0] for line in lines[1:]] == ["/queue/jobs", "group:billing"]
        assert ["1 member " in lines[1], "2 members" in lines[2]] == [True, True]
    own_broker.run("publish", "/queue/jobs", "work")

    refused = program.run("subscriptions", "rm", "/queue/jobs")
    assert "/queue/jobs has a backlog of 1 message" in refused.stderr
    for key in ("/queue/jobs", "group:billing @ orders"):
        assert program.run("subscriptions", "rm", key, "--yes").stdout.startswith(f"Deleted {key}; ")
    assert program.run("subscriptions").stdout.startswith("There are no durable subscriptions")


def test_a_durable_subscription_outlives_the_broker(program: Program) -> None:
    durable = ["/topic/orders", "--durable", "n", "--body-only", "--count", "1"]
    with running_broker(program) as broker:
        with broker.subscriber(*durable) as subscriber:
            broker.run("publish", "/topic/orders", "first")
            assert subscriber.wait(HARD_TIMEOUT_S) == 0
        broker.run("publish", "/topic/orders", "second")

    with running_broker(program) as broker:
        assert broker.run("subscribe", *durable).stdout == "second\n"


def test_in_memory_a_durable_subscription_is_refused(program: Program) -> None:
    with running_broker(program, "--database", "memory") as broker:
        done = broker.run("subscribe", "/topic/orders", "--durable", "n")

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("stompbroker: The broker refused: ")
        assert program.run("subscriptions").stdout.startswith("There are no durable subscriptions")


def test_in_memory_groups_and_queues_are_listed_all_the_same(program: Program) -> None:
    with running_broker(program, "--database", "memory") as broker:
        broker.run("publish", "/queue/jobs", "work")
        with broker.subscriber("/topic/orders", "--group", "g", "--auto-delete", "--exclusive"):
            lines = [" ".join(line.split()) for line in program.run("subscriptions").stdout.splitlines()]

    assert lines[1:] == [
        "/queue/jobs /queue/jobs individual no members 1 0 0",
        "group:g @ orders /topic/orders individual 1 member, exclusive 0 0 0",
    ]
