"""The wheel is plain Python unless a compiled one is asked for, and a compiled module is what its source is.

Compiling everything takes minutes, so one package is compiled here; `make test COMPILED=1` tests all of it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]

pytest.importorskip("hatchling")

#: Prints where modules come from, and follows one message from its log to its settlement.
PROGRAM = """
from stompbroker.build import BUILD
from stompbroker.commitlog import Cursor, Log, cursor, log
from stompbroker.ids import FIRST_OFFSET
from stompbroker.message import Message, Origin

kept = Log(FIRST_OFFSET)
kept.append([Message(0, b"message-id:1\\n\\n\\0", Origin("me", is_plain=True), 1)])
place = Cursor(FIRST_OFFSET)
print(BUILD, cursor.__file__, log.__file__, kept.end_offset, place.ack_floor)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What a wheel is made of, in a directory of its own."""
    copy = tmp_path / "source"
    for name in ("analytics", "migrations", "stompbroker"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "hatch_build.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    return copy


def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wheel_that_nobody_wanted_compiled_is_for_every_machine(source: Path, tmp_path: Path) -> None:
    from hatchling.build import build_wheel

    with chdir(source):
        name = build_wheel(str(tmp_path))

    assert name.endswith("-py3-none-any.whl")
    files = ZipFile(tmp_path / name).namelist()
    assert "stompbroker/stomp/frame_reader.py" in files
    assert [file for file in files if Path(file).suffix in {".so", ".pyd", ".c"}] == []


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_compiled_modules_lie_in_the_temporary_directory_only_and_are_imported(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    before = sorted(source.rglob("*"))
    work = tmp_path / "work"
    patterns = ("stompbroker/commitlog/*.py", "stompbroker/message.py")

    libraries = hook().compiled(source, work, patterns=patterns, optimisation="0")

    assert sorted(source.rglob("*")) == before
    for library in libraries:
        target = source / library.relative_to(work / "built")
        shutil.copy(library, target)
    printed = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        capture_output=True,
        text=True,
        timeout=HARD_TIMEOUT_S,
    ).stdout
    assert printed.startswith("compiled ")
    assert printed.count(".so ") == 2
    assert printed.split()[-2:] == ["1", "0"]


def test_no_compiled_module_hides_anything_from_type_checkers() -> None:
    build = hook()
    found = {path.relative_to(ROOT) for pattern in build.COMPILED for path in ROOT.glob(pattern)} - build.LEFT_OUT

    assert found
    assert [str(path) for path in sorted(found) if hides_something(ast.parse((ROOT / path).read_text()))] == []


def hides_something(tree: ast.Module) -> bool:
    conditions = [
        each for each in ast.walk(tree) if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.dump(each.test)
    ]
    return any(each.orelse or not isinstance(each.test, ast.Name) for each in conditions)


def test_only_types_that_are_not_there_when_a_class_is_made_are_written_twice() -> None:
    text = """
if TYPE_CHECKING:
    from a import B, C

class D(NamedTuple):
    b: B
    c: C[int] = 3  # said
    d: int
    e: object
    f: list[B]

class E(NamedTuple):
    d: D
    g: F

class F:
    pass

x: B
"""

    changed = hook().without_import_time_types(text)

    assert changed == text.replace(": B\n    c", ": B | B\n    c").replace("C[int]", "C[int] | C[int]").replace(
        ": object", ": object | object"
    ).replace("g: F", "g: F | F")
