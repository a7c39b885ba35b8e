"""Processes of ours as their users have them, except that their imports were made before.

Law: a prepared process is forked from one that has imported everything and done nothing (`preparation`), and is a child
of this process like any other: it is waited for, signalled and killed as one. Importing takes a command a second or two
of processor time, and most commands nothing else does. What is about the start itself uses `subprocess`, and so does
everybody where the kernel gives no orphans away (anything but Linux).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, AnyStr, Final, final

from stompbroker.config import ENVIRONMENT_PREFIX
from tests.support import preparation
from tests.support.patience import SPARK_TIMEOUT_S
from tests.support.preparation import LARGEST_ORDER_BYTES, ONE_THREAD, Order

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How every prepared process begins. Warnings are errors in our processes as they are in the tests.
PYTHON: Final = [sys.executable, "-W", "error"]

_PR_SET_CHILD_SUBREAPER: Final = 36


@final
class PreparedProcess(subprocess.Popen[AnyStr]):
    """`subprocess.Popen` for a command that begins with PYTHON, followed by `-m` or `-c`."""

    def _execute_child(
        self,
        args: list[str],
        executable: None,
        preexec_fn: None,
        close_fds: bool,
        pass_fds: tuple[int, ...],
        cwd: Path | str | None,
        env: dict[str, str] | None,
        startupinfo: None,
        creationflags: int,
        shell: bool,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        *more: Any,
    ) -> None:
        """Overrides how Popen has the process made; -1 is a stream that is ours."""
        pipes = (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        options = (executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell)
        if sys.platform != "linux":
            super()._execute_child(args, *options, *pipes, *more)  # type: ignore[misc]
            return
        assert (preexec_fn, pass_fds, shell) == (None, (), False), "a prepared process has none of this"
        order = Order(
            command=args,
            environment=dict(os.environ if env is None else env),
            directory=str(Path.cwd() if cwd is None else cwd),
        )
        given = (p2cread, c2pwrite, errwrite)
        self.pid = _preparing().start(order, [ours if one == -1 else one for ours, one in enumerate(given)])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run_prepared(
    command: list[str],
    *,
    given: bytes = b"",
    directory: Path | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """`subprocess.run` for a prepared process: to its end, with all that it says."""
    process: PreparedProcess[bytes] = PreparedProcess(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=directory,
        env=environment or clean_environment(),
    )
    with process:
        try:
            output, errors = process.communicate(given, SPARK_TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def run_program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m stompbroker …`, to its end."""
    command = [*PYTHON, "-m", "stompbroker", *arguments]
    done = run_prepared(command, environment=clean_environment() | environment)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def clean_environment() -> dict[str, str]:
    """Ours, without settings of a broker."""
    return {name: text for name, text in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}


@final
class _Preparing:
    """The process that everything is forked from. It ends when it can no longer be asked, and so with us."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # -P: a process does not find modules beside the script it is said to be.
            self._process = subprocess.Popen(
                [*PYTHON, "-P", preparation.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=clean_environment() | ONE_THREAD,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def start(self, order: Order, streams: list[int]) -> int:
        """The id of the new process, which is our child."""
        text = order.as_bytes()
        assert len(text) <= LARGEST_ORDER_BYTES, "an order that long would be cut off"
        with self._lock, _adopting_orphans():
            socket.send_fds(self._orders, [text], streams)
            answer = self._orders.recv(32)
        assert answer, f"the preparing process ended with exit code {self._process.wait()}"
        return int(answer)

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


@cache
def _preparing() -> _Preparing:
    return _Preparing()


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Within the block a descendant whose parent ends becomes our child, so that it can be waited for.

    Only here: for whatever else a test leaves behind nobody of us would ever wait.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
