"""Exports the ledger from the database to the lake.

Plans files, has a process of its own write them, and notes that they are written; the journal stores each step before
the next begins. A failure loses nothing and is tried again. Cancelling ends the process; the next start repeats what
was planned.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog
import trio

from stompbroker.errors import BrokerError
from stompbroker.ledger import FileWritten, RoundResult, day_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Awaitable, Callable

    from stompbroker.clock import Clock
    from stompbroker.ledger import ExportOrder, Exports, Rounds

#: How long the process may take before it counts as hanging, in seconds. A file takes a second or two.
PATIENCE_S: Final = 3600.0
#: Pause between two portions of deleted batches, in seconds; each keeps the store busy for a millisecond or two.
PORTION_PAUSE_S: Final = 0.04
#: How much of the error output of the process is repeated, in characters.
_MAX_REASON: Final = 500

log = structlog.get_logger()


class _Failed(BrokerError):
    """The process did not do all it was told to."""


async def run(
    exports: Exports,
    rounds: Rounds,
    order: ExportOrder,
    clock: Clock,
    write_all: Callable[[], Awaitable[None]],
    *,
    retention_days: int,
) -> None:
    """Export until cancelled. `order` says where the database and the lake are. `write_all` returns when everything
    settled by now is in the database."""
    last_tidied_day: int | None = None
    while True:
        await rounds.wait_due()
        round = rounds.begin()
        if round.is_new:
            await write_all()
            exports.plan(clock.now_ns())
            await _until_written_down(exports)
        now_ns = clock.now_ns()
        today = day_of(now_ns)
        next_order = replace(
            order,
            exports=exports.ready,
            complete_until_ns=round.complete_until_ns,
            exported_at_ns=now_ns,
            delete_before_day=None if today == last_tidied_day else today - retention_days,
        )
        try:
            result = await _write_files(next_order, exports)
        except _Failed as failure:
            retry_s = rounds.note_failed(str(failure))
            log.error("the lake cannot be written; the ledger waits in the store", reason=str(failure), again_s=retry_s)
        else:
            if rounds.is_failing:
                log.info("the lake can be written again")
            last_tidied_day = today
            rounds.note_done(result)
        while exports.has_leftovers:
            exports.delete_portion()
            while exports.is_deleting:
                await exports.progressed.wait()
            await trio.sleep(PORTION_PAUSE_S)


async def _write_files(order: ExportOrder, exports: Exports) -> RoundResult:
    """Raises _Failed; files that were written are noted all the same."""
    done = await _run_process(order)
    written = FileWritten.read_all(done.stdout)
    for file in written:
        exports.note_file(file.export)
    await _until_written_down(exports)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()[-_MAX_REASON:]
        raise _Failed(reason or f"the process ended with {done.returncode}")
    return RoundResult([file.path for file in written], sum(file.records for file in written), order.complete_until_ns)


async def _run_process(order: ExportOrder) -> subprocess.CompletedProcess[bytes]:
    # In a session of its own, so that a terminal's signals reach only the broker.
    command = [sys.executable, "-m", "stompbroker.ledger.export_process"]
    try:
        with trio.fail_after(PATIENCE_S):
            return await trio.run_process(
                command,
                stdin=order.as_bytes(),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                deliver_cancel=_kill,
                start_new_session=True,
            )
    except trio.TooSlowError:
        raise _Failed(f"the process has not ended within {PATIENCE_S:.0f} s") from None
    except OSError as error:
        raise _Failed(f"the process cannot be started: {error}") from error


async def _kill(process: trio.Process) -> None:
    process.kill()


async def _until_written_down(exports: Exports) -> None:
    while not exports.is_written_down:
        await exports.progressed.wait()
    await trio.lowlevel.checkpoint()
