"""`stompbroker subscribe`, against a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from tests.cli.conftest import Program, RunningBroker
    from tests.support.scripted_peer import Peer


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and the rest of what it wrote, once it has ended by itself."""
    output, errors = process.communicate(timeout=HARD_TIMEOUT_S)
    return process.returncode, output, errors


def test_people_see_destination_headers_and_body(broker: RunningBroker) -> None:
    with broker.subscriber("/topic/greetings", "--count", "1") as subscriber:
        broker.run("publish", "/topic/greetings", "Hello", "-H", "mood:good")

        code, output, errors = ended(subscriber)

    title, *rest = output.splitlines()
    assert title.startswith("/topic/greetings  ")
    assert rest == ["  mood: good", "  Hello"]
    assert (code, errors) == (0, "")


def test_a_pattern_receives_from_many_topics(broker: RunningBroker) -> None:
    with broker.subscriber("prices.*", "--json", "--count", "2") as subscriber:
        broker.run("publish", "prices.gold", "1")
        broker.run("publish", "prices.tin", "2")

        _, output, _ = ended(subscriber)

    assert [json.loads(line)["headers"]["destination"] for line in output.splitlines()] == ["prices.gold", "prices.tin"]


def test_messages_are_written_as_they_come(broker: RunningBroker) -> None:
    with broker.subscriber("t", "--body-only") as subscriber:
        for body in ("one", "two"):
            broker.run("publish", "t", body)

            assert line_of(subscriber) == f"{body}\n"


def test_nothing_beyond_the_count_is_written(broker: RunningBroker) -> None:
    with broker.subscriber("t", "--body-only", "--count", "3") as subscriber:
        broker.run("publish", "t", "{n}", "--number", "--count", "100")

        code, output, _ = ended(subscriber)

    assert (code, output) == (0, "1\n2\n3\n")


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_what_was_written_is_acknowledged(own_broker: RunningBroker, mode: str) -> None:
    with own_broker.subscriber("t", "--body-only", "--ack", mode, "-H", "prefetch-count:2") as subscriber:
        own_broker.run("publish", "t", "{n}", "--number", "--count", "7")

        # With two on the way at most, the third comes only after an ACK.
        assert [line_of(subscriber) for _ in range(7)] == [f"{number}\n" for number in range(1, 8)]
        while True:
            (subscription,) = own_broker.statistics()["subscriptions"]
            if subscription["acked"] == 7:
                break

        assert (subscription["ack"], subscription["in_flight"], subscription["redelivered"]) == (mode, 0, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_politely(own_broker: RunningBroker, number: signal.Signals) -> None:
    with own_broker.subscriber("t", "--ack", "client") as subscriber:
        own_broker.run("publish", "t", "one")
        assert line_of(subscriber).startswith("t  ")
        assert line_of(subscriber) == "  one\n"

        subscriber.send_signal(number)

        assert ended(subscriber) == (0, "", "")
    # It said goodbye and waited until the own_broker had dealt with that, so the broker has forgotten it by now.
    assert own_broker.statistics()["subscriptions"] == []


def test_it_stops_when_nothing_comes(broker: RunningBroker) -> None:
    done = broker.run("subscribe", "t", "--timeout", "0.1")

    assert (done.returncode, done.stdout) == (0, "")


def test_it_fails_when_too_little_comes(broker: RunningBroker) -> None:
    # The publisher is there before, so that its start does not count against the timeout.
    publish = broker.program.start("publish", *broker.address, "t", "--lines", stdin=subprocess.PIPE)
    with publish as publisher, broker.subscriber("t", "--body-only") as witness:
        assert publisher.stdin is not None
        publisher.stdin.write("first\n")
        publisher.stdin.flush()
        assert line_of(witness) == "first\n"
        with broker.subscriber("t", "--timeout", "1.5", "--count", "5", "--body-only") as subscriber:
            publisher.stdin.write("x\ny\n")
            publisher.stdin.flush()

            code, output, errors = ended(subscriber)

    assert (code, output) == (1, "x\ny\n")
    assert errors == "stompbroker: No message came for 1.5 seconds; 2 of 5 received.\n"


def test_a_reader_that_goes_away_ends_it_quietly(broker: RunningBroker) -> None:
    with broker.subscriber("t", "--body-only") as subscriber:
        assert subscriber.stdout is not None
        broker.run("publish", "t", "one")
        assert line_of(subscriber) == "one\n"

        subscriber.stdout.close()
        broker.run("publish", "t", "two")

        assert subscriber.wait(HARD_TIMEOUT_S) == 0
        assert subscriber.stderr is not None
        assert subscriber.stderr.read() == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_a_sentence(broker: RunningBroker) -> None:
    with (
        Path("/dev/full").open("wb") as full,
        broker.program.start("subscribe", *broker.address, "full", stdout=full) as subscriber,
    ):
        assert subscriber.stderr is not None
        assert subscriber.stderr.readline().startswith("Subscribed to ")

        broker.run("publish", "full", "one")

        assert subscriber.wait(HARD_TIMEOUT_S) == 1
        assert subscriber.stderr.read().startswith("stompbroker: Messages cannot be written: No space left on device.")


def test_a_refusal_of_the_broker_is_shown_with_its_reason(broker: RunningBroker) -> None:
    done = broker.run("subscribe", "/queue/*")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stompbroker: The broker refused: ")
    assert "/queue/" in done.stderr


def test_the_end_of_the_broker_is_noticed(own_broker: RunningBroker) -> None:
    with own_broker.subscriber("t") as subscriber:
        own_broker.stop()

        code, _, errors = ended(subscriber)

    assert code == 1
    assert errors.startswith("stompbroker: ")
    assert "Traceback" not in errors


def test_nobody_listening_is_a_sentence(program: Program) -> None:
    done = program.run("subscribe", "--port", "1", "t")

    assert (done.returncode, done.stdout) == (1, "")
    assert "No broker listens on 127.0.0.1:1." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--json", "--body-only"], "cannot be combined"),
        (["-H", "ack:client"], 'the header "ack" is set by --ack'),
        (["-H", "id:5"], 'the header "id" is set by'),
        (["--ack", "maybe"], "client-individual"),
        (["--durable", ""], "not empty"),
        (["--durable", "a", "--client-id", "a\nb:c"], "control characters"),
        (["--durable", "a", "-H", "activemq.subscriptionName:b"], "is set by --durable"),
        (["--group", ""], "not empty"),
        (["--group", "g", "--durable", "a"], "leave --durable or --group out"),
        (["--group", "g", "-H", "group:h"], "is set by --group"),
        (["--auto-delete"], "add --group NAME"),
        (["--exclusive"], "add --group NAME"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(program: Program, arguments: list[str], words: str) -> None:
    done = program.run("subscribe", "t", *arguments)

    assert done.returncode == 2
    assert words in done.stderr


def test_a_group_is_not_for_queues(program: Program) -> None:
    done = program.run("subscribe", "/queue/jobs", "--group", "g")

    assert done.returncode == 2
    assert "share it anyway" in done.stderr


# Groups and queues


@pytest.mark.parametrize("arguments", [["/topic/orders", "--group", "billing"], ["/queue/jobs"]])
def test_each_message_goes_to_one_of_several_and_is_kept_for_them(
    own_broker: RunningBroker, arguments: list[str]
) -> None:
    more = ["--body-only", "--count", "3", "-H", "prefetch-count:3"]
    with own_broker.subscriber(*arguments, *more) as one, own_broker.subscriber(*arguments, *more) as two:
        own_broker.run("publish", arguments[0], "{n}", "--number", "--count", "6")

        got = ended(one)[1].split() + ended(two)[1].split()

    assert sorted(got) == ["1", "2", "3", "4", "5", "6"]
    own_broker.run("publish", arguments[0], "later")
    assert own_broker.run("subscribe", *arguments, "--body-only", "--count", "1").stdout == "later\n"


def test_a_group_may_end_with_its_last_member(own_broker: RunningBroker) -> None:
    with own_broker.subscriber("/topic/orders", "--group", "passing", "--auto-delete", "--count", "1"):
        (here,) = own_broker.statistics()["subscriptions"]
        own_broker.run("publish", "/topic/orders", "x")

    assert (here["key"], here["durable"]) == ("group:passing @ orders", False)
    while own_broker.statistics()["subscriptions"]:
        pass


def test_one_consumer_of_a_queue_may_have_all_of_it(own_broker: RunningBroker) -> None:
    with own_broker.subscriber("/queue/jobs", "--exclusive", "--body-only", "--count", "4") as first:
        with own_broker.subscriber("/queue/jobs", "--exclusive", "--body-only", "--count", "1") as second:
            own_broker.run("publish", "/queue/jobs", "{n}", "--number", "--count", "5")

            assert ended(first)[1].split() == ["1", "2", "3", "4"]
            assert ended(second)[1].split() == ["5"]


# Against a scripted peer: what is sent, frame by frame


async def greet_and_deliver(peer: Peer, *bodies: bytes) -> None:
    await peer.greet()
    subscribe = await peer.read_frame()
    assert subscribe.startswith(b"SUBSCRIBE\n")
    await peer.confirm(subscribe)
    await peer.say(b"".join(b"MESSAGE\nsubscription:1\nack:%d\n\n%b\0" % pair for pair in enumerate(bodies, 1)))


async def test_nothing_beyond_the_count_is_acknowledged(peer: Peer, program: Program) -> None:
    address = ["--host", "127.0.0.1", "--port", str(peer.port)]
    with program.start("subscribe", *address, "t", "--ack", "client", "--count", "2", "--body-only") as subscriber:
        await greet_and_deliver(peer, b"one", b"two", b"three")

        assert [await peer.read_frame() for _ in range(3)] == [
            b"ACK\nid:1\n\n",
            b"ACK\nid:2\n\n",
            b"DISCONNECT\nreceipt:disconnect\n\n",
        ]

        await peer.say(b"RECEIPT\nreceipt-id:disconnect\n\n\0")
        assert ended(subscriber)[:2] == (0, "one\ntwo\n")


async def test_browsing_fails_if_the_broker_cannot_show_everything(peer: Peer, program: Program) -> None:
    address = ["--host", "127.0.0.1", "--port", str(peer.port)]
    with program.start("subscribe", *address, "/queue/q", "--browse", "--body-only") as subscriber:
        await peer.greet()
        subscribe = await peer.read_frame()
        assert b"\nack:auto\n" in subscribe
        assert b"\nbrowser:true\n" in subscribe
        await peer.confirm(subscribe)
        await peer.say(b"MESSAGE\nsubscription:1\nmessage-id:1\n\none\0")
        await peer.say(
            b"MESSAGE\nsubscription:1\nmessage-id:2\nbrowser:end\nbrowser-incomplete:something is lost\n\n\0"
        )

        code, output, errors = ended(subscriber)

        assert (code, output) == (1, "one\n")
        assert "This is not all: something is lost." in errors


@pytest.mark.parametrize(
    ("arguments", "client_id", "ack", "name", "identity"),
    [
        (["--durable", "n", "--client-id", "c"], "client-id:c", "client-individual", "n", "c/n"),
        (["--durable", "n"], "client-id:stompbroker-cli", "client-individual", "n", "stompbroker-cli/n"),
        (["--durable", "n/m", "--ack", "auto"], "client-id:stompbroker-cli", "auto", "n/m", "stompbroker-cli/n%2Fm"),
        (["--client-id", "c"], "client-id:c", "auto", None, None),
        ([], None, "auto", None, None),
    ],
)
async def test_a_durable_subscription_is_named_and_kept(
    peer: Peer,
    program: Program,
    arguments: list[str],
    client_id: str | None,
    ack: str,
    name: str | None,
    identity: str | None,
) -> None:
    with program.start("subscribe", "--host", "127.0.0.1", "--port", str(peer.port), "t", *arguments) as subscriber:
        connect = (await peer.greet()).decode().split("\n")
        frame = await peer.read_frame()
        subscribe = frame.decode().split("\n")
        await peer.confirm(frame)
        assert subscriber.stderr is not None
        greeting = subscriber.stderr.readline()

        subscriber.send_signal(signal.SIGINT)

        assert await peer.read_frame() == b"DISCONNECT\nreceipt:disconnect\n\n", "no UNSUBSCRIBE before"
        await peer.say(b"RECEIPT\nreceipt-id:disconnect\n\n\0")
        assert ended(subscriber) == (0, "", "")
    assert [line for line in connect if line.startswith("client-id:")] == ([client_id] if client_id else [])
    named = [] if name is None else [f"activemq.subscriptionName:{name}"]
    assert [line for line in subscribe if line.startswith(("ack:", "activemq."))] == [f"ack:{ack}", *named]
    assert greeting.startswith("Subscribed to t; " if identity is None else f"Subscribed to t as {identity}; ")


@pytest.mark.parametrize(
    ("arguments", "headers", "greeting"),
    [
        (
            ["t", "--group", "g"],
            ["ack:client-individual", "group:g", "auto-delete:false"],
            "Subscribed to t in group g; Ctrl-C ends, the broker keeps what comes later.\n",
        ),
        (
            ["t", "--group", "g", "--auto-delete", "--exclusive", "--ack", "auto"],
            ["ack:auto", "group:g", "auto-delete:true", "exclusive:true"],
            "Subscribed to t in group g; Ctrl-C ends.\n",
        ),
        (
            ["/queue/jobs"],
            ["ack:client-individual"],
            "Subscribed to /queue/jobs; Ctrl-C ends, the broker keeps what comes later.\n",
        ),
    ],
)
async def test_a_group_is_named_and_what_is_kept_is_acknowledged(
    peer: Peer, program: Program, arguments: list[str], headers: list[str], greeting: str
) -> None:
    with program.start("subscribe", "--host", "127.0.0.1", "--port", str(peer.port), *arguments) as subscriber:
        await peer.greet()
        frame = await peer.read_frame()
        subscribe = frame.decode().split("\n")
        await peer.confirm(frame)
        assert subscriber.stderr is not None
        assert subscriber.stderr.readline() == greeting
        subscriber.send_signal(signal.SIGINT)
        await peer.read_frame()
        await peer.say(b"RECEIPT\nreceipt-id:disconnect\n\n\0")
        assert ended(subscriber) == (0, "", "")
    assert [line for line in subscribe if line.startswith(("ack:", "group:", "auto-", "excl"))] == headers


async def test_what_could_not_be_written_is_not_acknowledged(peer: Peer, program: Program) -> None:
    address = ["--host", "127.0.0.1", "--port", str(peer.port)]
    with program.start("subscribe", *address, "t", "--ack", "client", "--body-only") as subscriber:
        assert subscriber.stdout is not None
        subscriber.stdout.close()
        await greet_and_deliver(peer, b"one")

        assert await peer.read_frame() == b"DISCONNECT\nreceipt:disconnect\n\n"

        await peer.say(b"RECEIPT\nreceipt-id:disconnect\n\n\0")
        assert subscriber.wait(HARD_TIMEOUT_S) == 0


async def test_with_reconnect_it_goes_on_when_the_broker_is_back(peer: Peer, program: Program) -> None:
    address = ["--host", "127.0.0.1", "--port", str(peer.port)]
    wanted = ["--reconnect", "--ack", "client", "--count", "2", "--body-only"]
    with program.start("subscribe", *address, "t", *wanted) as subscriber:
        await greet_and_deliver(peer, b"one")
        assert await peer.read_frame() == b"ACK\nid:1\n\n"
        await peer.stream.aclose()

        await greet_and_deliver(peer, b"two")

        assert await peer.read_frame() == b"ACK\nid:1\n\n"
        await peer.part()
        assert ended(subscriber)[:2] == (0, "one\ntwo\n")


async def test_a_second_signal_ends_it_even_if_the_goodbye_hangs(peer: Peer, program: Program) -> None:
    address = ["--host", "127.0.0.1", "--port", str(peer.port)]
    with program.start("subscribe", *address, "t") as subscriber:
        await greet_and_deliver(peer)
        assert subscriber.stderr is not None
        assert subscriber.stderr.readline().startswith("Subscribed")
        subscriber.send_signal(signal.SIGINT)
        assert await peer.read_frame() == b"DISCONNECT\nreceipt:disconnect\n\n"

        subscriber.send_signal(signal.SIGINT)

        code, _, errors = ended(subscriber)
    assert (code, errors) == (130, "")
