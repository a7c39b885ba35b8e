"""The process that prepared processes are forked from: it imports everything once, and then does nothing but fork.

Law: runs as a script of its own. It has one thread, opens nothing, runs none of our code, and ends when nobody can ask
it for anything any more. What it forks becomes the interpreter it was asked for, and ends as one does, except that it
does not take apart what was imported before the fork: that took 0.11 s of processor time, and most commands take 0.03.

An order is one datagram: a JSON object and the descriptors that the process gets. The answer is the process id.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import random
import runpy
import signal
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Final

#: More than an environment and a command line have together in any test.
LARGEST_ORDER_BYTES: Final = 128 * 1024

#: What keeps libraries from starting threads when they are imported; a fork would not have them.
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

#: What our modules import only when they need it, and most commands or a broker do.
_IMPORTED_LATE: Final = (
    "hypercorn.trio.tcp_server",
    "hypercorn.trio.worker_context",
    "psycopg",
    "pyarrow.fs",
    "pyarrow.parquet",
    "rich.live",
    "rich.progress",
    "sqlalchemy.dialects.postgresql.psycopg",
    "typer.rich_utils",
)
#: Ours that are run as programs: Python warns when such a module was imported before.
_PROGRAMS: Final = ("__main__", "export_process")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """To be `python -W error -m MODULE …` or `python -W error -c CODE …` with this environment and directory."""

    command: list[str]
    environment: dict[str, str]
    directory: str

    def as_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, text: bytes) -> Order:
        return cls(**json.loads(text))


def main() -> None:
    # Ctrl-C is for pytest, and whoever it is for besides has been forked.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = socket.socket(fileno=int(sys.argv[1]))
    # What is there before the first fork is garbage for none of them, and not looked through by any.
    gc.disable()
    _import_everything()
    chances = [thing for thing in gc.get_objects() if isinstance(thing, random.Random)]
    gc.freeze()
    order = _fork_as_ordered(orders)
    if order is None:
        return
    gc.enable()
    for chance in chances:
        chance.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _run(order.command)
        code = 0
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    _end(code)


def _end(code: int) -> None:
    """What the interpreter does at its end, in its order. Where that fails, it is left to the interpreter."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what was left unclosed in a reference cycle is warned of
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code & 0xFF)


def _import_everything() -> None:
    ours = importlib.import_module("stompbroker").__path__
    names = (module.name for module in pkgutil.walk_packages(ours, "stompbroker."))
    for name in (*(name for name in names if name.rpartition(".")[2] not in _PROGRAMS), *_IMPORTED_LATE):
        # Some are of an extra that need not be installed.
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"an import has started threads: there are {threads}, and a fork would have one"


def _fork_as_ordered(orders: socket.socket) -> Order | None:
    """Returns once in every process that was ordered, with its order, and without one when there are no more."""
    with orders:
        while True:
            text, descriptors, _flags, _address = socket.recv_fds(orders, LARGEST_ORDER_BYTES, 3)
            if not text:
                return None
            pid = _fork_for_parent()
            if pid == 0:
                orders.close()
                order = Order.read(text)
                _take_over(order, descriptors)
                return order
            for descriptor in descriptors:
                os.close(descriptor)
            orders.send(str(pid).encode())


def _fork_for_parent() -> int:
    """A fork that is not our child but our parent's, if that adopts: its own parent, in between, has ended."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os.close(writing)
            return 0
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.waitpid(between, 0)
    pid = int(os.read(reading, 32))
    os.close(reading)
    os.close(writing)
    return pid


def _take_over(order: Order, descriptors: list[int]) -> None:
    """What an interpreter finds when it is started: streams, environment, directory."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # As the interpreter opens them: what could not be written to stderr is not kept for another try.
    for number, (name, mode) in enumerate((("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb"))):
        before = getattr(sys, name)
        binary = os.fdopen(number, mode, 0 if name == "stderr" else -1, closefd=False)
        stream = io.TextIOWrapper(
            binary, before.encoding, before.errors, line_buffering=binary.isatty(), write_through=name == "stderr"
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(order.directory)
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()


def _run(command: list[str]) -> None:
    match command:
        case [_, "-W", "error", "-m", module, *arguments]:
            sys.path.insert(0, os.getcwd())
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [_, "-W", "error", "-c", code, *arguments]:
            sys.path.insert(0, "")
            sys.argv = ["-c", *arguments]
            exec(code, {"__name__": "__main__"})
        case _:
            raise ValueError(f"only `python -W error -m …` and `python -W error -c …` are prepared: {command}")


if __name__ == "__main__":
    main()
