"""Who may import whom inside `stompbroker`.

Law: the table `RULES` is the architecture; everything else here only reads imports and compares. Imports inside
functions and under TYPE_CHECKING count too: a dependency in types alone still ties two packages together.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

ROOT = Path(__file__).parents[2]
PACKAGE = "stompbroker"

# Places. Names are written as in a relative import: `.topics` is `stompbroker.delivery` and all in it, `.` is all of
# ours, `trio` is somebody else's; `.topics.*` is the modules inside `.topics` without its surface, the `__init__`.
STDLIB = "the standard library"
THIRD_PARTY = "third-party packages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Modules in `who`, save those in `save`, import nothing in `never`; or, besides `who` itself, `only` that."""

    who: str
    save: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    why: str

    def is_broken_by(self, importer: str, imported: str) -> bool:
        if not is_in(importer, self.who) or is_in_any(importer, self.save):
            return False
        return is_in_any(imported, self.never) or bool(self.only and not is_in_any(imported, (self.who, *self.only)))

    def __str__(self) -> str:
        who = in_full(self.who) + (f" outside {listed(self.save)}" if self.save else "")
        what = f"imports only {listed(self.only)}" if self.only else f"never imports {listed(self.never)}"
        return f"{who} {what}: {self.why}"


RULES = (
    Rule(who=".stomp", only=(STDLIB, ".errors"), why="the protocol is bytes in, frames out"),
    Rule(who=".stomp", never=("socket", "sqlite3", "time"), why="the caller brings bytes and supplies `now`"),
    Rule(who=".commitlog", only=(STDLIB, ".errors", ".ids", ".message"), why="logs and cursors are plain data"),
    Rule(who=".commitlog", never=("socket", "time"), why="the caller supplies `now`"),
    Rule(
        who=".delivery",
        never=(".actors", ".broker", ".changes", ".cli", ".management", ".sessions", ".storage", ".transport"),
        why="the stores are shared by all above and know none of them",
    ),
    Rule(who=".delivery", never=(".stomp",), why="a consumer delivers into a sink, and knows no frames"),
    Rule(
        who=".changes",
        never=(".actors", ".broker", ".cli", ".journal", ".management", ".sessions", ".storage", ".transport"),
        why="what changes is not who says so, and not where it is written",
    ),
    Rule(
        who=".transport",
        only=(STDLIB, THIRD_PARTY, ".buffers", ".errors", ".log_throttle"),
        why="a transport ends as a stream of bytes",
    ),
    Rule(
        who=".client",
        only=(STDLIB, THIRD_PARTY, ".clock", ".errors", ".ids", ".signals", ".stomp", ".transport", ".visible_text"),
        why="a client needs no broker, only what both speak",
    ),
    Rule(
        who=".",
        save=(".actors.bridge", ".cli", ".client"),
        never=(".client",),
        why="a broker is nobody's client, unless a command or a bridge is",
    ),
    Rule(who=".", save=(".client",), never=(".client.*",), why="import the package, not its insides"),
    Rule(
        who=".bridges",
        only=(STDLIB, ".signals"),
        why="what a bridge decides is neither I/O nor what a broker does",
    ),
    Rule(who=".", save=(".bridges",), never=(".bridges.*",), why="import the package, not its insides"),
    Rule(
        who=".access",
        only=(STDLIB, THIRD_PARTY, ".clock", ".delivery", ".errors", ".file_replacing", ".log_throttle", ".signals"),
        why="it decides who may, and knows neither connections nor settings",
    ),
    Rule(who=".actors", never=(".broker", ".cli", ".management"), why="the broker starts actors, not they it"),
    Rule(who=".actors.*", never=(".actors",), why="actors meet only in the stores"),
    Rule(who=".sessions", never=(".actors", ".broker", ".cli", ".transport"), why="a session knows no sockets"),
    Rule(who=".control", never=(".actors", ".cli"), why="what one can ask of a broker is not who asks or answers"),
    Rule(who=".", save=(".storage",), never=("sqlalchemy",), why="SQL lives in one place"),
    Rule(who=".", save=(".__main__", ".broker", ".cli"), never=(".broker", ".cli"), why="they are the way in"),
    Rule(who=".", save=(".stomp",), never=(".stomp.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".commitlog",), never=(".commitlog.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".delivery",), never=(".delivery.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".changes",), never=(".changes.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".sessions",), never=(".sessions.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".transport",), never=(".transport.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".storage",), never=(".storage.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".journal",), never=(".journal.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".control",), never=(".control.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".access",), never=(".access.*",), why="import the package, not its insides"),
    Rule(who=".", save=(".access",), never=("argon2", "jwt"), why="secrets are checked in one place"),
    Rule(who=".", save=(".access", ".cli.certificate"), never=("cryptography",), why="it is an extra"),
    Rule(
        who=".storage",
        never=(".actors", ".changes", ".delivery", ".journal", ".sessions", ".stomp"),
        why="a store knows rows, not clients and not who decides what is kept",
    ),
    Rule(
        who=".journal",
        never=(".actors", ".broker", ".cli", ".sessions", ".stomp", ".transport"),
        why="it decides what is written, and neither for whom nor by which thread",
    ),
    Rule(who=".", save=(".storage",), never=("alembic", "psycopg"), why="SQL lives in one place"),
    Rule(
        who=".ledger",
        never=(".actors", ".changes", ".control", ".delivery", ".journal", ".sessions", ".stomp"),
        why="the ledger knows records, not clients",
    ),
    Rule(who=".management", never=(".actors",), why="it looks and acts through control"),
    Rule(
        who=".spotty",
        only=(STDLIB, THIRD_PARTY, ".errors", ".signals", ".transport"),
        why="it knows a broker from outside only",
    ),
    Rule(who=".", save=(".spotty",), never=(".spotty.*",), why="import the package, not its insides"),
)

#: Names that say nothing about what is inside, so nobody finds or owns it.
EMPTY_NAMES = {"common", "helpers", "utils"}


def in_full(place: str) -> str:
    return PACKAGE + place.rstrip(".") if place.startswith(".") else place


def listed(places: Iterable[str]) -> str:
    return ", ".join(map(in_full, places))


def is_in(module: str, place: str) -> bool:
    top_level = module.partition(".")[0]
    if place == STDLIB:
        return top_level in sys.stdlib_module_names
    if place == THIRD_PARTY:
        return top_level not in sys.stdlib_module_names and top_level != PACKAGE
    if place.endswith(".*"):
        return module.startswith(in_full(place).removesuffix("*"))
    return f"{module}.".startswith(f"{in_full(place)}.")


def is_in_any(module: str, places: Iterable[str]) -> bool:
    return any(is_in(module, place) for place in places)


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(path: str, source: str, modules: Collection[str]) -> Iterator[tuple[int, str]]:
    """Line and module of each import. `from x import y` is the module `x.y` if it is among `modules`, else `x`."""
    name = module_name(path)
    package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                yield node.lineno, inner if inner in modules else origin


def broken_rules(sources: Mapping[str, str]) -> list[str]:
    """One sentence per import that breaks a rule; `sources` maps the path of each module to its text."""
    modules = {module_name(path) for path in sources} - set(offered(sources))
    return [
        f"{path}:{line}: imports {imported}, but {rule}"
        for path, source in sources.items()
        for line, imported in imports(path, source, modules)
        for rule in RULES
        if rule.is_broken_by(module_name(path), imported)
    ]


def offered(sources: Mapping[str, str]) -> Iterator[str]:
    """Modules that their package names in its `__all__`: they are part of its surface, not of its insides."""
    for path, source in sources.items():
        for node in ast.parse(source, path).body if path.endswith("/__init__.py") else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                yield from (f"{module_name(path)}.{name}" for name in ast.literal_eval(node.value))


def empty_names(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if EMPTY_NAMES & set(path.removesuffix(".py").split("/"))]


def python_files(folder: str) -> dict[str, Path]:
    return {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / folder).rglob("*.py"))}


def test_imports_follow_the_rules() -> None:
    files = python_files(PACKAGE)
    assert f"{PACKAGE}/__init__.py" in files  # otherwise we looked in the wrong place and would find nothing wrong

    broken = broken_rules({name: path.read_text() for name, path in files.items()})

    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


def test_no_module_has_an_empty_name() -> None:
    assert empty_names([*python_files(PACKAGE), *python_files("benchmarks"), *python_files("tests")]) == []


# From here on: the checker itself can fail.

EXAMPLE_TREE = dict.fromkeys(
    [
        "stompbroker/__init__.py",
        "stompbroker/actors/__init__.py",
        "stompbroker/actors/listener.py",
        "stompbroker/broker.py",
        "stompbroker/changes/__init__.py",
        "stompbroker/changes/unit.py",
        "stompbroker/client/__init__.py",
        "stompbroker/client/core.py",
        "stompbroker/commitlog/__init__.py",
        "stompbroker/commitlog/cursor.py",
        "stompbroker/errors.py",
        "stompbroker/journal/__init__.py",
        "stompbroker/journal/forming.py",
        "stompbroker/stomp/__init__.py",
        "stompbroker/storage/__init__.py",
        "stompbroker/storage/store.py",
        "stompbroker/stomp/frame_reader.py",
        "stompbroker/delivery/__init__.py",
        "stompbroker/delivery/registry.py",
        "stompbroker/delivery/sending.py",
    ],
    "",
) | {"stompbroker/delivery/__init__.py": '__all__ = ["sending"]'}

BREAKING = [
    ("stompbroker/stomp/frame.py", "import trio", "stompbroker.stomp imports only"),
    ("stompbroker/stomp/frame.py", "from stompbroker.ids import Offset", "stompbroker.stomp imports only"),
    ("stompbroker/stomp/frame.py", "from .. import broker", "stompbroker.stomp imports only"),
    ("stompbroker/stomp/frame.py", "import os, time", "stompbroker.stomp never imports"),
    ("stompbroker/stomp/frame.py", "from socket import AF_INET", "stompbroker.stomp never imports"),
    ("stompbroker/stomp/frame.py", "import sqlite3", "stompbroker.stomp never imports"),
    ("stompbroker/commitlog/segment.py", "import trio", "stompbroker.commitlog imports only"),
    ("stompbroker/commitlog/segment.py", "from stompbroker import stomp", "stompbroker.commitlog imports only"),
    ("stompbroker/commitlog/segment.py", "from time import monotonic", "stompbroker.commitlog never imports"),
    ("stompbroker/delivery/topic.py", "from stompbroker.storage import Page", "stompbroker.delivery never imports"),
    (
        "stompbroker/delivery/topic.py",
        "def f():\n    import stompbroker.sessions",
        "stompbroker.delivery never imports",
    ),
    ("stompbroker/delivery/consumer.py", "from ..stomp import Version", "stompbroker.delivery never imports"),
    ("stompbroker/changes/unit.py", "from stompbroker.storage import Batch", "stompbroker.changes never imports"),
    ("stompbroker/broker.py", "from .changes.unit import Unit", "stompbroker outside stompbroker.changes never"),
    ("stompbroker/transport/tcp.py", "from stompbroker.config import Config", "stompbroker.transport imports only"),
    ("stompbroker/client/core.py", "from stompbroker.delivery import Registry", "stompbroker.client imports only"),
    ("stompbroker/client/core.py", "from stompbroker.config import Settings", "stompbroker.client imports only"),
    ("stompbroker/actors/worker.py", "from stompbroker import client", "stompbroker outside stompbroker.actors.brid"),
    ("stompbroker/bridges/crossing.py", "import trio", "stompbroker.bridges imports only"),
    ("stompbroker/broker.py", "from .bridges.plan import BridgePlan", "stompbroker outside stompbroker.bridges never"),
    ("stompbroker/cli/publish.py", "from stompbroker.client.core import Core", "stompbroker outside stompbroker.cl"),
    ("stompbroker/access/tokens.py", "from stompbroker.config import Settings", "stompbroker.access imports only"),
    ("stompbroker/broker.py", "from .access.grant import Grant", "stompbroker outside stompbroker.access never"),
    ("stompbroker/broker.py", "import jwt", "stompbroker outside stompbroker.access never imports argon2"),
    ("stompbroker/cli/users.py", "import cryptography", "stompbroker outside stompbroker.access, stompbroker.cli"),
    ("stompbroker/actors/worker.py", "from stompbroker import broker", "stompbroker.actors never imports"),
    ("stompbroker/actors/worker.py", "from . import listener", "stompbroker.actors.* never imports"),
    ("stompbroker/actors/worker.py", "from .listener import run", "stompbroker.actors.* never imports"),
    (
        "stompbroker/sessions/session.py",
        "if TYPE_CHECKING:\n    from ..transport import x",
        "stompbroker.sessions never",
    ),
    ("stompbroker/storage/engine.py", "from stompbroker.stomp import Frame", "stompbroker.storage never imports"),
    ("stompbroker/journal/forming.py", "from stompbroker.sessions import Session", "stompbroker.journal never imports"),
    ("stompbroker/broker.py", "from .journal.forming import Numbers", "stompbroker outside stompbroker.journal never"),
    ("stompbroker/broker.py", "from .storage.store import Store", "stompbroker outside stompbroker.storage never"),
    ("stompbroker/broker.py", "from .control.errors import x", "stompbroker outside stompbroker.control never"),
    (
        "stompbroker/control/control.py",
        "import psycopg",
        "stompbroker outside stompbroker.storage never imports alembic",
    ),
    ("stompbroker/ledger/lake.py", "from stompbroker import actors", "stompbroker.ledger never imports"),
    ("stompbroker/management/views.py", "import stompbroker.actors", "stompbroker.management never imports"),
    (
        "stompbroker/control/control.py",
        "from ..sessions.parking import x",
        "stompbroker outside stompbroker.sessions never",
    ),
    (
        "stompbroker/control/control.py",
        "from ..transport.tcp import x",
        "stompbroker outside stompbroker.transport never",
    ),
    (
        "stompbroker/control/control.py",
        "from stompbroker.actors.listener import run",
        "stompbroker.control never imports",
    ),
    ("stompbroker/spotty/running.py", "from stompbroker.config import load", "stompbroker.spotty imports only"),
    ("stompbroker/cli/spotty.py", "from ..spotty.relay import Relay", "stompbroker outside stompbroker.spotty never"),
    ("stompbroker/ledger/lake.py", "import sqlalchemy.orm", "stompbroker outside stompbroker.storage never"),
    ("stompbroker/config.py", "from .cli import main", "stompbroker outside stompbroker.__main__, stompbroker.broker"),
    ("stompbroker/outbox.py", "from .stomp.frame_reader import x", "stompbroker outside stompbroker.stomp never"),
    ("stompbroker/outbox.py", "from .stomp import frame_reader", "stompbroker outside stompbroker.stomp never"),
    ("stompbroker/broker.py", "import stompbroker.commitlog.cursor", "stompbroker outside stompbroker.commitlog never"),
    ("stompbroker/broker.py", "from .delivery import registry", "stompbroker outside stompbroker.delivery never"),
]


@pytest.mark.parametrize(("path", "source", "rule"), BREAKING)
def test_breaking_import_is_reported_with_file_line_and_rule(path: str, source: str, rule: str) -> None:
    line = len(source.splitlines())

    broken = broken_rules(EXAMPLE_TREE | {path: source})

    assert any(text.startswith(f"{path}:{line}: imports ") and f"but {rule}" in text for text in broken), broken


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_each_rule_has_a_breaking_example(rule: Rule) -> None:
    assert any(str(rule).startswith(start) for _, _, start in BREAKING)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("stompbroker/stomp/__init__.py", "from stompbroker.stomp.frame_reader import FrameReader"),
        ("stompbroker/stomp/frame.py", "import enum\nfrom ..errors import PeerViolation"),
        ("stompbroker/delivery/topic.py", "import trio\nfrom stompbroker.commitlog import Cursor"),
        ("stompbroker/transport/tcp.py", "import socket, trio\nfrom stompbroker import errors"),
        ("stompbroker/actors/worker.py", "from stompbroker.delivery import Registry"),
        ("stompbroker/outbox.py", "from stompbroker.stomp import Connection"),
        ("stompbroker/outbox.py", "from stompbroker.delivery import sending"),  # the package offers it
        ("stompbroker/storage/schema.py", "from sqlalchemy import MetaData"),
        ("stompbroker/broker.py", "from stompbroker.actors import listener"),
        ("stompbroker/cli/serve.py", "from stompbroker import broker"),
        ("stompbroker/commitlog_reader.py", "import time"),  # a longer name is not inside the shorter one
    ],
)
def test_permitted_import_is_not_reported(path: str, source: str) -> None:
    assert broken_rules(EXAMPLE_TREE | {path: source}) == []


def test_empty_name_is_reported_for_a_module_and_for_a_package() -> None:
    paths = ["stompbroker/utils.py", "tests/helpers/peer.py", "stompbroker/common_sense.py"]

    assert empty_names(paths) == ["stompbroker/utils.py", "tests/helpers/peer.py"]
