"""The broker of the end-to-end tests starts, ends and comes back as those tests rely on."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.broker_process import BrokerProcess, running_broker, wait_until

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_reachable_within_the_block_and_gone_behind_it(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        socket.create_connection(broker.address).close()
        pid = broker.process.pid

    assert broker.process.returncode == 0
    assert not psutil.pid_exists(pid)


def test_settings_come_from_both_flags_and_a_file(tmp_path: Path) -> None:
    with running_broker(tmp_path, config='log_level = "debug"', memory_limit="64 MiB") as broker:
        assert broker.statistics()["memory"]["limit_bytes"] == 64 * 1024**2


def test_a_killed_broker_comes_back_on_the_same_data(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.kill()
        assert broker.process.returncode == -signal.SIGKILL

        broker.restart()

        assert broker.is_running


def test_a_failing_block_leaves_no_process_and_shows_the_log(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as failure:
        with running_broker(tmp_path) as broker:
            raise RuntimeError("the test failed")

    assert not broker.is_running
    assert "broker is starting" in failure.value.__notes__[0]


def test_a_broker_that_does_not_start_is_a_failure_that_tells_what_it_said(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, ["--set", "no_such_key=1"])
    try:
        with pytest.raises(AssertionError, match="no_such_key"):
            broker.start()
    finally:
        broker.clean_up()


def test_waiting_in_vain_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.broker_process.HARD_TIMEOUT_S", 0.0)

    with pytest.raises(AssertionError, match="a blue moon"):
        wait_until(lambda: False, "a blue moon")
