"""A TCP proxy that cuts a connection at a moment of the test's choice, or holds all of them as a lost network does.

Law: passes bytes on, both ways, and knows one thing of what they say: that a client asks for COMMIT, or sends the
statement that is a whole transaction. Then it does what it was told, on that connection alone. What it holds it passes
on when it is released. Loopback only.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHUNK_BYTES: Final = 65536
_COMMITTING: Final = (b"COMMIT", b"WITH ours AS")


@final
class AtCommit(Enum):
    PASS_IT_ON = "nothing happens"
    CUT_BEFORE = "the server never hears of it"
    CUT_AFTER = "the server has answered, but the client never hears of it"


@final
class CuttingProxy:
    """Listens on `port` of the loopback; `at_commit` may be changed at any time, and is reset once it was obeyed."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.at_commit = AtCommit.PASS_IT_ON
        #: Called once a connection was cut, before the client can notice.
        self.when_cut: Callable[[], None] = lambda: None
        self._is_passing = threading.Event()
        self._is_passing.set()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port), HARD_TIMEOUT_S)
            except OSError:
                client.close()  # the server is down, and so are we, as far as the client can see
                continue
            for end in (client, server):
                end.settimeout(HARD_TIMEOUT_S)
                self._sockets.append(end)
            self._start(self._pass_to_server, client, server)
            self._start(self._pass_to_client, client, server)

    def hold(self) -> None:
        """Pass nothing on, and say so to nobody."""
        self._is_passing.clear()

    def release(self) -> None:
        self._is_passing.set()

    def close(self) -> None:
        self.release()
        for end in (self._listener, *self._sockets):
            _cut(end)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._sockets):
            end.close()

    def _start(self, target: Callable[[socket.socket, socket.socket], None], *ends: socket.socket) -> None:
        thread = threading.Thread(target=target, args=ends)
        self._threads.append(thread)
        thread.start()

    def _pass_to_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK_BYTES):
                self._is_passing.wait()
                if any(word in data for word in _COMMITTING) and self.at_commit is not AtCommit.PASS_IT_ON:
                    order, self.at_commit = self.at_commit, AtCommit.PASS_IT_ON
                    if order is AtCommit.CUT_AFTER:
                        self._awaited = server
                        server.sendall(data)
                        return  # the other direction goes on from here
                    self.when_cut()
                    break
                server.sendall(data)
        _cut(client)
        _cut(server)

    _awaited: socket.socket | None = None

    def _pass_to_client(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK_BYTES):
                self._is_passing.wait()
                if self._awaited is server:
                    self._awaited = None
                    self.when_cut()
                    break
                client.sendall(data)
        _cut(client)
        _cut(server)


@contextmanager
def cutting_proxy(server_port: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(server_port)
    thread = threading.Thread(target=proxy.run)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()


def _cut(end: socket.socket) -> None:
    """Wakes whoever waits for it. It is not closed yet: a thread on its way into `recv` would wait for the next socket
    that gets its number."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
