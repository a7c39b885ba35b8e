"""A real store that is watched and, when told so, stopped on its way.

Law: whatever is written is written by the store itself. What is added stands before a commit or behind it: a moment to
hold it, a failure that hides how it ended, another measure of free space.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast, final

from sqlalchemy import NullPool, event

from stompbroker.storage import Store, StoreFailing
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from stompbroker.storage import Batch


def _nothing() -> None:
    """What happens before a call unless a test says otherwise."""


@final
class WatchedStore:
    """Everything not said here is the store's own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Every batch that was to be written, and those that were.
        self.attempts: list[Batch] = []
        self.written: list[Batch] = []
        #: Batches of which the journal asked whether they could be.
        self.asked: list[Batch] = []
        self.recoveries = 0
        self.pages_read = 0
        #: Called in the store's thread, before it is.
        self.before_commit: Callable[[], None] = _nothing
        self.before_asking: Callable[[], None] = _nothing
        #: How many commits are written without anybody being told so.
        self.lost_answers = 0
        #: What is said to be free, if not the truth.
        self.free: int | None = None
        self._may_commit = threading.Event()
        self._may_commit.set()

    def as_store(self) -> Store:
        return cast("Store", self)

    def hold(self) -> None:
        """Let no commit begin."""
        self._may_commit.clear()

    def release(self) -> None:
        self._may_commit.set()

    def commit(self, batch: Batch) -> None:
        self.attempts.append(batch)
        assert self._may_commit.wait(HARD_TIMEOUT_S)
        self.before_commit()
        self._store.commit(batch)
        self.written.append(batch)
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreFailing("the answer was lost")

    def write(self, batch: Batch, *, measures: bool) -> tuple[int | None, bool, int | None]:
        return Store.write(self.as_store(), batch, measures=measures)

    def would_accept(self, batch: Batch) -> bool:
        self.asked.append(batch)
        self.before_asking()
        return self._store.would_accept(batch)

    def recover(self) -> int:
        self.recoveries += 1
        return self._store.recover()

    @property
    def tries(self) -> int:
        """How often it was asked to write, or whether it can again."""
        return len(self.attempts) + self.recoveries

    def free_bytes(self) -> int | None:
        return self._store.free_bytes() if self.free is None else self.free

    def _free_bytes_after_commit(self) -> int | None:
        return self._store._free_bytes_after_commit() if self.free is None else self.free

    def read_page(self, topic_id: int, start: int, stop: int) -> Any:
        self.pages_read += 1
        return self._store.read_page(topic_id, start, stop)

    def dispose_readers(self) -> None:
        """Have the next reader make a new connection."""
        self._store._readers.dispose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@contextmanager
def writing_connections(use: Callable[[sqlite3.Connection], None]) -> Iterator[None]:
    """Give each connection that an SQLite store will write with to `use` before it is used."""

    def connected(connection: sqlite3.Connection, _record: object) -> None:
        use(connection)

    event.listen(NullPool, "connect", connected)
    try:
        yield
    finally:
        event.remove(NullPool, "connect", connected)


@contextmanager
def statements_written() -> Iterator[list[str]]:
    """What SQLite is told by those who write; counts from the opening of the store on."""
    statements: list[str] = []
    with writing_connections(lambda connection: connection.set_trace_callback(statements.append)):
        yield statements
