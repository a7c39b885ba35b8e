"""One STOMP client on a blocking socket, for everything that is not measured: connect, subscribe, leave.

One request, one answer. Measured code takes `socket` and works on it directly. `leftover` holds bytes after the last
answer: the first missed messages of a returning durable subscriber. Otherwise it is empty, as long as nothing is
published before every subscriber is ready.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Final, Self, final

from benchmarks import frames
from benchmarks.broken import Broken
from benchmarks.dialect import OURS, Dialect
from benchmarks.frame_counting import ack_ids_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from benchmarks.address import Address
    from benchmarks.durable_identity import DurableIdentity

_GOODBYE: Final = "goodbye"
_RECEIVE_BYTES: Final = 64 * 1024
_SHOWN_BYTES: Final = 400
_ERROR_FRAME: Final = re.compile(rb"(?:^|\0)[\r\n]*(ERROR\r?\n[^\0]{,%d})" % _SHOWN_BYTES)


@final
class Session:
    """One client. `begin_…` sends a request and `wait_…` takes the answer; `open` and `subscribe` do both.

    With an `identity` its subscription is durable.
    """

    def __init__(
        self, connected: socket.socket, dialect: Dialect = OURS, identity: DurableIdentity | None = None
    ) -> None:
        self.socket = connected
        self.leftover = b""
        self._answer_timeout_s = connected.gettimeout()
        self._dialect = dialect
        self._identity = identity

    @classmethod
    def begin_connect(
        cls, address: Address, *, identity: DurableIdentity | None = None, receive_buffer_bytes: int | None = None
    ) -> Self:
        session = cls(open_socket(address, receive_buffer_bytes=receive_buffer_bytes), address.dialect, identity)
        session.socket.sendall(frames.connect(address, identity))
        return session

    @classmethod
    def open(
        cls, address: Address, *, identity: DurableIdentity | None = None, receive_buffer_bytes: int | None = None
    ) -> Self:
        """A client that has seen CONNECTED."""
        session = cls.begin_connect(address, identity=identity, receive_buffer_bytes=receive_buffer_bytes)
        try:
            session.wait_connected()
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

    def wait_connected(self) -> None:
        self._wait_answer(b"CONNECTED")

    def begin_subscribe(
        self, destination: str, *, ack_mode: str = "auto", headers: Mapping[str, str] | None = None
    ) -> None:
        self.socket.sendall(
            frames.subscribe(
                destination,
                ack_mode=ack_mode,
                identity=self._identity,
                headers=headers,
                receipt="subscribed",
                dialect=self._dialect,
            )
        )

    def wait_subscribed(self) -> None:
        """Some brokers send missed messages before the receipt."""
        overtaking = bytearray()
        while (frame := self._wait_frame()).startswith(b"MESSAGE"):
            overtaking += frame + b"\0"
        self._raise_if_not(b"RECEIPT", frame)
        self.leftover = bytes(overtaking) + self.leftover

    def subscribe(self, destination: str, *, ack_mode: str = "auto", headers: Mapping[str, str] | None = None) -> None:
        """Subscribe, and return when the broker has confirmed it, so that nothing published later is missed."""
        self.begin_subscribe(destination, ack_mode=ack_mode, headers=headers)
        self.wait_subscribed()

    def publish(self, destination: str, body: bytes, *, is_stored: bool = False) -> None:
        """Publish one message, and return when the broker has confirmed it."""
        headers = self._dialect.of_send(is_stored=is_stored)
        self.socket.sendall(frames.send(destination, body, receipt="published", headers=headers))
        self._wait_answer(b"RECEIPT")

    def take_message(self) -> bytes:
        """Wait for the next frame, which must be a MESSAGE, and acknowledge it."""
        message = self._wait_frame()
        self._raise_if_not(b"MESSAGE", message)
        self.socket.sendall(frames.acknowledge_all(ack_ids_in(message)))
        return message

    def delete_subscription(self) -> None:
        """Delete the durable subscription. Nothing may be in flight to it, or it is taken for the answer."""
        assert self._identity is not None
        self.socket.sendall(frames.delete_subscription(self._identity, receipt="deleted", dialect=self._dialect))
        self._wait_answer(b"RECEIPT")

    def leave(self) -> int:
        """Disconnect with a receipt; returns how many frames came before it.

        The receipt means that the broker has seen everything sent here before.
        """
        self.socket.settimeout(self._answer_timeout_s)
        self.socket.sendall(frames.disconnect(_GOODBYE))
        frames_before = 0
        while True:
            frame = self._wait_frame()
            if frame.startswith(b"RECEIPT\n") and _GOODBYE.encode() in frame:
                return frames_before
            raise_if_error(frame)
            frames_before += 1

    def _wait_answer(self, command: bytes) -> None:
        """Wait for the next frame, which must be a `command`."""
        self._raise_if_not(command, self._wait_frame())

    def _raise_if_not(self, command: bytes, frame: bytes) -> None:
        if frame.partition(b"\n")[0].rstrip(b"\r") != command:
            raise_if_error(frame)
            raise Broken(f"expected {command.decode()}, got {frame[:_SHOWN_BYTES]!r}")

    def _wait_frame(self) -> bytes:
        """The next frame, without its NUL and leading line feeds."""
        received = bytearray(self.leftover)
        while b"\0" not in received:
            received += receive(self.socket, _RECEIVE_BYTES)
        frame, _, rest = bytes(received).partition(b"\0")
        self.leftover = rest
        return frame.lstrip(b"\r\n")


def open_socket(address: Address, *, receive_buffer_bytes: int | None = None) -> socket.socket:
    """A TCP connection without delays. The receive buffer must be set before connecting to bound the window."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.settimeout(address.answer_timeout_s)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer_bytes is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        opened.connect((address.host, address.port))
    except OSError as error:
        opened.close()
        raise Broken(f"cannot connect to {address}: {error}") from error
    return opened


def receive(connected: socket.socket, most_bytes: int) -> bytes:
    """At least one byte. `BlockingIOError` passes through; timeout, reset and end of stream are `Broken`."""
    try:
        chunk = connected.recv(most_bytes)
    except TimeoutError:
        raise Broken(f"the broker did not answer within {connected.gettimeout():g} s") from None
    except ConnectionError as error:
        raise Broken(f"the broker dropped a connection: {error}") from error
    if not chunk:
        raise Broken("the broker closed a connection")
    return chunk


def raise_if_error(received: bytes) -> None:
    """Raise what an ERROR frame in `received` says, if there is one."""
    found = _ERROR_FRAME.search(received)
    if found is not None:
        lines = found[1].decode(errors="replace").splitlines()
        raise Broken("the broker sent " + " | ".join(line for line in lines if line))
