"""Accepting connections, also when the system has no room for them.

Law: hands out accepted streams, one at a time. While there are no descriptors it tries again every RETRY_S instead of
spinning, and says so in the log once, not at every try.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from stompbroker.log_throttle import LogThrottle

__all__ = ["accept"]

#: What accept says when the process or the system has no room for another connection.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: How long to wait then before the next try: long enough not to burn a core, short enough not to be noticed.
RETRY_S: Final = 0.1


async def accept(listener: trio.SocketListener, name: str, throttle: LogThrottle) -> trio.SocketStream:
    """The next connection; `name` is what the log calls this listener."""
    is_out_of_room = False
    while True:
        try:
            stream = await listener.accept()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if not is_out_of_room:
                is_out_of_room = True
                throttle.log("error", "cannot accept connections", (name,), listener=name, reason=error.strerror)
            await trio.sleep(RETRY_S)
        else:
            if is_out_of_room:
                throttle.log("info", "accepting connections again", (name,), listener=name)
            return stream
