"""The run against RabbitMQ and ActiveMQ: what is not installed is said, everything else is tried and printed.

The checks first, then the client under kills, then the bridges; each broker of others is started once for all of it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import trio

from benchmarks.peers.peer import Missing
from soak.foreign.bridging import run_bridging
from soak.foreign.brokers import FOREIGN, running
from soak.foreign.checks import CHECKS
from soak.foreign.kills import run_kills
from stompbroker.client import ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from soak.foreign.brokers import Foreign, There

NAMES: Final = tuple(foreign.peer.name for foreign in FOREIGN)


def run_foreign(
    name: str | None, directory: Path, *, kills: int, messages: int, seed: int, show: Callable[[str], None]
) -> int:
    """The exit code. `name` None: all of them. `messages`: of each publisher, for each kill."""
    # That connections are lost is the purpose.
    logging.getLogger("stompbroker.client").setLevel(logging.CRITICAL)
    complaints: list[str] = []
    for foreign in FOREIGN:
        if name not in (None, foreign.peer.name):
            continue
        installed = foreign.peer.installed()
        if isinstance(installed, Missing):
            complaints.append(f"MISSING: {foreign.peer.title}, {installed.how_to_install}")
            continue
        began_at = time.monotonic()
        print(f"{foreign.peer.title} {installed.version}", flush=True)
        complaints += _run_one(foreign, directory, kills=kills, messages=messages, seed=seed, show=show)
        print(f"  {time.monotonic() - began_at:.0f} s", flush=True)
    for complaint in complaints:
        print(complaint)
    print("BROKEN" if complaints else "All checks hold; nothing that was confirmed is missing, and nothing circles.")
    return 1 if complaints else 0


def _run_one(
    foreign: Foreign, directory: Path, *, kills: int, messages: int, seed: int, show: Callable[[str], None]
) -> list[str]:
    title, complaints = foreign.peer.title, list[str]()
    with running(foreign) as there:
        for name, check in CHECKS.items():
            text, problem = _problem(check, there)
            print(f"  {name}: {problem or text}", flush=True)
            if problem is not None:
                complaints.append(f"{title}, {name}: {problem}")

        async def kill() -> None:
            outcome = await run_kills(there, kills=kills, messages=max(kills, 1) * messages, seed=seed, show=show)
            found.extend(outcome.complaints())
            lines.extend(outcome.lines())

        found, lines = list[str](), list[str]()
        trio.run(kill)
        own_directory = directory / foreign.peer.name
        own_directory.mkdir()
        outcome = run_bridging(there, own_directory, kills=kills, messages=messages, seed=seed, show=show)
        show("")
        for line in [*lines, *outcome.lines()]:
            print(f"  {line}", flush=True)
        return complaints + [f"{title}: {complaint}" for complaint in found + outcome.complaints]


def _problem(check: Callable[[There], Awaitable[str]], there: There) -> tuple[str, str | None]:
    """What was found, and what is wrong about it."""
    try:
        return trio.run(check, there), None
    except (AssertionError, ClientError, trio.TooSlowError, ExceptionGroup) as error:
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        return "", f"FAILED: {type(first).__name__}: {first}"
