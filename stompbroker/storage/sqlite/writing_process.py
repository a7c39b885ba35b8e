"""A process that does nothing but write to an embedded store.

Law: forked before anything else runs, and so as cheap as a thread; told which store it is, and whose; then it answers
one question at a time, and ends when nobody can ask any more. It writes as the broker it was forked from: the fence
in the store keeps out what a dead broker's process would still write. Its second thread shortens the log meanwhile.

Why a process: each of the ten steps of a commit takes the interpreter's lock, for which a thread waits as long as the
event loop likes. A batch of one message took 1.3 ms beside a loop that was half busy, and 0.5 ms here.
"""

from __future__ import annotations

import fcntl
import gc
import marshal
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import structlog

from stompbroker.errors import OperatorError
from stompbroker.storage.failures import StoreDamaged, StoreFailing, StoreRefused, StoreTaken
from stompbroker.storage.sqlite.backend import SqliteBackend
from stompbroker.storage.sqlite.batch_wire import Encoded, decode
from stompbroker.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbroker.storage.batch import Batch

__all__ = ["HEAD", "Question", "WritingProcess", "answered", "forked_writing_process", "question", "serve"]

#: In front of a question: how many bytes follow of what is asked, of a batch without tails, and of tails.
QUESTION_HEAD: Final = struct.Struct("<QQQ")
#: In front of an answer: how many bytes follow.
HEAD: Final = struct.Struct("<Q")

#: What an answer begins with if all is well, and what else it may be: the kind of error, then comes its text.
_WELL: Final = ""
_ERRORS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind for kind in (StoreDamaged, StoreFailing, StoreRefused, StoreTaken, OperatorError)
}
_RECEIVE_BYTES: Final = 1024 * 1024
#: Tails that are copied into one part, which mostly takes 0.02 ms; to send 1,500 as parts takes the kernel 0.25.
COPIED_BYTES: Final = 512 * 1024
#: A question without a batch.
NOTHING: Final = Encoded(b"", [])
#: Behind the standard streams.
FIRST_DESCRIPTOR: Final = 3
#: How long it may take to end once it is not needed any more, and how often we look, in seconds.
END_S: Final = 5.0
LOOK_S: Final = 0.002


log = structlog.get_logger()


class Question(IntEnum):
    #: File and token; no answer but that it is done.
    ADOPT = 1
    #: A batch and whether the size is asked for; the free bytes, whether the log wants upkeep, and the size.
    COMMIT = 2
    #: A batch; whether it would be accepted.
    WOULD_ACCEPT = 3
    #: Nothing; the number of the last batch there is.
    RECOVER = 4
    #: Whether the log's file is to become empty.
    CHECKPOINT = 5
    #: Nothing; how many bytes there is room for.
    FREE_BYTES = 6
    #: Whether the store is sound, as far as the broker knows. It is the last question.
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
def forked_writing_process() -> Iterator[WritingProcess | None]:
    """One that has ended when the block has; None where the system lets us have none, and a thread must do.

    Only where there is one thread: a fork has no other.
    """
    try:
        process = _fork()
    except OSError as error:
        log.warning("there is no process to write to the store; a thread does it", reason=str(error))
        yield None
        return
    try:
        yield process
    finally:
        process.end()


def _fork() -> WritingProcess:
    assert threading.active_count() == 1, "what other threads hold would be held for ever in a fork"
    with ExitStack() as unless_forked:
        (writes, asked_to_write), (upkeep, asked_for_upkeep) = _pair(unless_forked), _pair(unless_forked)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # `stompbroker serve >&-`
                stream.flush()
        pid = os.fork()
        unless_forked.pop_all()
    if pid:
        asked_to_write.close()
        asked_for_upkeep.close()
        return WritingProcess(pid=pid, writes=writes, upkeep=upkeep)
    code = 1
    try:
        writes.close()
        upkeep.close()
        _be_a_process_of_its_own()
        serve(asked_to_write, asked_for_upkeep)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Not `sys.exit`: whatever the broker has registered to be done at its end is not ours to do.
        os._exit(code)


def _pair(unless_forked: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Connected sockets, neither of which is a standard stream: where these were closed, their numbers are free."""
    ours, theirs = socket.socketpair()
    found = []
    for each in (ours, theirs):
        with each:
            found.append(socket.socket(fileno=fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)))
            unless_forked.enter_context(found[-1])
    return found[0], found[1]


def _be_a_process_of_its_own() -> None:
    """Ctrl-C and a signal to the whole group are for the broker, which ends us; nobody waits for our output. What is
    loaded by now stays for good: to search all of it for reference cycles takes 70 ms and more, and a commit waits."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    if nothing >= FIRST_DESCRIPTOR:
        os.close(nothing)
    gc.freeze()


# Asking ---------------------------------------------------------------------------------------------------------------


def question(kind: Question, content: Encoded = NOTHING, **rest: Any) -> list[bytes]:
    """As it is sent, in parts; what is large is not copied."""
    asked = marshal.dumps((kind.value, rest), 2)
    tails_bytes = sum(map(len, content.tails))
    head = QUESTION_HEAD.pack(len(asked), len(content.document), tails_bytes)
    if tails_bytes <= COPIED_BYTES:
        return [b"".join((head, asked, content.document, *content.tails))]
    return [head + asked, content.document, *content.tails]


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

    def answer_beside() -> None:
        try:
            _answer_all(upkeep, writer)
        except BaseException:
            # With a line that never answers again we would be worse than none: end, and a thread takes over.
            writes.shutdown(socket.SHUT_RDWR)
            raise

    threading.Thread(target=answer_beside, daemon=True).start()
    _answer_all(writes, writer)


def _answer_all(asked: socket.socket, writer: _Writer) -> None:
    with asked, suppress(ConnectionError):  # the broker is gone, and nobody wants to know any more
        while (received := _received(asked)) is not None:
            kind, rest = marshal.loads(received.asked)
            try:
                reply = _WELL, writer.answer(Question(kind), received, rest)
            except tuple(_ERRORS.values()) as error:
                reply = _name_of(error), str(error)
            answer = marshal.dumps(reply, 2)
            asked.sendall(HEAD.pack(len(answer)) + answer)
            if kind == Question.CLOSE:
                return


def _name_of(error: Exception) -> str:
    """The nearest class that the other end knows."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)


class _Received(NamedTuple):
    """A question without its head."""

    asked: bytearray
    document: bytearray
    tails: bytearray

    @property
    def batch(self) -> Batch:
        return decode(self.document, self.tails)


@final
class _Writer:
    """The store that is written to, once it is known which one that is."""

    def __init__(self) -> None:
        self._store: Store | None = None

    def answer(self, kind: Question, received: _Received, rest: dict[str, Any]) -> Any:
        if kind is Question.ADOPT:
            self._adopt(rest["file"], rest["token"])
            return None
        store = self._store
        if store is None:
            assert kind is Question.CLOSE, "nobody has said which store"
            return None
        match kind:
            case Question.COMMIT:
                store.commit(received.batch)
                return store.free_bytes(), store.needs_checkpoint, store.stored_bytes() if rest["measures"] else None
            case Question.WOULD_ACCEPT:
                return store.would_accept(received.batch)
            case Question.RECOVER:
                return store.recover()
            case Question.CHECKPOINT:
                return store.checkpoint(truncate=rest["truncate"])
            case Question.FREE_BYTES:
                return store.free_bytes()
            case Question.CLOSE:
                return store.close(is_sound=rest.get("is_sound", True))

    def _adopt(self, file: str, token: str) -> None:
        """Raises StoreFailing or OperatorError."""
        store = Store(SqliteBackend(Path(file)))
        try:
            store.adopt(token)
        except BaseException:
            store.close()
            raise
        self._store = store


def _received(asked: socket.socket) -> _Received | None:
    """One question; None if there is none any more."""
    head = _exactly(asked, QUESTION_HEAD.size)
    if head is None:
        return None
    parts: list[bytearray] = []
    for size_bytes in QUESTION_HEAD.unpack(head):
        if (part := _exactly(asked, size_bytes)) is None:
            return None  # in the middle of a question: it was never asked
        parts.append(part)
    return _Received(*parts)


def _exactly(asked: socket.socket, size_bytes: int) -> bytearray | None:
    """None if the other end has closed before."""
    data = bytearray(size_bytes)
    view, received = memoryview(data), 0
    while received < size_bytes:
        length = asked.recv_into(view[received:], min(_RECEIVE_BYTES, size_bytes - received))
        if not length:
            return None
        received += length
    return data
