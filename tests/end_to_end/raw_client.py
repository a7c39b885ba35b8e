"""A STOMP client on a plain socket, that reads and writes exactly when a test says so.

Law: for what no well-behaved client does: not reading, vanishing, sending half a frame. Blocking calls fail after
HARD_TIMEOUT_S. Frames are parsed by our own reader, whose correctness the tests with stomp.py vouch for.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self, final

from stompbroker.stomp import FrameReader, Limits, Version, render_frame
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from types import TracebackType

    from stompbroker.stomp import Frame
    from tests.support.broker_process import Address

#: The smallest receive buffer Linux gives: what does not fit stays with the broker.
TINY_BUFFER_BYTES: Final = 2304
_CHUNK_BYTES: Final = 256 * 1024


def send_frame(destination: str, body: bytes, **headers: str) -> bytes:
    """A SEND; `_` in a header's name stands for `-`."""
    return frame("SEND", body, destination=destination, **headers)


def frame(command: str, body: bytes = b"", **headers: str) -> bytes:
    pairs = [(name.replace("_", "-"), text) for name, text in headers.items()]
    return render_frame(command, pairs, body, Version.V1_2)


@final
class RawClient:
    def __init__(
        self, address: Address | str, *, receive_buffer_bytes: int | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Opens the connection and says nothing. A receive buffer has to be set before, to bound the TCP window.

        A text is the path of a Unix socket."""
        is_unix = isinstance(address, str)
        self.socket = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(HARD_TIMEOUT_S)
        if not is_unix:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            self.socket.connect(address)
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        except BaseException:
            self.socket.close()
            raise
        self._reader = FrameReader(Limits())
        self._frames: deque[Frame] = deque()
        #: Line feeds received between frames.
        self.heart_beats = 0

    @classmethod
    def connected(
        cls,
        address: Address | str,
        *,
        receive_buffer_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
        **headers: str,
    ) -> Self:
        """A client that has seen CONNECTED."""
        client = cls(address, receive_buffer_bytes=receive_buffer_bytes, tls=tls)
        try:
            client.connect(**headers)
        except BaseException:
            client.close()
            raise
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Saying ----------------------------------------------------------------------------------------------------------

    def connect(self, **headers: str) -> Frame:
        self.send("CONNECT", b"", accept_version="1.2", host="test", **headers)
        greeting = self.next_frame()
        assert greeting.command == "CONNECTED", greeting
        self._reader.version = Version.V1_2
        return greeting

    def subscribe(self, destination: str, *, id: str = "0", **headers: str) -> None:
        """Come back when the broker has confirmed it: nothing published later can be missed."""
        self.send("SUBSCRIBE", b"", id=id, destination=destination, receipt=f"subscribed {id}", **headers)
        self.expect_receipt(f"subscribed {id}")

    def send(self, command: str, body: bytes = b"", **headers: str) -> None:
        self.send_raw(frame(command, body, **headers))

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    # Hearing ---------------------------------------------------------------------------------------------------------

    def next_frame(self) -> Frame:
        """The next frame that is no heart-beat. Fails if the broker closes instead."""
        while not self._frames:
            chunk = self.socket.recv(_CHUNK_BYTES)
            assert chunk, "the broker closed the connection"
            self._take(chunk)
        return self._frames.popleft()

    def next_message(self) -> Frame:
        message = self.next_frame()
        assert message.command == "MESSAGE", (message.command, message.headers, message.body)
        return message

    def expect_receipt(self, receipt: str) -> None:
        given = self.next_frame()
        assert (given.command, given.headers) == ("RECEIPT", {"receipt-id": receipt}), given.body

    def expect_error(self, *texts: str) -> None:
        """The next frame is an ERROR that says all of these, and then the broker closes."""
        error = self.next_frame()
        assert error.command == "ERROR", error
        self.check_error(error, *texts)

    def check_error(self, error: Frame, *texts: str) -> None:
        """This ERROR says all of these, and behind it the broker closes."""
        said = f"{error.headers['message']}\n{error.body.decode()}"
        for text in texts:
            assert text in said, said
        self.expect_closed()

    def expect_closed(self) -> None:
        """The broker has said its last word, and closed without a reset."""
        assert not self._frames, list(self._frames)
        while chunk := self.socket.recv(_CHUNK_BYTES):
            assert chunk.strip(b"\n") == b"", chunk

    def messages_up_to_the_end(self) -> tuple[list[Frame], Frame]:
        """All messages up to the ERROR, and that ERROR."""
        messages: list[Frame] = []
        while (last := self.next_frame()).command == "MESSAGE":
            messages.append(last)
        assert last.command == "ERROR", last
        return messages, last

    def wait_heart_beats(self, more: int) -> None:
        """That many more than have come by now, with nothing but them."""
        wanted = self.heart_beats + more
        while self.heart_beats < wanted:
            chunk = self.socket.recv(_CHUNK_BYTES)
            assert chunk, "the broker closed the connection"
            self._take(chunk)
            assert not self._frames, [(each.command, each.headers, each.body) for each in self._frames]

    # Leaving ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Vanish as a killed machine does: with a reset, not a polite end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _take(self, chunk: bytes) -> None:
        if chunk.strip(b"\n") == b"" and not self._reader.pending_bytes:
            self.heart_beats += len(chunk)
        frames = list(self._reader.receive(chunk))
        while self._reader.has_more:
            frames += self._reader.receive(b"")
        self._frames.extend(frames)


@final
class Sending:
    """A thread that is inside one `sendall`."""

    def __init__(self, client: RawClient, data: bytes) -> None:
        self.error: OSError | None = None
        self._client = client
        self._data = data
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_under_way(self) -> bool:
        return self._thread.is_alive()

    def wait_done(self) -> None:
        """Until everything has been taken."""
        self._thread.join(HARD_TIMEOUT_S)
        assert not self._thread.is_alive(), "the broker takes no more bytes"
        assert self.error is None, self.error

    def clean_up(self) -> None:
        with suppress(OSError):
            self._client.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(HARD_TIMEOUT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._client.socket.sendall(self._data)
        except OSError as error:
            self.error = error


@contextmanager
def sending(client: RawClient, data: bytes) -> Iterator[Sending]:
    """Send `data` in a thread of its own for the length of the block. The client's connection ends with it, unless the
    block has waited until it is done."""
    under_way = Sending(client, data)
    under_way.start()
    try:
        yield under_way
    finally:
        if under_way.is_under_way:
            under_way.clean_up()
