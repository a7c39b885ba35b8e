"""Publishers are told of exactly what the ledger has, whenever the broker is killed.

Law: a real process, killed with SIGKILL while messages are acknowledged, refused and sent. What lies in the queue of
outcomes in the end is compared with the records in the database.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Final

from stompbroker.ledger import Kind
from stompbroker.stomp import tail_headers
from tests.end_to_end.raw_client import RawClient, frame, send_frame
from tests.ledger.records import unpack_one
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.stomp import Frame
    from tests.support.broker_process import BrokerProcess

KILLS: Final = 6
PUBLISHED: Final = 150
TOPIC, QUEUE, TOLD = "/topic/orders", "/queue/jobs", "/queue/told"
ASKS, LAST = b"asks", b"last"

#: Subscription, message id, and how it ended.
Endings = Counter[tuple[str, str, str]]


def billing(broker: BrokerProcess) -> RawClient:
    client = RawClient.connected(broker.address, client_id="billing")
    client.subscribe(TOPIC, durable_subscription_name="orders", ack="client-individual")
    return client


def worker(broker: BrokerProcess) -> RawClient:
    client = RawClient.connected(broker.address)
    client.subscribe(QUEUE, ack="client-individual", prefetch_count="1000")
    return client


def audit(broker: BrokerProcess) -> RawClient:
    client = RawClient.connected(broker.address, client_id="audit")
    client.subscribe(TOPIC, durable_subscription_name="orders", ack="auto")
    return client


def publish(broker: BrokerProcess, *bodies: bytes, then: bytes = b"and so on") -> None:
    """To the topic and the queue, until it is stored; some ask, others do not."""
    with RawClient.connected(broker.address) as publisher:
        for destination in (TOPIC, QUEUE):
            asking = {True: {"outcome-to": TOLD}, False: {}}
            frames = [send_frame(destination, body, **asking[body == ASKS]) for body in bodies]
            publisher.send_raw(b"".join(frames) + send_frame(destination, then, receipt="published"))
            publisher.expect_receipt("published")


def answers(random: Random, messages: list[Frame]) -> list[bytes]:
    """Nobody waits for them."""
    found = []
    for message in random.sample(messages, len(messages)):
        chosen = random.random()
        if chosen < 0.1:
            found.append(frame("NACK", id=message.headers["ack"], requeue="false", reason="no such customer"))
        elif chosen < 0.9:
            found.append(frame("ACK", id=message.headers["ack"]))
    return found


def wait_stored(client: RawClient) -> None:
    """Its answers."""
    client.send("DISCONNECT", receipt="stored")
    while (answer := client.next_frame()).command != "RECEIPT":
        assert answer.command == "MESSAGE", answer


def drain(client: RawClient, *, acknowledges: bool = True) -> None:
    """Everything up to the last message, which comes behind all that came before or comes again."""
    body = None
    while body != LAST:
        message = client.next_message()
        body = message.body
        if acknowledges:
            client.send_raw(frame("ACK", id=message.headers["ack"]))
    if acknowledges:
        client.send_raw(frame("BEGIN", transaction="t", receipt="drained") + frame("ABORT", transaction="t"))
        client.expect_receipt("drained")


def told_and_recorded(data: Path) -> tuple[Endings, Endings]:
    told, recorded, asking = Endings(), Endings(), set[str]()
    with closing(sqlite3.connect(data / "stompbroker.db")) as database:
        for (tail,) in database.execute("SELECT tail FROM messages"):
            headers = dict(tail_headers(tail))
            if "outcome-of" in headers:
                told[headers["outcome-subscription"], headers["outcome-of"], headers["outcome"]] += 1
                asking.add(headers["outcome-of"])
        for (payload,) in database.execute("SELECT payload FROM ledger_batches WHERE kind = 'deliveries'"):
            for row in unpack_one(Kind.DELIVERIES, payload).to_pylist():
                recorded[row["subscription"], row["message_id"], row["outcome"]] += 1
    return told, Endings({ending: count for ending, count in recorded.items() if ending[1] in asking})


def test_publishers_are_told_once_of_each_end_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    random = Random(4711)
    with running_broker(tmp_path, lake_export_interval_s=3600) as broker:
        for subscribe in (billing, audit):
            subscribe(broker).close()
        for _ in range(KILLS):
            publish(broker, *random.choices([ASKS, b"does not"], [2, 1], k=PUBLISHED))
            subscribers = [billing(broker), worker(broker), audit(broker)]
            given = []
            for subscriber in subscribers[:2]:
                messages = [subscriber.next_message() for _ in range(random.randint(20, PUBLISHED))]
                given.append(answers(random, messages))
            subscribers[2].next_message()
            for subscriber, frames in zip(subscribers[:2], given, strict=True):
                for position in range(0, len(frames), 10):
                    subscriber.send_raw(b"".join(frames[position : position + 10]))
            if random.random() < 0.5:
                wait_stored(subscribers[0])
            broker.kill()
            for subscriber in subscribers:
                subscriber.close()
            broker.restart()
        publish(broker, then=LAST)
        for subscribe in (billing, worker):
            with subscribe(broker) as client:
                drain(client)
        with audit(broker) as client:
            drain(client, acknowledges=False)
        broker.stop()

    told, recorded = told_and_recorded(broker.data)

    assert told == recorded
    assert set(told.values()) == {1}
    kinds = Counter((subscription, outcome) for subscription, _, outcome in told)
    # Each message that asks ended for each of its three parties.
    of_topic = kinds["billing/orders", "acked"] + kinds["billing/orders", "dead"]
    assert kinds["audit/orders", "sent"] == of_topic > KILLS * PUBLISHED / 2
    assert kinds[QUEUE, "acked"] + kinds[QUEUE, "dead"] > KILLS * PUBLISHED / 2
    assert kinds[QUEUE, "dead"] > 0
