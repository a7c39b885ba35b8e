"""Sees the system calls of a piece of work from outside, and lets some of them fail.

Law: the kernel stops the watched thread at each such call and asks us (seccomp's user notification), so nothing of what
is tested can hide a call or make one up. Only the one thread is watched, and only until it ends. Linux, on the
processors named below; elsewhere a test that needs it is skipped, or fails in CI.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import struct
import sys
import threading
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SYNCS: Final = ("fsync", "fdatasync")
WRITES: Final = ("write", "pwrite64", "writev", "pwritev")
#: For what is known of a file or a file system.
LOOKS: Final = ("newfstatat", "fstat", "statx", "statfs", "fstatfs")

_NUMBERS: Final = {
    "x86_64": {"write": 1, "pwrite64": 18, "writev": 20, "fsync": 74, "fdatasync": 75, "pwritev": 296, "seccomp": 317}
    | {"fstat": 5, "statfs": 137, "fstatfs": 138, "newfstatat": 262, "statx": 332},
    "aarch64": {"write": 64, "writev": 66, "pwrite64": 68, "pwritev": 70, "fsync": 82, "fdatasync": 83, "seccomp": 277}
    | {"statfs": 43, "fstatfs": 44, "newfstatat": 79, "fstat": 80, "statx": 291},
}

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS: Final = 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE: Final = 1
#: Far longer than any call waits, in milliseconds.
_HARD_TIMEOUT_MS: Final = 30_000


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def watched(work: Callable[[], None], calls: Iterable[str], answer: Callable[[str], int] = lambda _: 0) -> list[str]:
    """Run `work` in a thread of its own, and return which of the `calls` it made, in order.

    `answer` is asked at each one: 0 lets it happen, an errno makes it fail with that. What `work` raises is raised
    here.
    """
    numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
    if numbers is None:
        _do_without("seccomp's numbers for this machine are not known here")
    names = {numbers[name]: name for name in calls}
    listening = threading.Event()
    listeners: list[int] = []
    failures: list[BaseException] = []

    def run() -> None:
        listeners.append(_listen(names, numbers["seccomp"]))
        listening.set()
        if listeners[0] >= 0:
            try:
                work()
            except BaseException as error:  # for the thread that asked
                failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    listening.wait()
    if listeners[0] < 0:
        thread.join()
        _do_without(f"the kernel does not let us watch: {os.strerror(-listeners[0])}")
    try:
        seen = _answer_all(listeners[0], names, answer)
    finally:
        os.close(listeners[0])  # lets go whoever still waits
        thread.join()
    if failures:
        raise failures[0]
    return seen


def _listen(names: Iterable[int], seccomp: int) -> int:
    """Have this thread's calls of these numbers asked about; returns where, or minus an errno."""
    tests = list(names)
    program = [_Instruction(_LOAD, 0, 0, 0)]  # the number of the call
    program += [_Instruction(_JUMP_IF_EQUAL, len(tests) - index, 0, number) for index, number in enumerate(tests)]
    program += [_Instruction(_RETURN, 0, 0, _ALLOW), _Instruction(_RETURN, 0, 0, _ASK)]
    array = (_Instruction * len(program))(*program)
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return -ctypes.get_errno()
    filter_ = _Program(len(program), array)
    listener: int = _LIBC.syscall(seccomp, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(filter_))
    return listener if listener >= 0 else -ctypes.get_errno()


def _answer_all(listener: int, names: dict[int, str], answer: Callable[[str], int]) -> list[str]:
    seen: list[str] = []
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        events = poll.poll(_HARD_TIMEOUT_MS)
        assert events, "the watched thread neither calls nor ends"
        if not events[0][1] & select.POLLIN:
            return seen  # the thread has ended
        notification = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, notification)
        except OSError as error:
            if error.errno == errno.ENOENT:
                continue
            raise
        identifier, _, _, number = struct.unpack_from("QIIi", notification)
        seen.append(names[number])
        failure = answer(names[number])
        fcntl.ioctl(listener, _SEND, struct.pack("QqiI", identifier, 0, -failure, 0 if failure else _CONTINUE))


def _do_without(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
