"""Compiles the hot packages with mypyc into a wheel, if HATCH_BUILD_HOOK_ENABLE_CUSTOM=true asks for it.

Law: works on a copy of the sources in a temporary directory, and nothing of it comes into the source tree: there a
compiled module would be imported instead of the source beside it, and every later edit would be ignored. The wheel has
the sources, too, for tracebacks.
"""

from __future__ import annotations

import ast
import shutil
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What runs for each message or batch, and the small modules it stands on. Not `ids.py`: mypyc takes what is hidden
#: from type checkers for unreachable, and importing it would fail there.
COMPILED: Final = (
    "stompbroker/stomp/*.py",
    "stompbroker/commitlog/*.py",
    "stompbroker/delivery/*.py",
    "stompbroker/changes/*.py",
    "stompbroker/sessions/*.py",
    "stompbroker/journal/*.py",
    "stompbroker/counting.py",
    "stompbroker/memory_budget.py",
    "stompbroker/message.py",
    "stompbroker/signals.py",
)
LEFT_OUT: Final = {
    Path("stompbroker/delivery/consumer.py"),  # weak references to compiled objects are impossible
    Path("stompbroker/journal/owning.py"),  # so are asynchronous generators
}
#: Where they come into being, below the temporary directory.
BUILT: Final = "built"
#: Types of other packages need not be there: `make check` has looked at them, and to mypyc they are objects.
MYPY_OPTIONS: Final = ("--config-file=", "--ignore-missing-imports", "--cache-dir=cache")


class CompilingHook(BuildHookInterface[Any]):
    _directory: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._directory = TemporaryDirectory()
        built = Path(self._directory.name, BUILT)
        for library in compiled(Path(self.root), Path(self._directory.name)):
            build_data["force_include"][str(library)] = str(library.relative_to(built))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._directory is not None:
            self._directory.cleanup()


def compiled(root: Path, directory: Path, *, patterns: Iterable[str] = COMPILED, optimisation: str = "3") -> list[Path]:
    """The libraries of all modules that match, below `BUILT` in `directory` as they lie in the wheel."""
    # Only here: a build without compiling has neither.
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    shutil.copytree(root / "stompbroker", directory / "stompbroker", ignore=shutil.ignore_patterns("__pycache__"))
    sources = {path.relative_to(directory) for pattern in patterns for path in directory.glob(pattern)} - LEFT_OUT
    with chdir(directory):
        for path in sources:
            path.write_text(without_import_time_types(path.read_text()))
        extensions = mypycify(
            [*MYPY_OPTIONS, *sorted(map(str, sources))],
            group_name="stompbroker",
            opt_level=optimisation,
            debug_level="0",
        )
        command = build_ext(Distribution({"ext_modules": extensions}))
        command.build_lib, command.build_temp = BUILT, "build"
        command.ensure_finalized()
        command.run()
        return [Path(name).absolute() for name in command.get_outputs()]


def without_import_time_types(source: str) -> str:
    """The same, but for the types of fields that are imported for type checkers only, or made further down: `T` becomes
    `T | T`.

    To Python such an annotation is a string. A compiled class looks it up when its module is imported, when the name is
    not there or, worse, its class not made yet; but it leaves unions alone, and this one is the same type.
    """
    tree = ast.parse(source)
    names = {"object", *_imported_for_types(tree)}
    made_at = {each.name: each.end_lineno or 0 for each in tree.body if isinstance(each, ast.ClassDef)}
    lines = source.splitlines(keepends=True)
    for field in _fields(tree):
        annotation = field.annotation
        head = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        if isinstance(head, ast.Name) and (head.id in names or made_at.get(head.id, 0) > field.lineno):
            # No annotation of ours goes over several lines, or has anything but ASCII before it in its line.
            line, start, end = annotation.lineno - 1, annotation.col_offset, annotation.end_col_offset
            assert annotation.end_lineno == annotation.lineno
            said = lines[line][start:end]
            lines[line] = f"{lines[line][:start]}{said} | {said}{lines[line][end:]}"
    return "".join(lines)


def _imported_for_types(tree: ast.Module) -> Iterable[str]:
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for statement in block.body:
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    yield from (alias.asname or alias.name for alias in statement.names)


def _fields(tree: ast.Module) -> Iterable[ast.AnnAssign]:
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef):
            yield from (statement for statement in each.body if isinstance(statement, ast.AnnAssign))
