"""The asking side of the control socket.

Law: one JSON object a line, a request and then its answer: `{"method": ..., "params": {...}}` and `{"result": ...}`
or `{"error": {"message": ...}}`. What can be asked is up to `control/`; here every way to get no answer is a sentence.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import trio

from stompbroker.config.data_directory import control_address, control_socket_path
from stompbroker.errors import OperatorError
from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

#: A busy broker answers within milliseconds; one that takes this long, in seconds, hangs.
ANSWER_TIMEOUT_S = 10.0
#: The same for methods that search all that is stored, or write files: many, if the lake was away for a while.
LONGER_TIMEOUTS_S = {"trace": 120.0, "explain_collection": 120.0, "export_ledger": 3600.0}
#: Longest answer, in bytes. Its lists are bounded to 1,000 entries of well under 1 KiB, a few MiB in all.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024


class NoBroker(OperatorError):
    """Nobody answers at the control socket; the text says which one and what to do."""


class NobodyThere(NoBroker):
    """No process listens, or it went away: what the broker would do, another process can."""


class ControlRefused(OperatorError):
    """The broker answered that it cannot or will not."""


@final
@dataclass(slots=True)
class ControlClient:
    """One connection to the control socket; calls go one after the other."""

    _stream: trio.SocketStream
    _path: Path
    _received: bytearray = field(default_factory=bytearray)

    async def call(self, method: str, **params: object) -> Any:
        """The result of one method. Raises ControlRefused if the broker refuses, NoBroker if it goes away or hangs.

        The answer to a cancelled call is still on its way: close the connection then.
        """
        request = json.dumps({"method": method, "params": params}) + "\n"
        timeout_s = LONGER_TIMEOUTS_S.get(method, ANSWER_TIMEOUT_S)
        try:
            with trio.fail_after(timeout_s):
                await self._stream.send_all(request.encode())
                line = await self._receive_line()
        except trio.TooSlowError as error:
            raise NoBroker(
                f"The broker at {self._path} has not answered for {timeout_s:g} seconds; it seems to hang."
            ) from error
        except trio.BrokenResourceError as error:
            raise NobodyThere(f"The broker at {self._path} went away before it answered.") from error
        return self._result(line)

    async def _receive_line(self) -> bytes:
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > MAX_ANSWER_BYTES:
                raise NoBroker(f"What answers at {self._path} is not a broker: its answer does not end.")
            chunk = await self._stream.receive_some(_CHUNK_BYTES)
            if not chunk:
                raise trio.BrokenResourceError
            self._received += chunk
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _result(self, line: bytes) -> Any:
        try:
            answer = json.loads(line)
            if "error" in answer:
                raise ControlRefused(f"The broker refuses: {readable(answer['error']['message'])}")
            return answer["result"]
        except (ValueError, KeyError, TypeError) as error:
            raise NoBroker(f"What answers at {self._path} is not a broker: {line[:80]!r}.") from error


@asynccontextmanager
async def connect(data: Path) -> AsyncIterator[ControlClient]:
    """A connection to the broker with this data directory, closed at the end of the block. Raises NoBroker."""
    path = control_socket_path(data)
    try:
        with control_address(data) as address:
            stream = await trio.open_unix_socket(address)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        # A broker that was killed leaves its socket behind; connecting to it is refused.
        raise NobodyThere(
            f"No broker is running with the data directory {data} (nobody listens on {path}). "
            'Start one with "stompbroker serve", or name its directory with --data.'
        ) from error
    except PermissionError as error:
        raise NoBroker(f"This user may not speak to the broker at {path}; ask as the user it runs as.") from error
    async with stream:
        yield ControlClient(stream, path)


async def ask(data: Path, method: str, **params: object) -> Any:
    """One question, on a connection of its own. Raises NoBroker, ControlRefused."""
    async with connect(data) as control:
        return await control.call(method, **params)
