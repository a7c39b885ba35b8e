"""A process that does nothing but write to an embedded store.

Forked before the broker has imported much, it has 14 MiB: it needs neither trio nor SQLAlchemy, since the broker
compiles its statements. It is told which store to write to, with which statements, and the owner's token; answers one
question at a time on one socket and runs checkpoints on another, and ends when both are closed. The fence in the store
keeps out what the process of a dead broker might still write.

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
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.errors import OperatorError
from stompbroker.storage.failures import StoreDamaged, StoreFailing, StoreRefused, StoreTaken, StoreWentBack
from stompbroker.storage.sqlite.batch_wire import decode, encode
from stompbroker.storage.sqlite.file_writing import FileWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbroker.storage.batch import Batch

#: Before a question: the lengths of the question itself, of a batch without tails, and of the tails.
QUESTION_HEAD: Final = struct.Struct("<QQQ")
#: Before an answer: its length.
HEAD: Final = struct.Struct("<Q")

#: An answer is this and a value, or the name of an error and its text.
_WELL: Final = ""
_ERRORS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind for kind in (StoreDamaged, StoreFailing, StoreRefused, StoreTaken, StoreWentBack, OperatorError)
}
_RECEIVE_BYTES: Final = 1024 * 1024
#: What is received first: a question of this size, or the beginning of a larger one.
SMALL_BYTES: Final = 32 * 1024
#: Up to this size tails are joined, which mostly takes 0.02 ms; sending 1,500 as parts takes the kernel 0.25.
COPIED_BYTES: Final = 512 * 1024
#: The first descriptor behind the standard streams.
FIRST_DESCRIPTOR: Final = 3
#: How long the process may take to end, and how often we look, in seconds.
END_S: Final = 5.0
LOOK_S: Final = 0.002


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WritingProcess:
    """The broker's end. The two sockets are independent; each takes one question at a time."""

    pid: int
    writes: socket.socket
    upkeep: socket.socket

    def end(self) -> str:
        """Close the sockets, wait for the process to end, and tell how it did. After END_S it is killed."""
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
def forked_writing_process() -> Iterator[WritingProcess | OSError]:
    """A writing process for the length of the block; why there is none where the system allows none, and a thread must
    do.

    The caller must have no second thread. The less it has imported, the smaller the process is.
    """
    try:
        process = _fork()
    except OSError as error:
        yield error
        return
    try:
        yield process
    finally:
        process.end()


def _fork() -> WritingProcess:
    assert threading.active_count() == 1, "locks of other threads would be held for ever in a fork"
    # A search for reference cycles would write to every object, and both processes have pages of their own then.
    gc.freeze()
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
        # Not `sys.exit`, which would run the broker's exit handlers.
        os._exit(code)


def _pair(unless_forked: ExitStack) -> list[socket.socket]:
    """Connected sockets that do not become standard streams, whose numbers are free if these were closed."""
    found = []
    for each in socket.socketpair():
        with each:
            found.append(socket.socket(fileno=fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)))
            unless_forked.enter_context(found[-1])
    return found


def _be_a_process_of_its_own() -> None:
    """Ignore Ctrl-C and signals to the group, which the broker obeys and then ends us. Detach from standard streams.
    Loaded objects are out of searches for reference cycles, which take 70 ms and more while a commit waits."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    if nothing >= FIRST_DESCRIPTOR:
        os.close(nothing)
    gc.freeze()
    gc.enable()


# Asking ---------------------------------------------------------------------------------------------------------------


def question(method: str, batch: Batch | None = None, **rest: Any) -> list[bytes]:
    """The bytes that have a method of the store called, in parts; large tails are not copied. A large batch takes long.

    The first is `adopt`, which takes what `hand_over` of the store returns; the last is `close`.
    """
    asked = marshal.dumps((method, rest), 2)
    document, tails = (b"", []) if batch is None else encode(batch)
    tails_bytes = sum(map(len, tails))
    head = QUESTION_HEAD.pack(len(asked), len(document), tails_bytes)
    if tails_bytes <= COPIED_BYTES:
        return [b"".join((head, asked, document, *tails))]
    return [head + asked, document, *tails]


def answered(data: bytes) -> Any:
    """The value of an answer without its head. Raises StoreFailing, StoreRefused, StoreTaken or OperatorError."""
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
            # A socket that never answers again is worse than none: end, so that a thread takes over.
            writes.shutdown(socket.SHUT_RDWR)
            raise

    threading.Thread(target=answer_beside, daemon=True).start()
    _answer_all(writes, writer)


def _answer_all(asked: socket.socket, writer: _Writer) -> None:
    with asked, suppress(ConnectionError):  # the broker has gone, perhaps in the middle of a question
        while True:
            question, document, tails = next_question(asked)
            method, rest = marshal.loads(question)
            try:
                reply = _WELL, writer.answer(method, rest, document, tails)
            except tuple(_ERRORS.values()) as error:
                nearest = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
                reply = nearest, str(error)
            answer = marshal.dumps(reply, 2)
            asked.sendall(HEAD.pack(len(answer)) + answer)
            if method == "close":
                return


def next_question(asked: socket.socket) -> list[memoryview]:
    """The question, a batch without tails, and the tails. Raises ConnectionError if the broker has closed the socket.

    Nothing is sent behind a question before it is answered, so one call receives a small one as a whole.
    """
    begun = asked.recv(SMALL_BYTES)
    while 0 < len(begun) < QUESTION_HEAD.size and (more := asked.recv(SMALL_BYTES)):
        begun += more
    if len(begun) < QUESTION_HEAD.size:
        raise ConnectionAbortedError
    sizes = QUESTION_HEAD.unpack_from(begun)
    whole = memoryview(bytearray(QUESTION_HEAD.size + sum(sizes)))
    whole[: len(begun)] = begun
    missing = whole[len(begun) :]
    while missing:
        length = asked.recv_into(missing, min(_RECEIVE_BYTES, len(missing)))
        if not length:
            raise ConnectionAbortedError
        missing = missing[length:]
    ends = list(accumulate(sizes, initial=QUESTION_HEAD.size))
    return [whole[start:end] for start, end in pairwise(ends)]


@final
class _Writer:
    """The store to write to, once the broker has named it."""

    def __init__(self) -> None:
        self._store: FileWriter | None = None

    def answer(self, method: str, rest: dict[str, Any], document: memoryview, tails: memoryview) -> Any:
        if method == "adopt":
            self._adopt(**rest)
        elif self._store is not None:
            batch = [decode(document, tails)] if document else []
            return getattr(self._store, method)(*batch, **rest)
        else:
            assert method == "close", "there is no store yet"
        return None

    def _adopt(self, file: str, token: str, **texts: Any) -> None:
        """Raises StoreFailing or OperatorError."""
        store = FileWriter(Path(file), **texts)
        try:
            store.adopt(token)
        except BaseException:
            store.close()
            raise
        self._store = store
