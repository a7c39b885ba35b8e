"""Whatever clients choose, no command lets it do anything to a terminal."""

from __future__ import annotations

import ast
import json
import unicodedata
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import trio

from stompbroker.cli import terminal
from stompbroker.stomp import Version, render_frame
from tests.cli.conftest import program_in, running_broker
from tests.end_to_end.raw_client import RawClient
from tests.support.broker_process import Address, wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.cli.conftest import Program, RunningBroker
    from tests.support.scripted_peer import Peer

CONTROLS: Final = "".join(map(chr, (*range(1, 0x20), *range(0x7F, 0xA0))))
DIRECTIONS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
UNSEEN: Final = "\u00ad\u200b\u2028\u2029\u2060\ufeff"
#: Clears the screen, writes lines of its own, turns the text around, and is markup. Short enough for a name.
HOSTILE: Final = f"[red]x[/red]\x1b[2J\x9b2J\r\nFORGED\u2028{DIRECTIONS}{UNSEEN}\x07\x7f"
#: CONNECT knows no escapes for ends of lines.
CLIENT_ID: Final = HOSTILE.replace("\r\n", "")
TOPIC: Final = f"{HOSTILE}t"
TEXT: Final = CONTROLS + HOSTILE

UNSEEN_CATEGORIES: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, str]]:
    """A broker with a durable subscription, a message that waits for it, a dead letter, and a message's id."""
    with running_broker(program_in(tmp_path_factory.mktemp("hostile"))) as broker:
        with RawClient.connected(Address("127.0.0.1", broker.port), client_id=CLIENT_ID) as client:
            client.subscribe(f"/topic/{TOPIC}", ack="client-individual", **{"activemq.subscriptionName": HOSTILE})
            for _ in range(2):
                client.send("SEND", TEXT.encode(), destination=f"/topic/{TOPIC}", **{TEXT: TEXT})
            first, second = client.next_message(), client.next_message()
            client.send("NACK", id=first.headers["ack"], requeue="false", reason=TEXT[:100])
            client.send("NACK", id=second.headers["ack"], reason=HOSTILE, delay="3600000", receipt="refused")
            client.expect_receipt("refused")
            wait_until(lambda: len(broker.statistics()["topics"]) == 2, "the dead letter")
            yield broker, first.headers["message-id"]


def expect_harmless(text: str) -> None:
    assert [sign for sign in text if sign not in "\n\t" and unicodedata.category(sign) in UNSEEN_CATEGORIES] == []
    # What keeps its lines is indented, and everything else is in one line.
    assert not any(line.startswith("FORGED") for line in text.splitlines())


COMMANDS: Final = {
    "stats": ["stats", "--interval", "0"],
    "top": ["top", "--once"],
    "subscriptions": ["subscriptions"],
    "rm without --yes": ["subscriptions", "rm", "KEY"],
    "rm of what is not there": ["subscriptions", "rm", HOSTILE],
    "letters": ["dead-letters", "list"],
    "letters of a topic": ["dead-letters", "list", TOPIC],
    "a letter": ["dead-letters", "show", TOPIC, "0"],
    "no letter": ["dead-letters", "show", TOPIC, "7"],
    "no such letters": ["dead-letters", "list", TOPIC, "--reason", HOSTILE, "--subscription", HOSTILE],
    "purge without --yes": ["dead-letters", "purge", TOPIC],
    "redrive of nothing": ["dead-letters", "redrive", TOPIC, "--message-id", HOSTILE],
    "redrive without --yes": ["dead-letters", "redrive", TOPIC, "--to", "topic"],
    "gc": ["gc", "explain"],
    "gc of a topic": ["gc", "explain", TOPIC],
    "gc of no topic": ["gc", "explain", f"{HOSTILE}none"],
    "trace": ["trace", "MESSAGE-ID"],
    "trace of nothing": ["trace", HOSTILE],
    "ledger": ["ledger", "export"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_no_command_prints_what_a_client_chose_as_it_is(command: list[str], hostile: tuple[RunningBroker, str]) -> None:
    broker, message_id = hostile
    key = broker.statistics()["subscriptions"][0]["key"]
    arguments = [{"KEY": key, "MESSAGE-ID": message_id}.get(argument, argument) for argument in command]

    done = broker.program.run(*arguments, "--data", str(broker.data))

    assert "Traceback" not in done.stderr
    assert done.stdout + done.stderr != ""
    expect_harmless(done.stdout + done.stderr)


JSON: Final = ["stats", "subscriptions", "letters", "letters of a topic", "a letter", "gc", "trace", "ledger"]


@pytest.mark.parametrize("command", JSON)
def test_json_has_all_of_it_in_escapes(command: str, hostile: tuple[RunningBroker, str]) -> None:
    broker, message_id = hostile
    arguments = [message_id if argument == "MESSAGE-ID" else argument for argument in COMMANDS[command]]

    done = broker.program.run(*arguments, "--json", "--data", str(broker.data))

    expect_harmless(done.stdout + done.stderr)
    assert done.stdout.isascii()
    assert json.loads(done.stdout)


def test_markup_is_text(hostile: tuple[RunningBroker, str]) -> None:
    broker, _ = hostile
    for command in ("stats", "top", "letters", "gc", "a letter"):
        assert "[red]x[" in broker.program.run(*COMMANDS[command], "--data", str(broker.data)).stdout


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["for people", "json"])
def test_a_message_is_shown_without_doing_anything(form: list[str], own_broker: RunningBroker) -> None:
    broker = own_broker
    with broker.subscriber(f"/topic/{TOPIC}", "--count", "1", *form) as subscriber:
        with RawClient.connected(Address("127.0.0.1", broker.port)) as client:
            client.send("SEND", TEXT.encode(), destination=f"/topic/{TOPIC}", **{TEXT: TEXT})
            output, errors = subscriber.communicate()

    expect_harmless(output + errors)
    assert "FORGED" in output


def test_what_is_subscribed_to_is_said_in_one_line(own_broker: RunningBroker) -> None:
    done = own_broker.run("subscribe", f"/topic/{TOPIC}", "--timeout", "0.1")

    assert done.stderr.startswith("Subscribed to ")
    expect_harmless(done.stdout + done.stderr)


def test_what_is_published_is_said_in_one_line(own_broker: RunningBroker) -> None:
    done = own_broker.run("publish", f"/topic/{TOPIC}", "hello", "--receipt")

    assert done.returncode == 0
    expect_harmless(done.stdout + done.stderr)


async def test_an_error_of_the_broker_is_shown_without_doing_anything(program: Program, peer: Peer) -> None:
    done: list[subprocess.CompletedProcess[str]] = []
    arguments = ["publish", "--host", "127.0.0.1", "--port", str(peer.port), "/topic/a", "hello", "--receipt"]

    async def publish() -> None:
        done.append(await trio.to_thread.run_sync(partial(program.run, *arguments)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        await peer.greet()
        await peer.say(render_frame("ERROR", [("message", TEXT)], TEXT.encode(), Version.V1_2))

    assert done[0].returncode == 1
    assert "The broker refused" in done[0].stderr
    expect_harmless(done[0].stdout + done[0].stderr)


def test_there_is_one_way_out() -> None:
    """Everything else would have to remember to make names readable."""
    folder = Path(terminal.__file__).parent
    found = []
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="print" | "Console" | "Text")):
                    found.append(path.name)
                case ast.Call(func=ast.Attribute(value=ast.Name(id="typer"), attr="echo" | "secho" | "confirm")):
                    found.append(path.name)
    assert set(found) == {"terminal.py"}
