"""The durable measurements, with their real processes, against a server that follows a script."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.broken import Broken
from benchmarks.disk_directory import disk_directory, is_in_memory
from benchmarks.measuring.backlog import raise_if_not_drained
from benchmarks.roles.returning_subscriber import ReturningReport
from benchmarks.rounds import run_round
from benchmarks.scenarios import Backlog, Latency, Scenario, StartUp, StoreSize, Throughput
from tests.benchmarks.scripted_server import Script, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.rounds import Round
    from benchmarks.target import Target

TO_TWO: Final = Throughput(
    name="to-two",
    title="to two",
    duration_s=0.02,
    subscribers=2,
    acknowledges=True,
    is_durable=True,
    receipt_window=50,
)
PACED: Final = Latency(name="paced", title="paced", messages_per_s=1000, duration_s=0.02, is_durable=True)
BACKLOG: Final = Backlog(name="backlog", title="backlog", messages=500, receipt_window=50)
STORE_SIZE: Final = StoreSize(name="size", title="size", many=300, duration_s=0.02, receipt_window=50)
START_UP: Final = StartUp(name="start", title="start", messages=500, receipt_window=50)
#: Seconds of silence that count as the end; only the tests that lose messages wait for it.
STALL_S: Final = 1.0


def measure(scenario: Scenario, server: ScriptedServer) -> Round:
    @contextmanager
    def open_target(settings: str) -> Iterator[Target]:
        yield server

    return run_round([scenario], 1, open_target=open_target, announce=lambda *_: None, stall_s=STALL_S)


@pytest.mark.parametrize("scenario", [TO_TWO, PACED, BACKLOG, STORE_SIZE, START_UP], ids=lambda one: one.name)
def test_a_server_that_keeps_what_its_durable_subscribers_miss_is_measured(scenario: Scenario) -> None:
    with ScriptedServer(Script()) as server:
        found = measure(scenario, server)

    assert found.breakages == ()
    [measurement] = found.measurements
    assert len({figure.name for figure in measurement.figures}) == len(measurement.figures)
    assert all(figure.value >= 0 for figure in measurement.figures)


@pytest.mark.parametrize("scenario", [BACKLOG, START_UP], ids=lambda one: one.name)
def test_a_backlog_that_was_not_kept_is_reported_as_broken(scenario: Scenario) -> None:
    with ScriptedServer(Script(is_forgetful=True)) as server:
        found = measure(scenario, server)

    assert found.measurements == ()
    assert found.breakages[0].text == "500 of 500 stored messages are lost"


def test_every_stored_message_is_acknowledged_once_and_in_order() -> None:
    with ScriptedServer(Script()) as server:
        measure(BACKLOG, server)

    assert server.acknowledged == [f"a-{number}" for number in range(500)]


def test_starts_are_timed_on_an_empty_store_after_a_kill_and_after_a_proper_end() -> None:
    with ScriptedServer(Script()) as server:
        measure(START_UP, server)

    assert server.restarts == [False, True, False]


def test_the_subscriber_that_was_measured_leaves_no_backlog_of_its_own() -> None:
    """Otherwise what is stored for others would come to it first in the next phase, and be too many."""
    with ScriptedServer(Script()) as server:
        found = measure(STORE_SIZE, server)

    names = [figure.name for figure in found.measurements[0].figures]
    assert names == [
        "few",
        "few: broker per delivery",
        "many elsewhere",
        "many elsewhere: broker per delivery",
        "many here too",
        "many here too: broker per delivery",
    ]


@pytest.mark.parametrize(
    ("received", "byte_count", "complaint"),
    [
        (499, 10**6, "1 of 500 stored messages are lost"),
        (501, 10**6, "1 deliveries too many beside 500"),
        (500, 1_999, "500 messages came in only 1,999 bytes"),
    ],
)
def test_a_returning_subscriber_is_owed_each_message_once(received: int, byte_count: int, complaint: str) -> None:
    report = ReturningReport(
        received=received, byte_count=byte_count, first_after_s=0.0, elapsed_s=1.0, processor_s=0.0
    )

    with pytest.raises(Broken, match=complaint):
        raise_if_not_drained(BACKLOG, report)


def test_a_directory_for_data_is_on_a_disk_and_gone_behind_the_block() -> None:
    with disk_directory("test-") as directory:
        assert not is_in_memory(directory)
        (directory / "file").touch()

    assert not directory.exists()


def test_the_innermost_mount_says_whether_a_directory_is_in_memory(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n/dev/sdb {tmp_path}/a\\040disk xfs rw 0 0\n"
    )

    assert is_in_memory(tmp_path / "below", mounts)
    assert not is_in_memory(tmp_path / "a disk" / "below", mounts)
    assert not is_in_memory(tmp_path.parent, mounts)
