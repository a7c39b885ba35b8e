"""A broker that is killed in the middle of a back-off goes on with it: attempts, due time and dead letters are kept.

Law: a real process, killed with SIGKILL, on both engines. Time is real here, since two processes share it; nothing is
waited for but what the broker sends, and however long a restart takes, the test means the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from soak.database import migrate
from stompbroker.cli.control_client import connect
from tests.end_to_end.raw_client import RawClient, frame, send_frame
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.stomp import Frame
    from tests.support.broker_process import BrokerProcess


#: About as long as a restart takes; and longer than any test.
SHORT_MS: Final = 2_000
LONG_MS: Final = 3_600_000
ATTEMPTS: Final = 3
DYING: Final = [b"dying %d" % number for number in range(20)]
TOPIC: Final = "/topic/orders"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The setting that chooses the engine."""
    if request.param == "sqlite":
        return {}
    url: str = request.getfixturevalue("postgres_url")
    migrate(url)
    return {"database": url}


def subscriber(broker: BrokerProcess) -> RawClient:
    client = RawClient.connected(broker.address, client_id="billing")
    headers = {"durable_subscription_name": "orders", "ack": "client-individual", "max_attempts": str(ATTEMPTS)}
    client.subscribe(TOPIC, **headers)
    return client


def nacks(messages: list[Frame], **headers: Any) -> bytes:
    return b"".join(frame("NACK", id=message.headers["ack"], **headers) for message in messages)


def next_of(client: RawClient, count: int) -> list[Frame]:
    return [client.next_message() for _ in range(count)]


def known_of(broker: BrokerProcess, message: Frame) -> dict[str, Any]:
    """What the broker knows of a message and its one subscription."""

    async def ask() -> Any:
        async with connect(broker.data) as control:
            return await control.call("trace", message_id=message.headers["message-id"])

    (found,) = trio.run(ask)["found"]
    (known,) = found["subscriptions"]
    return {name: value for name, value in known.items() if name not in ("connected", "members")}


def letters_up_to(broker: BrokerProcess, last: bytes) -> list[Frame]:
    """All dead letters, up to the one of that body."""
    with RawClient.connected(broker.address) as reader:
        reader.subscribe("/topic/DLQ.orders", **{"from": "earliest"})
        letters = [reader.next_message()]
        while letters[-1].body != last:
            letters.append(reader.next_message())
    return letters


def test_a_back_off_and_dead_letters_survive_a_kill(tmp_path: Path, database: dict[str, Any]) -> None:
    """Of three kinds of messages one waits for long, one for a moment, and the last attempt of many has just failed."""
    with running_broker(tmp_path, redelivery_first_delay_ms=0, **database) as broker:
        with subscriber(broker) as client:
            client.send_raw(b"".join(send_frame(TOPIC, body) for body in (b"long", b"short", *DYING)))
            messages = next_of(client, 2 + len(DYING))
            client.send_raw(nacks(messages))
            long, short, *dying = next_of(client, 2 + len(DYING))
            client.send_raw(nacks([long], delay=str(LONG_MS), reason="no paper", receipt="refused"))
            client.expect_receipt("refused")
            known = known_of(broker, long)
            client.send_raw(nacks(dying))
            dying = next_of(client, len(DYING))
            refused_at_s = time.time()
            client.send_raw(nacks([short], delay=str(SHORT_MS), reason="no ink") + nacks(dying[:-1], reason="dead"))
            client.send_raw(nacks(dying[-1:], reason="dead", receipt="refused"))
            client.expect_receipt("refused")
            broker.kill()

        broker.restart()
        assert (known["state"], known["attempts"], known["reason"]) == ("waiting", 2, "no paper")
        assert known_of(broker, long) == known
        with subscriber(broker) as client:
            again = client.next_message()
            assert again.body == b"short"
            assert time.time() >= refused_at_s + SHORT_MS / 1000
            assert (again.headers["delivery-count"], again.headers["redelivery-reason"]) == ("3", "no ink")
            client.send_raw(nacks([again], reason="no ink, still"))

            letters = letters_up_to(broker, b"short")
            assert [letter.body for letter in letters] == [*DYING, b"short"]
            assert {letter.headers["dead-letter-attempts"] for letter in letters} == {"3"}
            assert [letter.headers["dead-letter-reason"] for letter in letters] == ["dead"] * 20 + ["no ink, still"]
            assert {letter.headers["dead-letter-subscription"] for letter in letters} == {"billing/orders"}
            client.send("DISCONNECT", receipt="nothing came in between")
            client.expect_receipt("nothing came in between")
