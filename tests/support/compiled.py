"""What a test can do to plain Python and not to a compiled module: replace its names. Such a test is skipped there.

A compiled module has its constants, functions and classes in machine code, and looks at none of their names again.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

UNSEEN = "{} is compiled and does not see what is put in its place"


@pytest.fixture
def monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    """In place of pytest's own, with a compiled build."""
    with pytest.MonkeyPatch.context() as patching:
        put = patching.setattr

        def setattr_or_skip(target: Any, *arguments: Any, **options: Any) -> None:
            name = _module_of(target)
            if is_compiled(name):
                pytest.skip(UNSEEN.format(name))
            put(target, *arguments, **options)

        patching.setattr = setattr_or_skip  # type: ignore[method-assign]
        yield patching


def is_compiled(module: str) -> bool:
    return module.startswith("stompbroker.") and not str(sys.modules[module].__file__).endswith(".py")


def slots_of(kind: type) -> tuple[str, ...]:
    slots: tuple[str, ...] = getattr(kind, "__slots__", ()) or getattr(kind, "__mypyc_attrs__", ())
    return slots


def _module_of(target: Any) -> str:
    """The module with that name in it, as pytest writes it, or where that module, class or object comes from."""
    if isinstance(target, str):
        module = target.rpartition(".")[0]
        while module not in sys.modules:
            try:
                import_module(module)
            except ImportError:
                module = module.rpartition(".")[0]
        return module
    if isinstance(target, ModuleType):
        return target.__name__
    return str(getattr(target, "__module__", ""))
