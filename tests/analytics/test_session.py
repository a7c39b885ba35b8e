"""What the session settles for all steps."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

import pytest

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.session import spark_session

if TYPE_CHECKING:
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
