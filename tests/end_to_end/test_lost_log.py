"""SQLite goes on writing to a log that somebody has deleted: what it writes there ends with the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.end_to_end.raw_client import RawClient, send_frame, sending
from tests.support.broker_process import running_broker, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

MESSAGES: Final = 20_000
#: Receipts that the publisher has when the log is deleted.
BEFORE: Final = 500
#: Sent by another client after that: the broker may have written all of the above by then.
LAST: Final = b"last"


def durable(broker: BrokerProcess) -> RawClient:
    client = RawClient.connected(broker.address, client_id="durable")
    client.subscribe("/topic/a", ack="client-individual", durable_subscription_name="all of it")
    return client


def test_nothing_is_confirmed_after_the_log_was_deleted_and_all_that_was_is_there_after_a_kill(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        durable(broker).close()
        with RawClient.connected(broker.address) as publisher, RawClient.connected(broker.address) as other:
            frames = b"".join(send_frame("/topic/a", b"%d" % number, receipt=str(number)) for number in range(MESSAGES))
            with sending(publisher, frames):
                for number in range(BEFORE):
                    publisher.expect_receipt(str(number))
                (broker.data / "stompbroker.db-wal").unlink()
                other.socket.sendall(send_frame("/topic/a", LAST, receipt="last"))
                wait_until(lambda: broker.statistics()["store"]["state"] == "failing", "the store fails")
                assert "write-ahead log" in broker.statistics()["store"]["reason"]

                broker.kill()
                confirmed = BEFORE + len(receipts_up_to_the_end(publisher))
                assert receipts_up_to_the_end(other) == []

        broker.restart()

        with durable(broker) as subscriber:
            number = 0
            while number < confirmed:
                message = subscriber.next_message()
                subscriber.send("ACK", id=message.headers["ack"])
                if message.body != LAST:
                    assert int(message.body) == number
                    number += 1


def receipts_up_to_the_end(publisher: RawClient) -> list[str]:
    """Of a broker that is gone."""
    receipts: list[str] = []
    try:
        while True:
            receipts.append(publisher.next_frame().headers["receipt-id"])
    except (AssertionError, ConnectionError) as ended:
        if isinstance(ended, AssertionError) and "closed" not in str(ended):
            raise
    return receipts
