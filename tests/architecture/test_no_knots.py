"""No module of `stompbroker` imports itself by way of others; and few know each other even by type.

Law: at run time there is no cycle at all. With what is imported for types alone, a cycle has four modules at most.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import pytest

from tests.architecture.test_import_directions import PACKAGE, imports, module_name, python_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST_IN_A_CYCLE = 4

Graph = dict[str, set[str]]


def runs_on_import(path: str, source: str) -> str:
    """The source without what is not run when it is imported: functions, and what is only for types."""

    class Outline(ast.NodeTransformer):
        def visit_FunctionDef(self, _node: ast.FunctionDef) -> ast.AST:
            return ast.Pass()

        def visit_AsyncFunctionDef(self, _node: ast.AsyncFunctionDef) -> ast.AST:
            return ast.Pass()

        def visit_If(self, node: ast.If) -> ast.AST:
            return ast.Pass() if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    return ast.unparse(Outline().visit(ast.parse(source, path)))


def graph_of(sources: Mapping[str, str]) -> Graph:
    modules = {module_name(path) for path in sources}
    return {
        module_name(path): {name for _, name in imports(path, source, modules) if name in modules} - {module_name(path)}
        for path, source in sources.items()
    }


def first_cycle(graph: Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def knots(graph: Graph) -> Iterator[set[str]]:
    """Modules each of which imports all others, by way of some."""
    reached = {name: _reached_from(name, graph) for name in graph}
    seen: set[str] = set()
    for name in graph:
        knot = {other for other in reached[name] if name in reached[other]}
        if knot and name not in seen:
            seen |= knot
            yield knot


def _reached_from(name: str, graph: Graph) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def sources() -> dict[str, str]:
    return {name: path.read_text() for name, path in python_files(PACKAGE).items()}


def test_nothing_imports_itself_at_run_time() -> None:
    cycle = first_cycle(graph_of({path: runs_on_import(path, source) for path, source in sources().items()}))

    if cycle:
        pytest.fail(" -> ".join(cycle), pytrace=False)


def test_few_know_each_other_by_type() -> None:
    graph = graph_of(sources())
    large = [knot for knot in knots(graph) if len(knot) > MOST_IN_A_CYCLE]

    if large:
        told = (first_cycle({name: graph[name] & knot for name in knot}) for knot in large)
        pytest.fail(
            "\n".join(
                f"{len(knot)} modules know each other, for instance {' -> '.join(cycle)}"
                for knot, cycle in zip(large, told, strict=True)
            ),
            pytrace=False,
        )


# From here on: the checks can fail.

CYCLE = {
    "stompbroker/a.py": "from stompbroker import b",
    "stompbroker/b.py": "import stompbroker.c",
    "stompbroker/c.py": "from stompbroker.a import x",
}
BY_TYPE = CYCLE | {
    "stompbroker/c.py": "if TYPE_CHECKING:\n    from stompbroker.a import x\ndef f():\n    import stompbroker.a"
}


def test_a_cycle_is_told_with_its_path() -> None:
    cycle = first_cycle(graph_of({path: runs_on_import(path, source) for path, source in CYCLE.items()}))

    assert sorted(set(cycle)) == ["stompbroker.a", "stompbroker.b", "stompbroker.c"]
    assert cycle[0] == cycle[-1]


def test_what_is_for_types_or_inside_of_a_function_is_not_run() -> None:
    assert not first_cycle(graph_of({path: runs_on_import(path, source) for path, source in BY_TYPE.items()}))
    assert list(knots(graph_of(BY_TYPE))) == [{"stompbroker.a", "stompbroker.b", "stompbroker.c"}]
