"""Whichever way a store is written to, and whatever becomes of the process that does it, a batch is written once."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, final

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from stompbroker.journal import store_writer
from stompbroker.journal.store_writer import FEW, StoreWriter
from stompbroker.storage import StoreFailing, StoreRefused, open_store, question
from stompbroker.storage.sqlite import writing_process
from tests.journal.journal_under_test import query
from tests.storage.place import publication, topic
from tests.support.messages import make_messages
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.writing_process import Dies, begun_writing_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stompbroker.storage import Batch, Store, WritingProcess

LOST = "the process that writes to the store is lost; a thread does it from now on"


@final
class Written:
    """A writer, its process and its store."""

    def __init__(self, process: WritingProcess, store: Store, directory: Path) -> None:
        self.process = process
        self.writer = StoreWriter(store)
        self._directory = directory

    async def commit(self, batch: Batch) -> None:
        await self.writer.commit(batch, measures=False)

    def stored(self) -> list[bytes]:
        return [tail for (tail,) in query(self._directory, "SELECT tail FROM messages ORDER BY offset")]

    def last_batch(self) -> int:
        ((number,),) = query(self._directory, "SELECT batch FROM journal_state")
        return int(number)

    def kill(self) -> None:
        self.process.kill()
        # Not reaped: whoever takes over does that.
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)


@asynccontextmanager
async def writing(directory: Path, dies: Dies = Dies.NEVER) -> AsyncIterator[Written]:
    """A writer that has not yet adopted its process."""
    store = open_store("", directory)
    store.take_ownership("the test")
    try:
        with begun_writing_process(dies) as process, trio.fail_after(HARD_TIMEOUT_S):
            found = Written(process, store, directory)
            yield found
            await found.writer.close()
    finally:
        store.close()


# While it lives ------------------------------------------------------------------------------------------------------


async def test_batches_larger_than_any_buffer_arrive_whole_and_in_order(store_directory: Path) -> None:
    small, large = make_messages(3 * store_writer.MOST_PARTS, size_bytes=300), make_messages(8, size_bytes=1_000_000)
    async with writing(store_directory) as written:
        await written.writer.adopt(written.process)

        await written.commit(publication(1, small))
        await written.commit(publication(2, large, first_offset=len(small)))
        await written.commit(publication(3, make_messages(1), first_offset=len(small) + len(large)))

        assert written.stored() == [message.tail for message in (*small, *large, *make_messages(1))]


async def test_what_it_refuses_is_refused(store_directory: Path) -> None:
    poison = publication(1, make_messages(1))
    poison.topics.append(topic(2, name="topic.1"))
    async with writing(store_directory) as written:
        await written.writer.adopt(written.process)

        with pytest.raises(StoreRefused):
            await written.commit(poison)

        assert not await written.writer.would_accept(poison)
        assert await written.writer.would_accept(publication(1, make_messages(1)))
        await written.commit(publication(1, make_messages(1)))
        assert await written.writer.recover() == 1
        assert (await written.writer.free_bytes() or 0) > 0
        await written.writer.checkpoint(truncate=True)


async def test_many_messages_are_encoded_outside_of_the_event_loop(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def watched(method: str, batch: Batch | None = None, **rest: Any) -> list[bytes]:
        threads.append(threading.current_thread())
        return question(method, batch, **rest)

    async with writing(store_directory) as written:
        await written.writer.adopt(written.process)
        monkeypatch.setattr(store_writer, "question", watched)

        await written.commit(publication(1, make_messages(FEW)))
        await written.commit(publication(2, make_messages(FEW + 1), first_offset=FEW))
        monkeypatch.undo()

    assert [thread is threading.main_thread() for thread in threads] == [True, False]


# When it is lost -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dies", "is_written"), [(Dies.BEFORE, False), (Dies.DURING, False), (Dies.AFTER, True)], ids=str
)
async def test_a_batch_whose_answer_is_lost_is_neither_lost_nor_doubled(
    store_directory: Path, dies: Dies, is_written: bool
) -> None:
    batch = publication(1, make_messages(3))
    async with writing(store_directory, dies) as written:
        await written.writer.adopt(written.process)
        with pytest.raises(StoreFailing, match="has ended"):
            await written.commit(batch)

        with capture_logs() as logs:
            last_batch = await written.writer.recover()

        assert [(entry["event"], entry["reason"]) for entry in logs] == [(LOST, "it was killed by signal 9")]
        assert last_batch == written.last_batch() == int(is_written)
        if not is_written:
            await written.commit(batch)
        await written.commit(publication(2, make_messages(1), first_offset=3))
        assert len(written.stored()) == 4
        assert await written.writer.recover() == 2
        assert await written.writer.would_accept(publication(3, make_messages(1), first_offset=4))
        await written.writer.checkpoint(truncate=True)
        assert (await written.writer.free_bytes() or 0) > 0


async def test_one_that_was_killed_while_it_had_nothing_to_do_is_missed_with_the_next_batch(
    store_directory: Path,
) -> None:
    async with writing(store_directory) as written:
        await written.writer.adopt(written.process)
        await written.commit(publication(1, make_messages(1)))
        written.kill()

        with pytest.raises(StoreFailing):
            await written.writer.checkpoint()
        with pytest.raises(StoreFailing):
            await written.commit(publication(2, make_messages(1), first_offset=1))

        assert await written.writer.recover() == 1
        await written.commit(publication(2, make_messages(1), first_offset=1))
        assert len(written.stored()) == 2


async def test_one_that_is_lost_before_it_knows_its_store_is_done_without(store_directory: Path) -> None:
    async with writing(store_directory) as written:
        written.kill()

        with capture_logs() as logs:
            await written.writer.adopt(written.process)

        assert [entry["event"] for entry in logs] == [LOST]
        await written.commit(publication(1, make_messages(1)))
        assert len(written.stored()) == 1


async def test_who_waits_for_a_checkpoint_is_told_when_a_thread_takes_over(store_directory: Path) -> None:
    async with writing(store_directory) as written, trio.open_nursery() as nursery:
        await written.writer.adopt(written.process)
        os.kill(written.process.pid, signal.SIGSTOP)
        failures: list[StoreFailing] = []

        async def shorten() -> None:
            with pytest.raises(StoreFailing) as caught:
                await written.writer.checkpoint()
            failures.append(caught.value)

        nursery.start_soon(shorten)
        await wait_all_tasks_blocked()
        assert not failures
        written.kill()
        with pytest.raises(StoreFailing):
            await written.commit(publication(1, make_messages(1)))

        assert await written.writer.recover() == 0
        await wait_all_tasks_blocked()

        assert len(failures) == 1


async def test_one_that_hangs_from_the_start_is_replaced_by_a_thread(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "ADOPT_S", 0.05)
    monkeypatch.setattr(writing_process, "END_S", 0.05)
    async with writing(store_directory) as written:
        os.kill(written.process.pid, signal.SIGSTOP)

        with capture_logs() as logs:
            await written.writer.adopt(written.process)

        assert [(entry["event"], entry["reason"]) for entry in logs] == [(LOST, "it has not answered within 0.05 s")]
        assert written.process.end() == "it was killed by signal 9"
        await written.commit(publication(1, make_messages(1)))
        assert len(written.stored()) == 1


# Ending --------------------------------------------------------------------------------------------------------------


async def test_at_the_end_it_has_closed_the_store_and_ends(store_directory: Path) -> None:
    async with writing(store_directory) as written:
        await written.writer.adopt(written.process)
        await written.commit(publication(1, make_messages(10)))

        await written.writer.close()

        assert (store_directory / "stompbroker.db-wal").stat().st_size == 0
        assert written.process.end() == "it ended with exit code 0"


async def test_one_that_hangs_is_killed_when_nobody_waits_any_longer(store_directory: Path) -> None:
    async with writing(store_directory) as written:
        await written.writer.adopt(written.process)
        os.kill(written.process.pid, signal.SIGSTOP)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(written.writer.close)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

        assert written.process.end() == "it was killed by signal 9"


async def test_one_that_was_left_in_the_middle_of_a_batch_is_not_asked_to_close(store_directory: Path) -> None:
    """It ends by itself when it finds that nobody waits."""
    async with writing(store_directory) as written:
        await written.writer.adopt(written.process)
        os.kill(written.process.pid, signal.SIGSTOP)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(written.commit, publication(1, make_messages(1)))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

        await written.writer.close()

        os.kill(written.process.pid, signal.SIGCONT)
        assert written.process.end() == "it ended with exit code 0"
