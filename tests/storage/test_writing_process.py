"""The process that writes, asked over its sockets; here in a thread, which is as good."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import pytest

from stompbroker.errors import OperatorError
from stompbroker.storage import (
    HEAD,
    StoreFailing,
    StoreRefused,
    StoreTaken,
    answered,
    forked_writing_process,
    question,
)
from stompbroker.storage.sqlite.file_writing import FileWriter
from stompbroker.storage.sqlite.writing_process import QUESTION_HEAD, SMALL_BYTES, next_question, serve
from tests.storage.place import publication, topic
from tests.support.messages import make_messages
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.prepared_process import PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbroker.storage import Batch, Store
    from tests.storage.place import Place


@final
class Asker:
    """Asks on two sockets, and waits for the answers."""

    def __init__(self, writes: socket.socket, upkeep: socket.socket, serving: threading.Thread) -> None:
        self.writes = writes
        self.upkeep = upkeep
        self._serving = serving
        for each in (writes, upkeep):
            each.settimeout(HARD_TIMEOUT_S)

    def ask(self, method: str, batch: Batch | None = None, **rest: Any) -> Any:
        line = self.upkeep if method == "checkpoint" else self.writes
        line.sendall(b"".join(question(method, batch, **rest)))
        (size_bytes,) = HEAD.unpack(line.recv(HEAD.size, socket.MSG_WAITALL))
        return answered(line.recv(size_bytes, socket.MSG_WAITALL))

    def commit(self, batch: Batch) -> Any:
        return self.ask("write", batch, measures=False)

    def adopt(self, store: Store) -> None:
        self.ask("adopt", **store.hand_over())

    def wait_ended(self) -> None:
        self._serving.join(HARD_TIMEOUT_S)
        assert not self._serving.is_alive()


@contextmanager
def asker() -> Iterator[Asker]:
    (writes, asked_to_write), (upkeep, asked_for_upkeep) = socket.socketpair(), socket.socketpair()
    serving = threading.Thread(target=serve, args=(asked_to_write, asked_for_upkeep))
    serving.start()
    with writes, upkeep:
        found = Asker(writes, upkeep, serving)
        yield found
    found.wait_ended()


@pytest.fixture
def adopted(sqlite_place: Place) -> Iterator[Asker]:
    """One that writes to the store at `sqlite_place`."""
    store = sqlite_place.owned_store()
    with asker() as found:
        found.adopt(store)
        yield found
        found.ask("close")


def test_batches_are_written_as_by_the_store_itself(adopted: Asker, sqlite_place: Place) -> None:
    messages = make_messages(500, size_bytes=300)

    free_bytes, needs_checkpoint, stored_bytes = adopted.commit(publication(1, messages))

    assert free_bytes > 0
    assert (needs_checkpoint, stored_bytes) == (False, None)
    tails = sqlite_place.query("SELECT tail FROM messages ORDER BY offset")
    assert [tail for (tail,) in tails] == [message.tail for message in messages]
    assert adopted.ask("recover") == 1
    assert adopted.ask("free_bytes") > 0


def test_the_size_is_told_when_it_is_asked_for(adopted: Asker, sqlite_place: Place) -> None:
    _, _, stored_bytes = adopted.ask("write", publication(1, make_messages(1)), measures=True)

    files = [sqlite_place.directory / name for name in ("stompbroker.db", "stompbroker.db-wal")]
    assert stored_bytes == sum(file.stat().st_size for file in files)


def test_refused_rows_are_refused_and_do_no_harm(adopted: Asker, sqlite_place: Place) -> None:
    poison = publication(1, make_messages(1))
    poison.topics.append(topic(2, name="topic.1"))

    with pytest.raises(StoreRefused):
        adopted.commit(poison)

    assert adopted.ask("would_accept", poison) is False
    assert adopted.ask("would_accept", publication(1, make_messages(1))) is True
    adopted.commit(publication(1, make_messages(1)))
    assert sqlite_place.count("messages") == 1


def test_a_batch_out_of_order_fails_and_can_be_recovered_from(adopted: Asker) -> None:
    with pytest.raises(StoreFailing, match="Batch 5 was to be written"):
        adopted.commit(publication(5, make_messages(1)))
    with pytest.raises(StoreFailing, match="not recovered"):
        adopted.commit(publication(1, make_messages(1)))

    assert adopted.ask("recover") == 0
    adopted.commit(publication(1, make_messages(1)))


def test_the_fence_keeps_out_the_process_of_a_broker_that_is_gone(adopted: Asker, sqlite_place: Place) -> None:
    adopted.commit(publication(1, make_messages(1)))
    sqlite_place.owned_store("the next broker")

    with pytest.raises(StoreTaken, match="the next broker"):
        adopted.commit(publication(2, make_messages(1), first_offset=1))

    assert sqlite_place.count("messages") == 1


def test_the_process_of_a_broker_that_goes_on_by_itself_cannot_write_a_batch_twice(sqlite_place: Place) -> None:
    """As if it had been given up while it hung, and then came back: it is the owner still."""
    store = sqlite_place.owned_store()
    with asker() as late:
        late.adopt(store)
        assert store.recover() == 0
        store.commit(publication(1, make_messages(1)))

        with pytest.raises(StoreFailing):
            late.commit(publication(1, make_messages(1)))
        late.ask("close")

    assert sqlite_place.count("messages") == 1


def test_the_log_is_shortened_beside_the_writer(adopted: Asker, sqlite_place: Place) -> None:
    adopted.commit(publication(1, make_messages(100)))

    adopted.ask("checkpoint", truncate=True)

    assert (sqlite_place.directory / "stompbroker.db-wal").stat().st_size == 0


@pytest.mark.parametrize(("size_bytes", "is_copied"), [(100, True), (10_000, False)])
def test_a_small_batch_is_one_part_and_a_large_one_is_not_copied(size_bytes: int, is_copied: bool) -> None:
    messages = make_messages(100, size_bytes=size_bytes)

    parts = question("write", publication(1, messages), measures=False)

    assert len(parts) == (1 if is_copied else 102)
    if not is_copied:
        assert all(part is message.tail for part, message in zip(parts[2:], messages, strict=True))


class CountedSocket(socket.socket):
    """Knows how often it was asked for something to receive."""

    receptions = 0

    def recv(self, *arguments: Any) -> bytes:
        self.receptions += 1
        return super().recv(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        self.receptions += 1
        return super().recv_into(*arguments)


@pytest.mark.parametrize("size_bytes", [100, SMALL_BYTES - 1000, SMALL_BYTES, 10 * SMALL_BYTES])
def test_a_small_question_is_received_with_one_call(size_bytes: int) -> None:
    asking, answering = socket.socketpair()
    parts = question("write", publication(1, make_messages(1, size_bytes=size_bytes)), measures=False)
    with asking, CountedSocket(fileno=answering.detach()) as asked:
        sending = threading.Thread(target=asking.sendall, args=(b"".join(parts),))
        sending.start()
        if size_bytes < SMALL_BYTES - 1000:
            sending.join()  # all of it is there

        asked_for, document, tails = next_question(asked)
        sending.join()

        whole = b"".join((asked_for, document, tails))
        assert b"".join(parts)[QUESTION_HEAD.size :] == whole
        assert len(tails) > size_bytes
        assert asked.receptions == 1 or size_bytes > 100


@pytest.mark.parametrize("sent_bytes", [0, QUESTION_HEAD.size - 1, QUESTION_HEAD.size, 100])
def test_a_question_that_breaks_off_is_the_end_of_the_broker(sent_bytes: int) -> None:
    asking, asked = socket.socketpair()
    (whole,) = question("write", publication(1, make_messages(1)), measures=False)
    with asked:
        with asking:
            asking.sendall(whole[:sent_bytes])

        with pytest.raises(ConnectionError):
            next_question(asked)


def test_a_question_may_come_byte_by_byte() -> None:
    asking, asked = socket.socketpair()
    (whole,) = question("close", is_sound=True)

    def trickle() -> None:
        for byte in whole:
            asking.sendall(bytes((byte,)))

    with asking, asked:
        trickling = threading.Thread(target=trickle)
        trickling.start()

        assert b"".join(next_question(asked)) == whole[QUESTION_HEAD.size :]
        trickling.join()


# Ending --------------------------------------------------------------------------------------------------------------


def test_closing_copies_everything_back_and_is_the_end(sqlite_place: Place) -> None:
    store = sqlite_place.owned_store()
    with asker() as found:
        found.adopt(store)
        found.commit(publication(1, make_messages(10)))

        found.ask("close")

        found.wait_ended()
    assert (sqlite_place.directory / "stompbroker.db-wal").stat().st_size == 0


def test_one_that_never_got_a_store_can_be_closed() -> None:
    with asker() as found:
        found.ask("close")

        found.wait_ended()


@pytest.mark.parametrize("sent_bytes", [0, 3, 30, 100])
def test_it_ends_when_nobody_can_ask_any_more(sqlite_place: Place, sent_bytes: int) -> None:
    """In the middle of a question too, which was never asked then."""
    store = sqlite_place.owned_store()
    with asker() as found:
        found.adopt(store)
        data = b"".join(question("write", publication(1, make_messages(1)), measures=False))
        found.writes.sendall(data[:sent_bytes])
    assert sqlite_place.count("messages") == 0


def test_it_ends_when_nobody_waits_for_its_answer(sqlite_place: Place) -> None:
    store = sqlite_place.owned_store()
    with asker() as found:
        found.adopt(store)
        found.writes.sendall(b"".join(question("write", publication(1, make_messages(1)), measures=False)))
    assert sqlite_place.count("messages") == 1


def test_a_mistake_beside_the_writer_ends_both(sqlite_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a checkpoint would otherwise wait for ever, and the journal with him."""
    store = sqlite_place.owned_store()
    was_told = threading.Event()

    def fail(_store: FileWriter, *, truncate: bool) -> None:
        raise RuntimeError("a mistake of ours")

    with asker() as found:
        found.adopt(store)
        monkeypatch.setattr(FileWriter, "checkpoint", fail)
        monkeypatch.setattr(threading, "excepthook", lambda _: was_told.set())
        found.upkeep.sendall(b"".join(question("checkpoint", truncate=False)))

        assert found.upkeep.recv(1) == b""
        assert found.writes.recv(1) == b""
        found.wait_ended()
        assert was_told.wait(HARD_TIMEOUT_S)


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [StoreFailing, StoreRefused, StoreTaken, OperatorError])
def test_an_error_comes_back_as_what_it_was(
    adopted: Asker, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fail(_store: FileWriter) -> int:
        raise kind("a sentence")

    monkeypatch.setattr(FileWriter, "recover", fail)

    with pytest.raises(kind) as caught:
        adopted.ask("recover")

    assert (type(caught.value), str(caught.value)) == (kind, "a sentence")


def test_an_error_of_a_narrower_kind_comes_back_as_the_nearest_that_is_known(
    adopted: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Narrower(StoreTaken):
        pass

    def fail(_store: FileWriter) -> int:
        raise Narrower("a sentence")

    monkeypatch.setattr(FileWriter, "recover", fail)

    with pytest.raises(StoreTaken):
        adopted.ask("recover")


# Forking -------------------------------------------------------------------------------------------------------------


def test_a_system_that_lets_us_have_no_process_leaves_no_descriptors_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    before = set(os.listdir("/proc/self/fd"))

    with forked_writing_process() as process:
        assert isinstance(process, BlockingIOError)

    # Fewer is right as well: what other tests left open may be closed meanwhile.
    assert set(os.listdir("/proc/self/fd")) <= before


def test_what_the_broker_has_loaded_is_not_searched_for_reference_cycles() -> None:
    """In the middle of a commit, which would wait for that."""
    code = """
import gc, sys
from stompbroker.storage.sqlite.writing_process import _be_a_process_of_its_own
loaded = len(gc.get_objects())
_be_a_process_of_its_own()
print(gc.get_freeze_count() >= 0.9 * loaded > 1000, file=sys.stderr)
"""

    done = subprocess.run([*PYTHON, "-c", code], capture_output=True, text=True, check=True, timeout=HARD_TIMEOUT_S)

    assert done.stderr == "True\n"
