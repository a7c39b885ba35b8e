"""stomp.py, the independent client, for tests that wait instead of sleeping.

Law: nothing here knows how the broker works. stomp.py calls the `Inbox` from its own thread; tests wait on it. What
differs between the versions in stomp.py's methods (how a delivery is named in ACK and NACK) is told apart here.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, final

import stomp

from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stomp.utils import Frame

    from tests.support.broker_process import Address

VERSIONS: Final = ("1.0", "1.1", "1.2")

#: Heart-beats that may be late.
PATIENCE: Final = 20
_CONNECTIONS: Final = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}


@final
class Inbox(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py carries no types
    """Everything that came, in order of arrival; filled by stomp.py's thread and waited on by the test's."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: list[Frame] = []
        self._receipts: list[str] = []
        self._errors: list[Frame] = []
        self._heart_beats = 0
        self._is_connected = False
        self._is_disconnected = False

    # Called by stomp.py ----------------------------------------------------------------------------------------------

    def on_connected(self, frame: Frame) -> None:
        with self._changed:
            self._is_connected = True
            self._changed.notify_all()

    def on_message(self, frame: Frame) -> None:
        self._add(self._messages, frame)

    def on_receipt(self, frame: Frame) -> None:
        self._add(self._receipts, frame.headers["receipt-id"])

    def on_error(self, frame: Frame) -> None:
        self._add(self._errors, frame)

    def on_heartbeat(self) -> None:
        with self._changed:
            self._heart_beats += 1
            self._changed.notify_all()

    def on_disconnected(self) -> None:
        with self._changed:
            self._is_disconnected = True
            self._changed.notify_all()

    # For tests -------------------------------------------------------------------------------------------------------

    def wait_connected(self) -> None:
        self._wait(lambda: self._is_connected, "CONNECTED")

    def wait_messages(self, number: int) -> list[Frame]:
        """The first `number` messages; more have not come by the time the last of them has."""
        self._wait(lambda: len(self._messages) >= number, f"{number} messages")
        return self.messages

    def wait_receipt(self, receipt: str) -> None:
        self._wait(lambda: receipt in self._receipts, f"the receipt {receipt!r}")

    def wait_error(self) -> Frame:
        self._wait(lambda: self._errors, "an ERROR")
        return self._errors[0]

    def wait_heart_beats(self, more: int) -> None:
        """That many more than have come by now."""
        with self._changed:
            wanted = self._heart_beats + more
        self._wait(lambda: self._heart_beats >= wanted, f"{more} heart-beats")

    def wait_disconnected(self) -> None:
        self._wait(lambda: self._is_disconnected, "the end of the connection")

    @property
    def messages(self) -> list[Frame]:
        with self._changed:
            return list(self._messages)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def receipts(self) -> list[str]:
        with self._changed:
            return list(self._receipts)

    @property
    def is_undisturbed(self) -> bool:
        """Whether the connection is up and no ERROR has come."""
        with self._changed:
            return self._is_connected and not self._is_disconnected and not self._errors

    def _add(self, entries: list[Any], entry: object) -> None:
        with self._changed:
            entries.append(entry)
            self._changed.notify_all()

    def _wait(self, is_so: Callable[[], object], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(is_so, HARD_TIMEOUT_S):
                raise AssertionError(
                    f"{what} did not come within {HARD_TIMEOUT_S:g} s; there are {len(self._messages)} messages, "
                    f"receipts {self._receipts}, errors {[(error.headers, error.body) for error in self._errors]}"
                )


@final
class StompPyClient:
    """One connection. `stomp` is stomp.py's own, for what is not wrapped here."""

    def __init__(
        self,
        address: Address,
        version: str,
        heart_beats: tuple[int, int],
        *,
        tls: dict[str, Any] | None = None,
        websocket: dict[str, Any] | None = None,
    ) -> None:
        """`tls` is for stomp.py's `set_ssl`, `websocket` for its connection, which speaks 1.2 only."""
        options: dict[str, Any] = {}
        if version != "1.0":
            # Of itself it gives up half a heart-beat after one that is late, and a busy machine stops for longer.
            options = {"heartbeats": heart_beats, "heart_beat_receive_scale": PATIENCE}
        # Bodies as they came, not decoded.
        make = _CONNECTIONS[version] if websocket is None else stomp.WSConnection
        options |= websocket or {}
        self.stomp = make([tuple(address)], auto_decode=False, reconnect_attempts_max=1, **options)
        if tls is not None:
            self.stomp.set_ssl(for_hosts=[tuple(address)], **tls)
        self._is_websocket = websocket is not None
        self.version = version
        self.inbox = Inbox()
        self.stomp.set_listener("inbox", self.inbox)
        self._receipt_numbers = count()

    def connect(self, login: tuple[str, str] | None = None) -> None:
        self.start_connecting(login)
        self.inbox.wait_connected()

    def start_connecting(self, login: tuple[str, str] | None = None) -> None:
        """`login`: name and passcode. What the broker answers is in the inbox."""
        self.stomp.connect(*(login or ()))

    def subscribe(self, destination: str, *, id: str = "0", ack: str = "auto", **headers: str) -> None:
        """Come back when the broker has confirmed it: nothing published later can be missed."""
        receipt = self.new_receipt()
        self.stomp.subscribe(destination, id, ack, headers={"receipt": receipt} | with_dashes(headers))
        self.inbox.wait_receipt(receipt)

    def publish(self, destination: str, *bodies: str | bytes, **headers: str) -> None:
        for body in bodies:
            self.stomp.send(destination, body, headers=with_dashes(headers))

    def acknowledge(self, message: Frame, **options: str) -> None:
        """`options`: `transaction` and `receipt`."""
        self.stomp.ack(*self._name(message), **options)

    def refuse(self, message: Frame, **options: str) -> None:
        self.stomp.nack(*self._name(message), **options)

    def wait_applied(self) -> None:
        """Until the broker has applied everything sent so far: a receipt is a cumulative proof of that."""
        receipt = self.new_receipt()
        transaction = self.stomp.begin(headers={"receipt": receipt})
        self.stomp.abort(transaction)
        self.inbox.wait_receipt(receipt)

    def new_receipt(self) -> str:
        return f"receipt {next(self._receipt_numbers)}"

    def vanish(self) -> None:
        """Drop the connection without a word."""
        # stomp.py only closes WebSockets and TLS, and its thread would go on waiting.
        transport = self.stomp.transport
        below = transport.socket.sock if self._is_websocket else transport.socket
        is_tls = isinstance(below, ssl.SSLSocket) and not self._is_websocket
        if is_tls:
            # It takes the end of a connection for an empty chunk, and reads on.
            transport.running = False
        with suppress(OSError):
            below.shutdown(socket.SHUT_RDWR)
        if is_tls:
            transport.io_thread.join(HARD_TIMEOUT_S)
        self.stomp.transport.disconnect_socket()

    def clean_up(self) -> None:
        if self.stomp.transport.socket is not None:
            self.vanish()
        thread = self.stomp.transport.io_thread
        if thread is not None:
            thread.join(HARD_TIMEOUT_S)
            assert not thread.is_alive(), "stomp.py's thread goes on although its socket is closed"

    def _name(self, message: Frame) -> tuple[str, ...]:
        """How this version's ACK and NACK say which delivery they mean."""
        match self.version:
            case "1.0":
                return (message.headers["message-id"],)
            case "1.1":
                return message.headers["message-id"], message.headers["subscription"]
            case _:
                return (message.headers["ack"],)


def with_dashes(headers: dict[str, str]) -> dict[str, str]:
    """`_` in a keyword stands for `-` in a header's name."""
    return {name.replace("_", "-"): text for name, text in headers.items()}


@contextmanager
def connected(
    address: Address,
    version: str = "1.2",
    *,
    heart_beats: tuple[int, int] = (0, 0),
    login: tuple[str, str] | None = None,
    **options: Any,
) -> Iterator[StompPyClient]:
    """A client that has seen CONNECTED; its connection is gone at the end of the block."""
    client = StompPyClient(address, version, heart_beats, **options)
    try:
        client.connect(login)
        yield client
    finally:
        client.clean_up()
