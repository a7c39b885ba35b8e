"""Exports the ledger from the database to the lake.

Plans files, has a process of its own write them, and notes that they are written; the journal stores each step before
the next begins. A failure loses nothing and is tried again. Cancelling ends the process; the next start repeats what
was planned.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import trio

from stompbroker.errors import BrokerError
from stompbroker.ledger import ExportOrder, FileWritten, RoundResult, day_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Awaitable, Callable

    from stompbroker.clock import Clock
    from stompbroker.ledger import Exports, Rounds

#: How long the process may take before it counts as hanging, in seconds. A file takes a second or two.
PATIENCE_S: Final = 3600.0
#: Pause between two portions of deleted batches, in seconds; each keeps the store busy for a millisecond or two.
PORTION_PAUSE_S: Final = 0.04
#: How much of the error output of the process is repeated, in characters.
_MAX_REASON: Final = 500

log = structlog.get_logger()


class Lake(NamedTuple):
    """Where the files go, and where the database is."""

    place: str
    store_id: str
    #: As in the settings.
    database: str
    data: str
    retention_days: int


class _Failed(BrokerError):
    """The process did not do all it was told to."""


async def run(
    exports: Exports,
    rounds: Rounds,
    lake: Lake,
    clock: Clock,
    write_all: Callable[[], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Export until cancelled. `write_all` returns when everything settled by now is in the database."""
    # Before anybody is served: the first record would wait a fifth of a second for the import, which would fail where
    # clients have taken all descriptors.
    await trio.to_thread.run_sync(import_module, "pyarrow", abandon_on_cancel=True)
    task_status.started()
    last_tidied_day: int | None = None
    while True:
        await rounds.wait_due()
        round = rounds.begin()
        if round.is_new:
            await write_all()
            exports.plan(clock.now_ns())
            await _until_written_down(exports)
        today = day_of(clock.now_ns())
        try:
            result = await _write_files(
                exports, lake, clock, round.complete_until_ns, is_tidying=today != last_tidied_day
            )
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


async def _write_files(
    exports: Exports, lake: Lake, clock: Clock, complete_until_ns: int, *, is_tidying: bool
) -> RoundResult:
    """Raises _Failed; files that were written are noted all the same."""
    now_ns = clock.now_ns()
    order = ExportOrder(
        database=lake.database,
        data=lake.data,
        lake=lake.place,
        store_id=lake.store_id,
        exports=exports.ready,
        complete_until_ns=complete_until_ns,
        exported_at_ns=now_ns,
        delete_before_day=day_of(now_ns) - lake.retention_days if is_tidying else None,
    )
    done = await _run_process(order)
    written = FileWritten.read_all(done.stdout)
    for file in written:
        exports.note_file(file.export)
    await _until_written_down(exports)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()[-_MAX_REASON:]
        raise _Failed(reason or f"the process ended with {done.returncode}")
    return RoundResult([file.path for file in written], sum(file.records for file in written), complete_until_ns)


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
