"""One Spark for all tests of a process, and rows to give it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker_report.session import spark_session
from tests.support import quick_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.analytics.sample_run import SampleRun


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever takes Spark comes first: a parallel run gives the first tests to one process, which then has the only
    Java, and others take from its end when they have nothing left to do."""
    items.sort(key=lambda item: "spark" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session for small frames: compiled little, in one partition.

    Each process of a parallel run that takes a test with it has one of its own: that is a Java of 300 MB.
    """
    settings = {
        **quick_spark.SETTINGS,
        "spark.driver.extraJavaOptions": quick_spark.JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": "1",
    }
    with spark_session("local[2]", memory="512m", settings=settings) as session:
        yield session


@pytest.fixture(scope="session")
def sample_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SampleRun:
    """Must not be changed, except by doing the same again."""
    from tests.analytics.sample_run import SampleRun  # only now: who draws pages only needs no Spark

    return SampleRun(spark, tmp_path_factory.mktemp("sample_run"))
