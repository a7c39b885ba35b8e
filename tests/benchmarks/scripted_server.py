"""A STOMP server that follows a script: it forwards messages, except where the script says otherwise.

Law: just enough STOMP for the load generator, in one thread; durable subscriptions are kept in memory, and what their
subscribers have not acknowledged is of no interest. What a SEND causes has been written to the subscribers
before the publisher gets its next answer, so a test knows the order of things without waiting for time to pass.
"""

from __future__ import annotations

import selectors
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, final

from benchmarks.address import Address
from benchmarks.flow_roles import STOMP_ROLES

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What goes wrong; messages are numbered from 0 in the order of their arrival."""

    lost: frozenset[int] = frozenset()
    doubled: frozenset[int] = frozenset()
    #: Subscribers get an ERROR instead of this message, and are disconnected.
    error_at: int | None = None
    #: A subscriber that disconnects gets one more message before its receipt.
    has_farewell: bool = False
    #: What comes while a durable subscriber is away is not kept for it.
    is_forgetful: bool = False


@final
class ScriptedServer:
    """Serves on a free port of the loopback address for the length of a `with` block. It is a `Target` as well."""

    roles = STOMP_ROLES

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop_receiver, self._stop_sender = socket.socketpair()
        self._clients: dict[socket.socket, _Client] = {}
        self._durable: dict[tuple[str, str], _DurableSubscription] = {}
        self._thread = threading.Thread(target=self._serve)
        self.address = Address(*self._listener.getsockname())
        self.messages = 0
        self.acknowledged: list[str] = []
        #: For each restart, whether it was after a kill.
        self.restarts: list[bool] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_sender.send(b"x")
        self._thread.join()
        for opened in (self._listener, self._stop_receiver, self._stop_sender, *self._clients):
            opened.close()

    started_in_s = 0.5
    #: It keeps no files.
    data = Path()

    def restart(self, *, is_killed: bool = False) -> None:
        self.restarts.append(is_killed)

    def processor_s(self) -> float:
        return 0.0

    def resident_bytes(self) -> int:
        return 0

    def raise_if_dead(self) -> None:
        pass

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._stop_receiver, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._stop_receiver:
                        return
                    if key.fileobj is self._listener:
                        accepted, _address = self._listener.accept()
                        self._clients[accepted] = _Client()
                        selector.register(accepted, selectors.EVENT_READ)
                    elif isinstance(key.fileobj, socket.socket) and not self._read(key.fileobj):
                        selector.unregister(key.fileobj)
                        self._clients.pop(key.fileobj)
                        key.fileobj.close()

    def _read(self, connected: socket.socket) -> bool:
        """False once the client has gone."""
        try:
            chunk = connected.recv(65536)
        except ConnectionError:
            return False
        client = self._clients[connected]
        *complete, client.rest = (client.rest + chunk).split(b"\0")
        for frame in complete:
            self._answer(connected, client, frame.decode())
        return bool(chunk)

    def _answer(self, connected: socket.socket, client: _Client, frame: str) -> None:
        head, _, body = frame.partition("\n\n")
        command, *lines = head.split("\n")
        headers = dict(line.split(":", 1) for line in lines)
        if command == "CONNECT":
            client.id = headers.get("client-id", "")
            connected.sendall(b"CONNECTED\nversion:1.2\n\n\0")
        elif command == "SUBSCRIBE":
            client.destination = headers["destination"]
            client.durable_name = headers.get("activemq.subscriptionName")
        elif command == "UNSUBSCRIBE":
            del self._durable[client.id, headers["activemq.subscriptionName"]]
        elif command == "ACK":
            self.acknowledged.append(headers["id"])
        elif command == "SEND":
            self._forward(headers["destination"], body)
        elif command == "DISCONNECT" and self._script.has_farewell and client.destination:
            connected.sendall(b"MESSAGE\nsubscription:0\nmessage-id:farewell\nack:farewell\n\n\0")
        if "receipt" in headers:
            connected.sendall(f"RECEIPT\nreceipt-id:{headers['receipt']}\n\n\0".encode())
        if command == "SUBSCRIBE" and client.durable_name is not None:
            durable = self._durable.setdefault((client.id, client.durable_name), _DurableSubscription())
            durable.destination = client.destination
            connected.sendall(b"".join(durable.kept))
            durable.kept.clear()

    def _forward(self, destination: str, body: str) -> None:
        number = self.messages
        self.messages += 1
        copies = 0 if number in self._script.lost else 2 if number in self._script.doubled else 1
        message = f"MESSAGE\nsubscription:0\nmessage-id:m-{number}\nack:a-{number}\n\n{body}\0".encode()
        for connected, client in self._clients.items():
            if client.destination != destination:
                continue
            if number == self._script.error_at:
                connected.sendall(b"ERROR\nmessage:the script says so\n\n\0")
                connected.shutdown(socket.SHUT_WR)
                client.destination = ""
            else:
                connected.sendall(message * copies)
        present = {(client.id, client.durable_name) for client in self._clients.values()}
        for identity, durable in self._durable.items():
            if durable.destination == destination and identity not in present and not self._script.is_forgetful:
                durable.kept.append(message * copies)


class _Client:
    __slots__ = ("destination", "durable_name", "id", "rest")

    def __init__(self) -> None:
        self.rest = b""
        self.destination = ""
        self.id = ""
        self.durable_name: str | None = None


class _DurableSubscription:
    __slots__ = ("destination", "kept")

    def __init__(self) -> None:
        self.destination = ""
        self.kept: list[bytes] = []
