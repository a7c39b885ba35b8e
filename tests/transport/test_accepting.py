"""Accepting while the system runs out of descriptors."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, cast, final

import pytest
import trio
from structlog.testing import capture_logs

from stompbroker.log_throttle import LogThrottle
from stompbroker.transport.tcp import RETRY_S, accept

if TYPE_CHECKING:
    from trio.testing import MockClock


@final
class FullListener:
    """Fails so many times before each connection it accepts."""

    def __init__(self, failures: int, code: int = errno.EMFILE) -> None:
        self._code = code
        self._failures = failures
        self.tries = 0

    async def accept(self) -> str:
        await trio.lowlevel.checkpoint()
        self.tries += 1
        if self.tries % (self._failures + 1):
            raise OSError(self._code, os.strerror(self._code))
        return "a stream"


async def accept_from(listener: FullListener, throttle: LogThrottle) -> str:
    return cast("str", await accept(cast("trio.SocketListener", listener), "control", throttle))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_it_tries_again_at_intervals_and_says_so_once(code: int, autojump_clock: MockClock) -> None:
    listener = FullListener(50, code)
    began_at_s = trio.current_time()
    with capture_logs() as logged:
        assert await accept_from(listener, LogThrottle()) == "a stream"

    assert listener.tries == 51
    assert trio.current_time() - began_at_s == pytest.approx(50 * RETRY_S)
    assert logged == [
        {
            "log_level": "error",
            "event": "cannot accept connections",
            "listener": "control",
            "reason": os.strerror(code),
        },
        {"log_level": "info", "event": "accepting connections again", "listener": "control"},
    ]


async def test_one_descriptor_that_comes_and_goes_does_not_fill_the_log(autojump_clock: MockClock) -> None:
    listener, throttle = FullListener(1), LogThrottle()
    with capture_logs() as logged:
        for _ in range(100):
            await accept_from(listener, throttle)

    assert len(logged) == 2


async def test_any_other_error_is_not_waited_out(autojump_clock: MockClock) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        await accept_from(FullListener(1, errno.EBADF), LogThrottle())
