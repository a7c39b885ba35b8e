"""A process that writes to a store, and dies where a test says: as the broker forks one, but begun by a test.

Law: `python -m tests.support.writing_process MOMENT` is asked for writes by its standard input and for upkeep by its
standard output. Tests run beside threads, so they cannot fork it themselves.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from stompbroker.storage import WritingProcess
from stompbroker.storage.sqlite.file_writing import FileWriter
from stompbroker.storage.sqlite.writing_process import serve
from tests.support.prepared_process import PYTHON, PreparedProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from stompbroker.storage import Batch


class Dies(StrEnum):
    NEVER = "never"
    BEFORE = "before the transaction"
    DURING = "with the batch written, before COMMIT"
    AFTER = "behind COMMIT, before the answer"


@contextmanager
def begun_writing_process(dies: Dies = Dies.NEVER) -> Iterator[WritingProcess]:
    """One that has ended when the block has. It dies at the first commit, if at all."""
    (writes, asked_to_write), (upkeep, asked_for_upkeep) = socket.socketpair(), socket.socketpair()
    with writes, upkeep:
        with asked_to_write, asked_for_upkeep:
            command = [*PYTHON, "-m", "tests.support.writing_process", dies]
            begun: PreparedProcess[bytes] = PreparedProcess(
                command, stdin=asked_to_write.fileno(), stdout=asked_for_upkeep.fileno()
            )
        try:
            yield WritingProcess(pid=begun.pid, writes=writes, upkeep=upkeep)
        finally:
            begun.kill()
            begun.wait()


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arrange(dies: Dies) -> None:
    commit = FileWriter.commit

    def commit_and_die(store: FileWriter, batch: Batch) -> None:
        if dies is Dies.BEFORE:
            _die()
        if dies is Dies.DURING:
            # The last that is done to a batch within its transaction.
            store._note_written = _die  # type: ignore[assignment,method-assign]
        commit(store, batch)
        _die()

    if dies is not Dies.NEVER:
        FileWriter.commit = commit_and_die  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    _arrange(Dies(sys.argv[1]))
    serve(socket.socket(fileno=os.dup(0)), socket.socket(fileno=os.dup(1)))
