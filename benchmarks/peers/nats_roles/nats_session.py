"""One connected NATS client on a blocking socket, for everything that is not measured.

Like `benchmarks.session`: one request, one answer; measured code takes `socket` and works on it directly. Nothing is
published before every subscriber is ready, so what arrives is the answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Self, final

from benchmarks.broken import Broken
from benchmarks.peers.nats_roles import protocol
from benchmarks.session import open_socket, receive

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from types import TracebackType

    from benchmarks.address import Address

_RECEIVE_BYTES: Final = 64 * 1024
_SHOWN_BYTES: Final = 400
_SUBSCRIPTION: Final = 1
#: Subject of answers to requests.
_INBOX: Final = 2


@final
class NatsSession:
    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._answer_timeout_s = connected.gettimeout()

    @classmethod
    def open(cls, address: Address) -> Self:
        """A connected client."""
        session = cls(open_socket(address))
        try:
            session._wait_line(b"INFO ")
            session.socket.sendall(protocol.CONNECT)
            session._ping()
        except BaseException:
            session.socket.close()
            raise
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def subscribe(self, subject: str) -> None:
        """Subscribe, and return when the server has processed it."""
        self.socket.sendall(protocol.subscribe(subject, number=_SUBSCRIPTION))
        self._ping()

    def listen(self, subject: str) -> None:
        """Subscribe to the answers to all requests."""
        self.socket.sendall(protocol.subscribe(subject, number=_INBOX))
        self._ping()

    def ask(self, subject: str, question: Mapping[str, object], *, inbox: str) -> Any:
        """The answer at `inbox`, which must be subscribed to; raises an error in it."""
        self.socket.sendall(protocol.request(subject, question, reply_to=inbox))
        head = self._wait_line(b"MSG ")
        answer = json.loads(self._wait_line(b"{"))
        if "error" in answer:
            raise Broken(f"{subject}: {answer['error']} ({head.decode().strip()})")
        return answer

    def leave(self) -> int:
        """Wait until the server has processed everything; returns how many messages came before."""
        self.socket.settimeout(self._answer_timeout_s)
        lines = self._ping()
        return lines // 2

    def _ping(self) -> int:
        """How many lines came before the answer."""
        self.socket.sendall(protocol.PING)
        lines = 0
        while (line := self._next_line()) != protocol.PONG:
            if line.startswith(b"-ERR"):
                raise Broken(f"the server said {line.decode().strip()}")
            lines += 1
        return lines

    def _wait_line(self, beginning: bytes) -> bytes:
        line = self._next_line()
        if not line.startswith(beginning):
            raise Broken(f"expected {beginning.decode()}, got {line[:_SHOWN_BYTES]!r}")
        return line

    def _next_line(self) -> bytes:
        """Reads byte by byte, so that what follows the line stays in the socket for the measured code."""
        line = bytearray()
        while not line.endswith(b"\r\n"):
            line += receive(self.socket, 1)
        return bytes(line)


def answers_nats(address: Address) -> bool:
    try:
        with NatsSession.open(address):
            return True
    except Broken:
        return False
