"""`stompbroker last-values`, with a real broker: lists, shows one, removes after a question, and says what is wrong."""

from __future__ import annotations

import json
import os
import pty
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import running_broker
from tests.cli.failing_subscriber import client_of
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from tests.cli.conftest import Program, RunningBroker

COMMAND = "last-values"


def keep(broker: RunningBroker, values: dict[str, bytes], **headers: str) -> None:
    with client_of(broker) as client:
        for topic, body in values.items():
            client.send("SEND", body, destination=f"/topic/{topic}", retain="set", receipt="kept", **headers)
            client.expect_receipt("kept")


def lines_of(broker: RunningBroker, *command: str) -> list[str]:
    done = broker.program.run(COMMAND, *command)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def topics_of(broker: RunningBroker, *command: str) -> list[str]:
    return [line.split()[0] for line in lines_of(broker, *command)[1:] if not line.startswith("stompbroker publish")]


def test_they_are_listed_by_pattern_and_order(own_broker: RunningBroker) -> None:
    assert lines_of(own_broker)[0].startswith("There are no last values.")
    keep(own_broker, {"prices.usd": b"x" * 2_000, "other": b"1", "prices.eur": b"1.1"})

    assert lines_of(own_broker)[0] == "topic published expires size stored message id"
    assert topics_of(own_broker) == ["other", "prices.eur", "prices.usd"]
    assert topics_of(own_broker, "prices.>") == ["prices.eur", "prices.usd"]
    assert topics_of(own_broker, "/topic/other") == ["other"]
    assert topics_of(own_broker, "--sort", "largest", "--data", "data") == ["prices.usd", "prices.eur", "other"]
    assert topics_of(own_broker, "prices.*", "--sort", "newest") == ["prices.eur", "prices.usd"]
    assert lines_of(own_broker, "--limit", "1")[1:][1:] == ["… and 2 more; --limit shows more than 1."]
    assert lines_of(own_broker, "none.>") == ["There are no last values of /topic/none.>."]
    listed = json.loads(own_broker.program.run(COMMAND, "prices.>", "--limit", "1", "--json").stdout)
    assert (listed["total"], [one["topic"] for one in listed["last_values"]]) == (2, ["prices.eur"])
    assert json.loads(own_broker.program.run(COMMAND, "--json", "list").stdout)["total"] == 3


def test_one_is_shown_and_its_body_is_written(own_broker: RunningBroker) -> None:
    keep(own_broker, {"prices.eur": b"1.1\n"}, unit="USD")
    keep(own_broker, {"binary": b"\x00\xff"}, persistent="false")

    shown = lines_of(own_broker, "show", "prices.eur")
    assert shown[0] == "Last value of prices.eur"
    assert {"expires never", "stored yes", "unit: USD", "Body (4 B)", "1.1"} <= set(shown)
    assert "stored no: it ends with the broker's process" in lines_of(own_broker, "show", "/topic/binary")
    assert json.loads(own_broker.program.run(COMMAND, "show", "prices.eur", "--json").stdout)["body"] == "MS4xCg=="
    lines_of(own_broker, "show", "binary", "--body", "out")
    assert (own_broker.program.directory / "out").read_bytes() == b"\x00\xff"


def test_they_are_removed_with_yes_and_not_without(own_broker: RunningBroker) -> None:
    keep(own_broker, {f"prices.{number:04}": b"1" for number in range(1_200)} | {"other": b"2"})

    refused = own_broker.program.run(COMMAND, "remove", "prices.>")
    assert refused.returncode == 2
    assert "1,200 last values of /topic/prices.> would be gone for good; to have that done, say so" in refused.stderr
    assert lines_of(own_broker, "remove", "prices.>", "--yes") == ["Removed 1,200 last values of /topic/prices.>."]
    assert topics_of(own_broker) == ["other"]
    removed = json.loads(own_broker.program.run(COMMAND, "remove", "other", "--yes", "--json").stdout)
    assert removed == {"pattern": "/topic/other", "removed": 1, "is_interrupted": False}
    assert lines_of(own_broker, "remove", "other") == ["There are no last values of /topic/other; nothing was removed."]


def test_what_is_removed_stays_away_over_a_restart(program: Program) -> None:
    """`serve` writes in a process of its own."""
    with running_broker(program) as broker:
        keep(broker, {"prices.eur": b"1", "prices.usd": b"2", "other": b"3"})
        lines_of(broker, "remove", "prices.eur", "--yes")
        with client_of(broker) as client:
            client.send("SEND", b"", destination="/topic/other", retain="remove", receipt="removed")
            client.expect_receipt("removed")
    with running_broker(program) as broker:
        assert topics_of(broker) == ["prices.usd"]


@pytest.mark.parametrize(("typed", "is_removed"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_is_asked(own_broker: RunningBroker, typed: str, is_removed: bool) -> None:
    keep(own_broker, {"prices.eur": b"1"})
    keyboard, terminal = pty.openpty()
    try:
        with own_broker.program.start(COMMAND, "remove", "prices.eur", stdin=terminal) as process:
            os.write(keyboard, typed.encode())
            _, errors = process.communicate(timeout=HARD_TIMEOUT_S)
    finally:
        os.close(keyboard)
        os.close(terminal)

    assert "1 last value of /topic/prices.eur would be gone for good. Do it? [y/N]" in errors
    assert process.returncode == (0 if is_removed else 1)
    assert topics_of(own_broker) == ([] if is_removed else ["prices.eur"])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["/queue/jobs"], 2, "is no pattern of topics"),
        (["remove", "/queue/jobs"], 2, "is no pattern of topics"),
        (["/topic/"], 2, "PATTERN"),
        (["show", "prices.>"], 2, "is a pattern"),
        (["show", "none"], 1, "there is no last value of 'none'"),
        (["show", "none", "--json", "--body", "-"], 2, "cannot be combined with --json"),
        (["--sort", "size"], 2, "'name', 'newest', 'largest'"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(broker: RunningBroker, arguments: list[str], code: int, said: str) -> None:
    done = broker.program.run(COMMAND, *arguments, "--data", str(broker.data))

    assert (done.returncode, done.stdout) == (code, "")
    assert said in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize("arguments", [[], ["prices.>"], ["show", "a"], ["remove", "a"]], ids=" ".join)
def test_without_a_broker_one_is_told_so(program: Program, arguments: list[str]) -> None:
    done = program.run(COMMAND, *arguments)

    assert done.returncode == 1
    assert "No broker is running" in done.stderr
