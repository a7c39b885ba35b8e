"""From answers to JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.control import Looking
from stompbroker.management.responses import STEP_ENTRIES, as_json, as_json_in_steps

if TYPE_CHECKING:
    import pytest

PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=3)


def in_steps(value: Any) -> str:
    return trio.run(as_json_in_steps, value, Looking())


@given(st.dictionaries(st.text(max_size=3), PLAIN | st.lists(PLAIN, max_size=3 * STEP_ENTRIES), max_size=4) | PLAIN)
def test_in_steps_it_is_written_as_at_once(value: Any) -> None:
    assert in_steps(value) == as_json(value)
    assert json.loads(in_steps(value)) == value


async def test_others_run_while_a_long_list_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbroker.control.looking.STEP_S", -1.0)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await as_json_in_steps({"entries": [{"name": "x"}] * (10 * STEP_ENTRIES)}, Looking())
        nursery.cancel_scope.cancel()

    assert turns >= 9
