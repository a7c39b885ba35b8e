"""Asks the measured broker through its control socket, as an operator does.

Each question has its own connection; answers are plain values. A refusal, or no answer, is `Broken`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from benchmarks.broken import Broken
from stompbroker.cli.control_client import connect
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from pathlib import Path


def ask(data: Path, method: str, **params: object) -> Any:
    """Ask the broker whose data directory this is."""

    async def call() -> Any:
        async with connect(data) as control:
            return await control.call(method, **params)

    try:
        return trio.run(call)
    except OperatorError as error:
        raise Broken(f"{method}: {error}") from error
