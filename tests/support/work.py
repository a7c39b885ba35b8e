"""A measure of work that neither a busy machine nor the layout of the code can change."""

from __future__ import annotations

import dis
import gc
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from stompbroker.build import IS_COMPILED

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

_JUMPS_BACK: Final = frozenset(number for name, number in dis.opmap.items() if "JUMP_BACKWARD" in name)


def operations(function: Callable[[], Any]) -> int:
    """How many Python functions a call enters, plus how many turns the loops in them take.

    Work that grows with the number of messages or topics has to call or to loop; work done in C counts nothing, so a
    test that asks is skipped where our own code is compiled.
    """
    if IS_COMPILED:
        pytest.skip("the steps of compiled code are not counted")
    count = 0

    def entered(frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal count
        count += 1
        jumps_back = _jumps_back(frame.f_code)
        if not jumps_back:
            return None

        def executed(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal count
            count += event == "opcode" and frame.f_lasti in jumps_back
            return executed

        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return executed

    before = sys.gettrace()
    # Hypothesis is called, in Python, whenever the interpreter has searched for reference cycles.
    gc.disable()
    sys.settrace(entered)
    try:
        function()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


@cache
def _jumps_back(code: CodeType) -> frozenset[int]:
    """Where in the bytecode a loop begins its next turn."""
    return frozenset(at.offset for at in dis.get_instructions(code) if at.opcode in _JUMPS_BACK)
