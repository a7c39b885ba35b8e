"""On a real standalone cluster the report is the same as on one machine, also when a worker is lost on the way.

It is a plain job for `spark-submit` here, which is to find its package by itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import stompbroker_report
from stompbroker_report.job import STEPS
from stompbroker_report.json_report import from_json
from stompbroker_report.spark_class import environment, program
from tests.analytics.made_records import DATE
from tests.analytics.sample_run import GENERATED_AT, QUIET, marts
from tests.analytics.spark_cluster import QUICK_JAVA, running_cluster
from tests.support import quick_spark

if TYPE_CHECKING:
    from tests.analytics.sample_run import SampleRun
    from tests.analytics.spark_cluster import Cluster

PACKAGE: Final = Path(stompbroker_report.__file__).parent

#: For `spark-submit`. The first three have both workers compute from the first task on, so that each has something to
#: lose; without a number of cores Spark would not know what to wait for.
SETTINGS: Final = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={(PACKAGE / 'log4j2.properties').as_uri()}",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    **quick_spark.SETTINGS,
}
#: Two tables are written at a time. With the third one of them is done, so all figures lie in the workers' memory, and
#: nearly everything else is still to come.
KILLED_AT: Final = "writing the table subscriptions"


def test_date_gives_the_same_again_alone_and_on_a_cluster_that_loses_a_worker(
    sample_run: SampleRun, tmp_path: Path
) -> None:
    out = shutil.copytree(sample_run.out, tmp_path / "out")
    stale = out / "marts" / "topics" / f"dt={DATE}" / "part-of-before.parquet"
    stale.touch()

    with running_cluster(tmp_path) as cluster:
        said = _submit_and_kill_a_worker(cluster, sample_run.lake, out)

    # It ran on, and knew that it had to.
    assert [line for line in said if line in STEPS] == list(STEPS)
    assert any("Lost executor" in line for line in said)
    assert not stale.exists()
    assert marts(out) == marts(sample_run.out)
    content = from_json((out / "reports" / f"dt={DATE}" / "report.json").read_text())
    assert replace(content, head=replace(content.head, generated_at=GENERATED_AT)) == sample_run.contents[0]
    assert (out / "reports" / f"dt={QUIET}" / "report.json").exists()


def _submit_and_kill_a_worker(cluster: Cluster, lake: Path, out: Path) -> list[str]:
    """What the job says, line by line."""
    options = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    command: list[str | Path] = [
        program().with_name("spark-submit"),
        "--master",
        cluster.address,
        *options,
        PACKAGE / "__main__.py",
    ]
    said: list[str] = []
    with subprocess.Popen(
        [*command, "--lake", lake, "--out", out, "--date", str(DATE)],
        env={**os.environ, **environment(), **QUICK_JAVA, "SPARK_LOCAL_IP": "127.0.0.1"},
        # Spark's launcher has the program say everything there.
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as job:
        assert job.stdout is not None
        try:
            for line in job.stdout:
                said.append(line.rstrip())
                if said[-1] == KILLED_AT:
                    # It stands still until the worker is lost, or it might be done before.
                    job.send_signal(signal.SIGSTOP)
                    cluster.wait_until("both compute", lambda state: state["coresused"] == len(cluster.workers))
                    cluster.kill_a_worker()
                    job.send_signal(signal.SIGCONT)
        except BaseException:
            job.kill()
            raise
    assert job.returncode == 0, "\n".join(said)
    return said
