"""What the ledger, the lake and the report say is what really happened, through kills.

Law: a real process, killed with SIGKILL, real clients, the real command for the report. The test counts what it does
itself, and everything it finds afterwards has to be exactly that.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import trio

from soak.ledger_run import SETTINGS, LedgerOutcome, run_ledger
from stompbroker.cli.control_client import connect
from stompbroker_report.generate import generate_lake
from tests.end_to_end.raw_client import RawClient, frame, send_frame
from tests.support import quick_spark
from tests.support.broker_process import running_broker
from tests.support.patience import SPARK_TIMEOUT_S
from tests.support.prepared_process import PYTHON, clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from stompbroker.stomp import Frame
    from tests.support.broker_process import BrokerProcess

TOPIC: Final = "/topic/orders"
PUBLISHED: Final = 40
KILLS: Final = 6


def subscriber(broker: BrokerProcess, client_id: str, *, ack: str = "client-individual") -> RawClient:
    client = RawClient.connected(broker.address, client_id=client_id)
    client.subscribe(TOPIC, durable_subscription_name="orders", ack=ack)
    return client


def publish(broker: BrokerProcess, bodies: list[bytes], **headers: str) -> None:
    with RawClient.connected(broker.address) as publisher:
        publisher.send_raw(b"".join(send_frame(TOPIC, body, **headers) for body in bodies[:-1]))
        publisher.send_raw(send_frame(TOPIC, bodies[-1], receipt="published", **headers))
        publisher.expect_receipt("published")


def answer(client: RawClient, command: str, messages: list[Frame], **headers: Any) -> list[Frame]:
    """And wait until it is on disk; returns the messages that came meanwhile."""
    client.send_raw(b"".join(frame(command, id=message.headers["ack"], **headers) for message in messages[:-1]))
    client.send_raw(frame(command, id=messages[-1].headers["ack"], receipt="kept", **headers))
    came = []
    while (received := client.next_frame()).command == "MESSAGE":
        came.append(received)
    assert (received.command, received.headers) == ("RECEIPT", {"receipt-id": "kept"})
    return came


def next_of(client: RawClient, count: int) -> list[Frame]:
    return [client.next_message() for _ in range(count)]


def ask(broker: BrokerProcess, method: str, **arguments: Any) -> Any:
    async def call() -> Any:
        async with connect(broker.data) as control:
            return await control.call(method, **arguments)

    return trio.run(call)


def test_a_report_says_exactly_what_happened(tmp_path: Path) -> None:
    expected: Counter[tuple[str, str]] = Counter()
    began_on = datetime.now(UTC).date()
    day_before = began_on - timedelta(days=1)
    generate_lake(tmp_path / "data" / "lake", last_date=day_before, days=1, deliveries=2_000)
    with running_broker(tmp_path, redelivery_first_delay_ms=0) as broker:
        for client_id in ("billing", "leaver"):
            subscriber(broker, client_id).close()
        publish(broker, [b"stale %d" % number for number in range(3)], ttl="1")
        with subscriber(broker, "audit", ack="auto") as audit:
            publish(broker, [b"order %d" % number for number in range(PUBLISHED)])
            next_of(audit, PUBLISHED)
        expected["audit/orders", "sent"] = PUBLISHED

        with subscriber(broker, "billing") as billing:
            messages = next_of(billing, PUBLISHED)
            answer(billing, "ACK", messages[:20])
            answer(billing, "NACK", messages[20:24], requeue="false", reason="no such customer")
            again = answer(billing, "NACK", messages[24:30], reason="try again")
            again += next_of(billing, 6 - len(again))
            assert {message.headers["delivery-count"] for message in again} == {"2"}
            answer(billing, "ACK", again)
            broker.kill()  # ten are unanswered

        broker.restart()
        with subscriber(broker, "billing") as billing:
            rest = next_of(billing, 10)
            assert {message.headers["redelivered"] for message in rest} == {"true"}
            answer(billing, "ACK", rest)
        expected["billing/orders", "acked"] = 20 + 6 + 10
        expected["billing/orders", "dead"] = 4
        expected["billing/orders", "expired"] = 3

        with subscriber(broker, "leaver") as leaver:
            answer(leaver, "ACK", next_of(leaver, 5))
        (found,) = ask(broker, "subscriptions", q="leaver/orders")["subscriptions"]
        ask(broker, "remove_subscription", id=found["id"])
        expected["leaver/orders", "acked"] = 5
        expected["leaver/orders", "expired"] = 3
        expected["leaver/orders", "unsubscribed"] = PUBLISHED - 5

        # Stopped, so the report itself has to bring the last records to the lake.
        broker.stop()
        done = report(tmp_path, broker, day_before)

    assert done.returncode == 0, done.stderr
    reports = {date.fromisoformat(file.parent.name[3:]): file for file in tmp_path.glob("out/reports/dt=*/report.json")}
    contents = {day: json.loads(file.read_text()) for day, file in sorted(reports.items())}
    of_broker = [content for day, content in contents.items() if day >= began_on]
    assert outcomes_in(of_broker) == expected
    billing_rows = [
        row["figures"]
        for content in of_broker
        for row in content["subscriptions"]["rows"]
        if row["subscription"] == "billing/orders"
    ]
    assert sum(figures["nacks"] for figures in billing_rows) == 4 + 6
    assert sum(figures["redelivered"] for figures in billing_rows) == 6
    check_pages(tmp_path / "out", done, contents)


def check_pages(out: Path, done: subprocess.CompletedProcess[str], contents: dict[date, Any]) -> None:
    """Each date has a page, and all of them a list; the last date is not yet complete."""
    *complete, last = contents
    assert len(contents) > 1
    assert [line for line in done.stdout.splitlines() if line.endswith(".html")] == [
        *(f"  out/reports/dt={day}/report.html" for day in contents),
        "All of them: out/reports/index.html",
    ]
    notes = done.stderr.splitlines()
    assert notes[0].startswith("… no broker is running: exporting ")
    assert notes[1] == "… starting Spark"
    assert f"{last} is not complete: the lake has everything up to {last} " in notes[-1]
    deliveries = f"{contents[last]['day']['deliveries']:,}"
    assert f"{last}: {deliveries} deliveries, " in done.stdout
    page = (out / f"reports/dt={last}/report.html").read_text()
    assert f">{deliveries}<" in page
    assert f"This date is not complete: only what was settled before {last} " in page
    for day in complete:
        assert "This date is complete" in (out / f"reports/dt={day}/report.html").read_text()
    assert (out / "reports/index.html").read_text().count("report.html") == len(contents)
    assert {entry.name for entry in (out / "marts/topics").iterdir()} >= {f"dt={day}" for day in contents}


def report(tmp_path: Path, broker: BrokerProcess, first: date) -> subprocess.CompletedProcess[str]:
    """Run the command for all dates since `first`."""
    command = [*PYTHON, "-m", "stompbroker", "report", "--data", str(broker.data), "--out", "out"]
    command += ["--no-class-cache"]  # it is made once in a while, and takes longer than this report
    command += ["--from", str(first), "--to", str(datetime.now(UTC).date()), "--master", "local[2]", "--memory", "800m"]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        # Wide, so that no line is wrapped.
        env=clean_environment() | quick_spark.ENVIRONMENT | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
        timeout=SPARK_TIMEOUT_S,
        check=False,
    )


def outcomes_in(contents: Iterable[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Deliveries by subscription and outcome, without transient subscriptions."""
    counts: Counter[tuple[str, str]] = Counter()
    for content in contents:
        for row in content["subscriptions"]["rows"]:
            if not row["subscription"].startswith("connection"):
                for outcome, count in row["figures"]["outcomes"].items():
                    counts[row["subscription"], outcome] += count
    return +counts


def test_each_settled_delivery_is_in_lake_and_outbox_once_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    """Killed while it stores acknowledgements and while it exports, at moments that differ from round to round."""
    with running_broker(tmp_path, **SETTINGS) as broker:
        outcome = run_ledger(broker, kills=KILLS, seed=4711)

    assert outcome.complaints() == []
    assert outcome.in_lake
    assert len(outcome.confirmed) > 100


def test_records_that_are_missing_doubled_or_invented_are_found() -> None:
    outcome = LedgerOutcome(
        kills=1,
        confirmed=frozenset({"a", "b"}),
        answered=frozenset({"a", "b", "c"}),
        in_lake=("a", "c", "d"),
        in_database=("a",),
    )

    assert [complaint.partition(":")[0] for complaint in outcome.complaints()] == ["DOUBLED", "MISSING", "INVENTED"]
