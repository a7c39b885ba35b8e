"""What an independent client sees: stomp.py in its three versions against a broker in a process of its own.

It is long because it goes through the whole protocol with one broker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.raw_client import RawClient
from tests.end_to_end.stomp_py_client import VERSIONS, connected
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker_process import BrokerProcess

NACK_DELAY_MS = 50
#: Both ways, in the tests of heart-beats.
HEART_BEAT_MS = 200
#: How many intervals a client may be silent: enough for a busy machine.
HEART_BEAT_MARGIN = 4

WITH_NACK = ("1.1", "1.2")

every_version = pytest.mark.parametrize("version", VERSIONS)
every_version_with_nack = pytest.mark.parametrize("version", WITH_NACK)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests here: each has a topic of its own."""
    with running_broker(
        tmp_path_factory.mktemp("broker"),
        redelivery_first_delay_ms=NACK_DELAY_MS,
        heart_beat_want_ms=HEART_BEAT_MS,
        heart_beat_margin=HEART_BEAT_MARGIN,
    ) as running:
        yield running


# Publish and subscribe ------------------------------------------------------------------------------------------------


@every_version
def test_a_subscriber_gets_what_is_published_in_order(broker: BrokerProcess, topic: str, version: str) -> None:
    with connected(broker.address, version) as subscriber, connected(broker.address, version) as publisher:
        subscriber.subscribe(topic, id="my subscription")

        publisher.publish(topic, "one", "two", "three", colour="blue")

        messages = subscriber.inbox.wait_messages(3)
        assert [message.body for message in messages] == [b"one", b"two", b"three"]
        assert len({message.headers["message-id"] for message in messages}) == 3
        for message in messages:
            assert message.headers["destination"] == topic
            assert message.headers["subscription"] == "my subscription"
            assert message.headers["colour"] == "blue"
            assert message.headers["redelivered"] == "false"


@every_version
def test_what_was_published_before_the_subscription_does_not_come(
    broker: BrokerProcess, topic: str, version: str
) -> None:
    with connected(broker.address, version) as client:
        client.publish(topic, "too early")
        client.subscribe(topic)

        client.publish(topic, "in time")

        client.inbox.wait_messages(1)
        assert client.inbox.bodies == [b"in time"]


@every_version
def test_nothing_comes_after_an_unsubscription(broker: BrokerProcess, topic: str, version: str) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic, id="first")
        client.subscribe(topic, id="second")
        client.stomp.unsubscribe(id="first")

        client.publish(topic, "one", "two")

        messages = client.inbox.wait_messages(2)
        assert [message.headers["subscription"] for message in messages] == ["second", "second"]


def test_a_subscription_without_an_id_is_known_by_its_destination_in_1_0(broker: BrokerProcess, topic: str) -> None:
    with connected(broker.address, "1.0") as client:
        client.stomp.subscribe(topic)
        client.publish(topic, "while subscribed")
        assert "subscription" not in client.inbox.wait_messages(1)[0].headers

        client.stomp.unsubscribe(destination=topic)
        client.publish(topic, "after that")
        client.wait_applied()

        assert client.inbox.bodies == [b"while subscribed"]


@every_version
def test_overlapping_subscriptions_each_get_the_message(broker: BrokerProcess, topic: str, version: str) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(f"{topic}.stocks.nasdaq", id="exact")
        client.subscribe(f"{topic}.stocks.nasdaq", id="exact again")
        client.subscribe(f"{topic}.stocks.*", id="wild")

        client.publish(f"{topic}.stocks.nasdaq", "100")

        messages = client.inbox.wait_messages(3)
        assert {message.headers["subscription"] for message in messages} == {"exact", "exact again", "wild"}
        assert len({message.headers["message-id"] for message in messages}) == 1, "it is one message"


@every_version
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("stocks.*", {"stocks.nasdaq", "stocks.dax"}),
        ("*.dax", {"stocks.dax", "bonds.dax"}),
        ("stocks.>", {"stocks", "stocks.nasdaq", "stocks.dax", "stocks.dax.sap"}),
        ("stocks.#", {"stocks", "stocks.nasdaq", "stocks.dax", "stocks.dax.sap"}),
        ("**.sap", {"stocks.dax.sap"}),
    ],
)
def test_wildcards_choose_topics(
    broker: BrokerProcess, topic: str, version: str, pattern: str, expected: set[str]
) -> None:
    names = ["stocks", "stocks.nasdaq", "stocks.dax", "stocks.dax.sap", "bonds.dax"]
    with connected(broker.address, version) as client:
        client.subscribe(f"{topic}.{pattern}", id="wild")
        client.subscribe(f"{topic}.end", id="end")

        for name in names:
            client.publish(f"{topic}.{name}", name)

        messages = client.inbox.wait_messages(len(expected))
        assert {message.headers["destination"] for message in messages} == {f"{topic}.{name}" for name in expected}
        assert {message.body.decode() for message in messages} == expected
        client.wait_applied()
        assert len(client.inbox.messages) == len(expected)


# Acknowledgement ------------------------------------------------------------------------------------------------------


@every_version
def test_auto_needs_no_acknowledgement(broker: BrokerProcess, topic: str, version: str) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic, prefetch_count="1")

        client.publish(topic, *(str(number) for number in range(100)))

        client.inbox.wait_messages(100)
        assert client.inbox.bodies == [b"%d" % number for number in range(100)]


@every_version
def test_client_acknowledges_everything_up_to_the_message_named(
    broker: BrokerProcess, topic: str, version: str
) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic, ack="client", prefetch_count="3")
        client.publish(topic, *(str(number) for number in range(6)))
        messages = client.inbox.wait_messages(3)
        client.wait_applied()
        assert client.inbox.bodies == [b"0", b"1", b"2"], "its credit is used up"

        client.acknowledge(messages[2])

        client.inbox.wait_messages(6)
        assert client.inbox.bodies == [b"%d" % number for number in range(6)]


@every_version
def test_client_individual_acknowledges_the_message_named_alone(
    broker: BrokerProcess, topic: str, version: str
) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic, ack="client-individual", prefetch_count="3")
        client.publish(topic, *(str(number) for number in range(6)))
        messages = client.inbox.wait_messages(3)

        client.acknowledge(messages[2])

        client.inbox.wait_messages(4)
        client.wait_applied()
        assert client.inbox.bodies == [b"0", b"1", b"2", b"3"], "0 and 1 still use credit"


@every_version_with_nack
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_refused_message_comes_again(broker: BrokerProcess, topic: str, version: str, ack: str) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic, ack=ack)
        client.publish(topic, "work")
        (first,) = client.inbox.wait_messages(1)
        assert (first.headers["redelivered"], first.headers["delivery-count"]) == ("false", "1")

        client.refuse(first)

        _, second = client.inbox.wait_messages(2)
        assert second.body == b"work"
        assert second.headers["message-id"] == first.headers["message-id"]
        assert (second.headers["redelivered"], second.headers["delivery-count"]) == ("true", "2")

        client.acknowledge(second, receipt="settled")
        client.inbox.wait_receipt("settled")


@every_version_with_nack
def test_a_refusal_in_client_mode_is_cumulative_too(broker: BrokerProcess, topic: str, version: str) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic, ack="client")
        client.publish(topic, "one", "two", "three")
        messages = client.inbox.wait_messages(3)

        client.refuse(messages[1])

        again = client.inbox.wait_messages(5)[3:]
        assert {message.body for message in again} == {b"one", b"two"}
        assert {message.headers["delivery-count"] for message in again} == {"2"}


def test_1_0_has_no_nack(broker: BrokerProcess, topic: str) -> None:
    with connected(broker.address, "1.0") as client:
        client.subscribe(topic, ack="client")
        client.publish(topic, "work")
        (message,) = client.inbox.wait_messages(1)

        client.stomp.send_frame("NACK", {"message-id": message.headers["message-id"], "receipt": "refused"})

        error = client.inbox.wait_error()
        assert error.headers["receipt-id"] == "refused"
        client.inbox.wait_disconnected()


# Transactions ---------------------------------------------------------------------------------------------------------


@every_version
def test_a_transaction_is_visible_when_it_is_committed(broker: BrokerProcess, topic: str, version: str) -> None:
    with connected(broker.address, version) as subscriber, connected(broker.address, version) as publisher:
        subscriber.subscribe(topic)
        publisher.stomp.begin(transaction="t")
        publisher.publish(topic, "one", "two", transaction="t")
        publisher.publish(topic, "outside")
        assert [message.body for message in subscriber.inbox.wait_messages(1)] == [b"outside"]

        publisher.stomp.commit(transaction="t")

        subscriber.inbox.wait_messages(3)
        assert subscriber.inbox.bodies == [b"outside", b"one", b"two"]
        assert "transaction" not in subscriber.inbox.messages[1].headers


@every_version
def test_a_transaction_that_is_aborted_never_was(broker: BrokerProcess, topic: str, version: str) -> None:
    with connected(broker.address, version) as subscriber, connected(broker.address, version) as publisher:
        subscriber.subscribe(topic)
        publisher.stomp.begin(transaction="t")
        publisher.publish(topic, "never", transaction="t")

        publisher.stomp.abort(transaction="t")

        publisher.publish(topic, "after that")
        subscriber.inbox.wait_messages(1)
        assert subscriber.inbox.bodies == [b"after that"]


@every_version
def test_an_acknowledgement_counts_only_if_its_transaction_is_committed(
    broker: BrokerProcess, topic: str, version: str
) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic, ack="client-individual")
        client.publish(topic, "one", "two")
        one, two = client.inbox.wait_messages(2)
        client.stomp.begin(transaction="aborted")
        client.acknowledge(one, transaction="aborted")
        client.stomp.abort(transaction="aborted")
        client.stomp.begin(transaction="committed")
        client.acknowledge(two, transaction="committed")
        client.stomp.commit(transaction="committed", receipt="done")
        client.inbox.wait_receipt("done")

        (subscription,) = [each for each in broker.statistics()["subscriptions"] if each["destination"] == topic]

        assert (subscription["acked"], subscription["in_flight"]) == (1, 1)
        assert client.inbox.is_undisturbed


# Heart-beats ----------------------------------------------------------------------------------------------------------


@every_version_with_nack
def test_heart_beats_keep_an_idle_connection(broker: BrokerProcess, topic: str, version: str) -> None:
    # Far apart: stomp.py does not hear another one, for good, if it reads two at once because the machine is busy.
    with connected(broker.address, version, heart_beats=(1000, 1000)) as client:
        client.subscribe(topic)

        client.inbox.wait_heart_beats(4)

        client.publish(topic, "still here")
        client.inbox.wait_messages(1)
        assert client.inbox.is_undisturbed


def test_a_client_whose_heart_beats_are_missing_is_disconnected(broker: BrokerProcess) -> None:
    with RawClient.connected(broker.address, heart_beat=f"{HEART_BEAT_MS},0") as client:
        client.expect_error("heart-beat missing")


def test_half_a_frame_is_a_sign_of_life(broker: BrokerProcess, topic: str) -> None:
    with RawClient.connected(broker.address, heart_beat=f"{HEART_BEAT_MS},{HEART_BEAT_MS}") as client:
        client.subscribe(topic)
        client.send_raw(b"SEND\ndestination:" + topic.encode() + b"\n\n")
        began_at = time.monotonic()
        body = b""
        while time.monotonic() - began_at < 2 * HEART_BEAT_MARGIN * HEART_BEAT_MS / 1000:
            client.wait_heart_beats(1)  # these come at least once an interval
            client.send_raw(b"x")
            body += b"x"

        client.send_raw(b"\0")

        assert client.next_message().body == body


def test_no_heart_beats_come_in_1_0(broker: BrokerProcess, topic: str) -> None:
    with RawClient.connected(broker.address, heart_beat=f"0,{HEART_BEAT_MS}") as clock:
        with RawClient(broker.address) as client:
            client.send("CONNECT", heart_beat=f"{HEART_BEAT_MS},{HEART_BEAT_MS}")
            assert client.next_frame().command == "CONNECTED"

            clock.wait_heart_beats(6)

            client.send_raw(b"SEND\ndestination:/topic/x\nreceipt:r\n\n\0")
            client.expect_receipt("r")
            assert client.heart_beats == 0


# Bodies and headers ---------------------------------------------------------------------------------------------------


@every_version
@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"a\0b\0\0c", bytes(range(256)) * 4, b"\n\n\0\nMESSAGE\n\n\0", "Zwölf Boxkämpfer 🥊".encode()],
    ids=["empty", "one NUL", "NULs", "every byte", "looks like frames", "UTF-8"],
)
def test_a_body_arrives_as_it_was_sent(broker: BrokerProcess, topic: str, version: str, body: bytes) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic)

        client.publish(topic, body, content_type="application/octet-stream")
        client.publish(topic, "next")

        first, second = client.inbox.wait_messages(2)
        assert first.body == body
        assert first.headers["content-length"] == str(len(body))
        assert first.headers["content-type"] == "application/octet-stream"
        assert second.body == b"next", "the frame behind it is found"


@every_version
def test_a_large_body_arrives_as_it_was_sent(broker: BrokerProcess, topic: str, version: str) -> None:
    body = bytes(range(256)) * 20_000
    with connected(broker.address, version) as client:
        client.subscribe(topic)

        client.publish(topic, body)

        assert client.inbox.wait_messages(1)[0].body == body


#: What each version can say in a header's value.
SPECIAL_VALUES = {
    "1.0": ["with:colon:s", "Zwölf 🥊"],
    "1.1": ["with:colon:s", "back\\slash", "line\nfeed", "\\n is no line feed", " blanks ", "Zwölf 🥊", ""],
    "1.2": [
        "with:colon:s",
        "back\\slash",
        "line\nfeed",
        "\\n is no line feed",
        "carriage\rreturn",
        "\\r\\c\\\\",
        " blanks ",
        "Zwölf 🥊",
        "",
    ],
}


@pytest.mark.parametrize(
    ("version", "text"), [(version, text) for version, texts in SPECIAL_VALUES.items() for text in texts]
)
def test_a_header_arrives_as_it_was_sent(broker: BrokerProcess, topic: str, version: str, text: str) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic)

        client.publish(topic, "body", special=text, plain="plain")

        (message,) = client.inbox.wait_messages(1)
        assert message.headers["special"] == text
        assert message.headers["plain"] == "plain"


@every_version
def test_ids_with_special_characters_come_back_as_they_were_sent(
    broker: BrokerProcess, topic: str, version: str
) -> None:
    text = SPECIAL_VALUES[version][0] if version == "1.0" else 'a:b\\c\nd "ü"'
    with connected(broker.address, version) as client:
        client.stomp.subscribe(topic, text, "client", headers={"receipt": f"subscribed {text}"})
        client.inbox.wait_receipt(f"subscribed {text}")

        client.stomp.send(topic, "body", headers={"receipt": f"sent {text}"})

        client.inbox.wait_receipt(f"sent {text}")
        (message,) = client.inbox.wait_messages(1)
        assert message.headers["subscription"] == text
        client.acknowledge(message, receipt=f"acknowledged {text}")
        client.inbox.wait_receipt(f"acknowledged {text}")


#: A value that both versions can say arrives unchanged. 1.0 cannot say a line feed: it gets the two characters, which
#: stomp.py unescapes in every version.
@pytest.mark.parametrize("receiving", VERSIONS)
@pytest.mark.parametrize("sending", VERSIONS)
def test_clients_of_two_versions_understand_each_other(
    broker: BrokerProcess, topic: str, sending: str, receiving: str
) -> None:
    values = [text for text in SPECIAL_VALUES[sending] if "\\" not in text or "1.0" not in (sending, receiving)]
    if receiving == "1.0":
        values = [text.strip() for text in values]
    with connected(broker.address, receiving) as subscriber, connected(broker.address, sending) as publisher:
        subscriber.subscribe(topic)

        for text in values:
            publisher.publish(topic, text, special=text)

        messages = subscriber.inbox.wait_messages(len(values))
        assert [message.headers["special"] for message in messages] == values
        assert [message.body.decode() for message in messages] == values


# Receipts -------------------------------------------------------------------------------------------------------------


@every_version
def test_every_kind_of_frame_gets_its_receipt(broker: BrokerProcess, topic: str, version: str) -> None:
    with connected(broker.address, version) as client:
        client.stomp.subscribe(topic, "0", "client-individual", headers={"receipt": "SUBSCRIBE"})
        client.stomp.send(topic, "one", headers={"receipt": "SEND"})
        client.stomp.send(topic, "two")
        one, two = client.inbox.wait_messages(2)
        client.acknowledge(one, receipt="ACK")
        expected = ["SUBSCRIBE", "SEND", "ACK"]
        if version in WITH_NACK:
            client.refuse(two, receipt="NACK")
            expected += ["NACK"]
        for end in (client.stomp.commit, client.stomp.abort):
            client.stomp.begin(transaction="t", receipt=f"BEGIN before {end.__name__}")
            client.stomp.send(topic, "three", headers={"receipt": f"SEND before {end.__name__}", "transaction": "t"})
            end(transaction="t", receipt=end.__name__)
            expected += [f"BEGIN before {end.__name__}", f"SEND before {end.__name__}", end.__name__]
        client.stomp.unsubscribe(id="0", receipt="UNSUBSCRIBE")
        expected += ["UNSUBSCRIBE"]
        client.inbox.wait_receipt("UNSUBSCRIBE")

        client.stomp.disconnect(receipt="DISCONNECT")

        client.inbox.wait_receipt("DISCONNECT")
        client.inbox.wait_disconnected()
        assert client.inbox.receipts == [*expected, "DISCONNECT"], "each once, in the order of the frames"


@every_version
def test_a_receipt_for_disconnect_comes_behind_everything_that_was_owed(
    broker: BrokerProcess, topic: str, version: str
) -> None:
    with connected(broker.address, version) as publisher, connected(broker.address, version) as subscriber:
        subscriber.subscribe(topic)
        for number in range(500):
            publisher.stomp.send(topic, "x" * 100, headers={"receipt": str(number)})

        publisher.stomp.disconnect(receipt="bye")

        assert publisher.inbox.receipts == [*map(str, range(500)), "bye"]
        subscriber.inbox.wait_messages(500)


@every_version
def test_a_mistake_is_answered_with_an_error_that_names_the_receipt(
    broker: BrokerProcess, topic: str, version: str
) -> None:
    with connected(broker.address, version) as client:
        client.stomp.send("/topic/*", "to nobody in particular", headers={"receipt": "sent"})

        error = client.inbox.wait_error()

        assert error.headers["message"].startswith("invalid destination - ")
        assert error.headers["receipt-id"] == "sent"
        assert error.headers["content-type"] == "text/plain"
        assert b"is a pattern" in error.body
        client.inbox.wait_disconnected()
        assert client.inbox.receipts == []


@every_version
@pytest.mark.parametrize(
    ("destination", "headers", "said"),
    [
        ("queue/a", {}, "use /queue/NAME"),
        ("/topics/a", {}, "use /topic/NAME"),
        ("/topic/a", {"selector": "price > 10"}, "unsupported header 'selector'"),
        ("/topic/a", {"browser": True}, "browser:true is for queues"),
        ("/queue/a", {"browser": True, "group": "g"}, "browser:true contradicts 'group'"),
        ("/topic/a", {"no-local": "perhaps"}, "true or false"),
    ],
)
def test_a_subscription_that_would_not_be_what_was_meant_is_an_error_whose_message_says_so(
    broker: BrokerProcess, version: str, destination: str, headers: dict[str, Any], said: str
) -> None:
    with connected(broker.address, version) as client:
        client.stomp.subscribe(destination, id="0", headers=headers)

        assert said in client.inbox.wait_error().headers["message"]


@every_version
def test_a_browser_is_shown_a_queue_and_takes_nothing(broker: BrokerProcess, topic: str, version: str) -> None:
    queue = f"/queue/{topic.removeprefix('/topic/')}"
    with connected(broker.address, version) as client:
        for number in range(1200):
            client.stomp.send(queue, str(number))

        for count, name in enumerate(("one", "two"), 1):
            client.stomp.subscribe(queue, id=name, headers={"browser": True})
            *messages, end = client.inbox.wait_messages(1201 * count)[-1201:]

            assert [message.body for message in messages] == [b"%d" % number for number in range(1200)]
            assert (end.headers["browser"], end.headers["subscription"], end.body) == ("end", name, b"")
            client.stomp.unsubscribe(id=name)


@every_version
def test_pythons_true_and_false_are_understood(broker: BrokerProcess, topic: str, version: str) -> None:
    with connected(broker.address, version) as client:
        client.subscribe(topic, no_local="False", exclusive="False")

        client.stomp.send(topic, "x", headers={"persistent": False})

        (message,) = client.inbox.wait_messages(1)
        assert message.headers["persistent"] == "False"
