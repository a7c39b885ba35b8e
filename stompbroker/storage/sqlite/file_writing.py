"""Writing to an SQLite file, with its upkeep: what a store and the writing process have in common."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, final

from stompbroker.storage.batch_writing import BatchStatements, BatchWriter
from stompbroker.storage.failures import Failures, StoreFailing
from stompbroker.storage.fence import Fence, FenceTexts
from stompbroker.storage.sqlite.checkpoints import Checkpoints, FairLock
from stompbroker.storage.sqlite.file import BEGIN_WRITING, connect_file
from stompbroker.storage.writing import Writing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor

    from stompbroker.storage.batch import Batch


class FileWriting(Writing):
    _begin = BEGIN_WRITING

    def _begin_writing(self, file: Path, statements: BatchStatements) -> None:
        self._batch_writer = BatchWriter(statements)
        self._fair_lock = FairLock()
        self._upkeep = Checkpoints(file, self._fair_lock)

    def _writing_alone(self) -> FairLock:
        return self._fair_lock

    def _note_written(self, cursor: DBAPICursor, batch: Batch) -> None:
        self._upkeep.note_written(cursor, batch)

    def commit(self, batch: Batch) -> None:
        super().commit(batch)
        with self._failures.translated():
            self._upkeep.look()
        if self._upkeep.is_overdue:
            # The batch is safe. If the log cannot be shortened, a later commit will fail and say so.
            with suppress(StoreFailing):
                self.checkpoint()

    def close(self, *, is_sound: bool = True) -> None:
        super().close(is_sound=is_sound)
        self._upkeep.close()

    def stored_bytes(self) -> int:
        with self._failures.translated():
            return self._upkeep.stored_bytes()

    def free_bytes(self) -> int:
        with self._failures.translated():
            self._upkeep.look()
        return self._upkeep.free_bytes

    def _free_bytes_after_commit(self) -> int:
        return self._upkeep.free_bytes

    @property
    def needs_checkpoint(self) -> bool:
        return self._upkeep.is_due

    def checkpoint(self, *, truncate: bool = False) -> None:
        with self._failures.translated():
            self._upkeep.run(truncate=truncate)


@final
class FileWriter(FileWriting):
    """Writes to the file of a store that was handed over to it, with statements of its owner."""

    def __init__(self, file: Path, fence: Sequence[str], statements: Sequence[Any]) -> None:
        super().__init__(str(file), Failures(sqlite3, str(file)), Fence(str(file), FenceTexts(*fence)))
        self._file = file
        self._begin_writing(file, BatchStatements.of_values(statements))

    def _connect(self) -> sqlite3.Connection:
        # If the log was deleted, a new connection would begin another one beside those that still use the old one.
        self._upkeep.check_log()
        return connect_file(self._file)

    def _driver_of(self, writer: DBAPIConnection) -> DBAPIConnection:
        return writer

    def _discard(self, writer: DBAPIConnection) -> None:
        writer.close()
