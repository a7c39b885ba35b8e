"""What the session settles for all steps."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import stompbroker_report
from stompbroker_report.__main__ import EXIT_CODES
from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.session import spark_session
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_missing_spark_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ReportError, match=r"pip install 'stompbroker\[analytics\]'") as raised:
        with spark_session():
            pass

    assert raised.value.cause is Cause.NO_SPARK


def test_dates_are_in_utc_and_losses_are_errors(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"


def test_local_session_listens_on_loopback_and_leaves_the_environment_alone(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in os.environ


def test_without_spark_the_plain_program_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; from stompbroker_report.__main__ import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", program, "--lake", str(tmp_path), "--out", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.path.dirname(*stompbroker_report.__path__)}

    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=HARD_TIMEOUT_S)

    assert done.returncode == EXIT_CODES[Cause.NO_SPARK], done.stderr
    assert done.stderr == (
        "The report is computed by Spark, which is not installed: pip install 'stompbroker[analytics]'.\n"
    )
