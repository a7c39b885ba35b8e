"""A process that does nothing but write to an embedded store.

Law: forked before anything else runs, and so as cheap as a thread; told which store it is, and whose; then it answers
one question at a time, and ends when nobody can ask any more. It writes as the broker it was forked from: the fence
in the store keeps out what a dead broker's process would still write. A second thread of it shortens the log meanwhile.

Why a process: each of the ten steps of a commit takes the interpreter's lock, for which a thread waits as long as the
event loop likes. A batch of one message took 1.3 ms beside a loop that was half busy, and 0.5 ms here.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.errors import OperatorError
from stompbroker.storage.batch_wire import decode
from stompbroker.storage.errors import StoreFailing, StoreRefused, StoreTaken
from stompbroker.storage.sqlite_backend import SqliteBackend
from stompbroker.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HEAD", "Question", "WritingProcess", "answered", "forked_writing_process", "question", "serve"]

#: In front of everything: how many bytes follow.
HEAD: Final = struct.Struct("<Q")

#: What an answer begins with if all is well, and what else it may be: the kind of error, then comes its text.
_WELL: Final = ""
_ERRORS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind for kind in (StoreFailing, StoreRefused, StoreTaken, OperatorError)
}
_RECEIVE_BYTES: Final = 1024 * 1024
#: How long it may take to end once it is not needed any more, and how often we look, in seconds.
END_S: Final = 5.0
LOOK_S: Final = 0.002


class Question(IntEnum):
    #: File and token; no answer but that it is done.
    ADOPT = 1
    #: A batch and whether the size is asked for; the free bytes, whether the log should be shortened, and the size.
    COMMIT = 2
    #: A batch; whether it would be accepted.
    WOULD_ACCEPT = 3
    #: Nothing; the number of the last batch there is.
    RECOVER = 4
    #: Whether the log's file is to become empty.
    CHECKPOINT = 5
    #: Nothing; how many bytes there is room for.
    FREE_BYTES = 6
    #: Nothing. It is the last question.
    CLOSE = 7


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WritingProcess:
    """How the one who forked it reaches it. The two sockets are asked independently, each one thing at a time."""

    pid: int
    writes: socket.socket
    upkeep: socket.socket

    def end(self) -> str:
        """Let go of it, wait until it has ended, and say how. One that does not end is killed, and not waited for."""
        self.writes.close()
        self.upkeep.close()
        gives_up_at_s = time.monotonic() + END_S
        with suppress(ChildProcessError):
            while (ended := os.waitpid(self.pid, os.WNOHANG)) == (0, 0):
                if time.monotonic() > gives_up_at_s:
                    self.kill()
                    return f"it did not end within {END_S:g} s"
                time.sleep(LOOK_S)
            code = os.waitstatus_to_exitcode(ended[1])
            return f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        return "it has ended"

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


@contextmanager
def forked_writing_process() -> Iterator[WritingProcess]:
    """One that has ended when the block has. Only where there is one thread: a fork has no other."""
    process = _fork()
    try:
        yield process
    finally:
        process.end()


def _fork() -> WritingProcess:
    assert threading.active_count() == 1, "what other threads hold would be held for ever in a fork"
    ours, theirs = socket.socketpair(), socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        ours[1].close()
        theirs[1].close()
        return WritingProcess(pid=pid, writes=ours[0], upkeep=theirs[0])
    code = 1
    try:
        ours[0].close()
        theirs[0].close()
        _be_a_process_of_its_own()
        serve(ours[1], theirs[1])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Not `sys.exit`: whatever the broker has registered to be done at its end is not ours to do.
        os._exit(code)


def _be_a_process_of_its_own() -> None:
    """Ctrl-C and a signal to the whole group are for the broker, which ends us; nobody waits for our output."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


# Asking ---------------------------------------------------------------------------------------------------------------


def question(kind: Question, content: bytes = b"", **rest: Any) -> bytes:
    """As it is sent."""
    data = marshal.dumps((kind.value, rest, content), 2)
    return HEAD.pack(len(data)) + data


def answered(data: bytes) -> Any:
    """What it has answered, without the head. Raises StoreFailing, StoreRefused, StoreTaken or OperatorError."""
    kind, content = marshal.loads(data)
    if kind == _WELL:
        return content
    raise _ERRORS[kind](content)


# Answering ------------------------------------------------------------------------------------------------------------


def serve(writes: socket.socket, upkeep: socket.socket) -> None:
    """Answer on both sockets until the broker has closed them, or has asked us to close."""
    writer = _Writer()
    beside = threading.Thread(target=_answer_all, args=(upkeep, writer), daemon=True)
    beside.start()
    _answer_all(writes, writer)


def _answer_all(asked: socket.socket, writer: _Writer) -> None:
    with suppress(ConnectionError):  # the broker is gone, and nobody wants to know any more
        while (data := _received(asked)) is not None:
            kind, rest, content = marshal.loads(data)
            try:
                reply = _WELL, writer.answer(Question(kind), content, rest)
            except tuple(_ERRORS.values()) as error:
                reply = type(error).__name__, str(error)
            answer = marshal.dumps(reply, 2)
            asked.sendall(HEAD.pack(len(answer)) + answer)
            if kind == Question.CLOSE:
                return


@final
class _Writer:
    """The store that is written to, once it is known which one that is."""

    def __init__(self) -> None:
        self._store: Store | None = None

    def answer(self, kind: Question, content: bytes, rest: dict[str, Any]) -> Any:
        if kind is Question.ADOPT:
            self._store = Store(SqliteBackend(Path(rest["file"])))
            self._store.adopt(rest["token"])
            return None
        store = self._store
        assert store is not None, "nobody has said which store"
        match kind:
            case Question.COMMIT:
                store.commit(decode(content))
                return store.free_bytes(), store.needs_checkpoint, store.stored_bytes() if rest["measures"] else None
            case Question.WOULD_ACCEPT:
                return store.would_accept(decode(content))
            case Question.RECOVER:
                return store.recover()
            case Question.CHECKPOINT:
                return store.checkpoint(truncate=rest["truncate"])
            case Question.FREE_BYTES:
                return store.free_bytes()
            case Question.CLOSE:
                return store.close()


def _received(asked: socket.socket) -> bytearray | None:
    """One question without its head; None if there is none any more."""
    head = _exactly(asked, HEAD.size)
    return None if head is None else _exactly(asked, HEAD.unpack(head)[0])


def _exactly(asked: socket.socket, size_bytes: int) -> bytearray | None:
    data = bytearray(size_bytes)
    view, received = memoryview(data), 0
    while received < size_bytes:
        length = asked.recv_into(view[received:], min(_RECEIVE_BYTES, size_bytes - received))
        if not length:
            return None  # in the middle of a question too: it was never asked
        received += length
    return data
