"""The client's side of one STOMP connection, without I/O: CONNECT, what CONNECTED agrees on, and frames both ways.

Law: bytes in, frames out. What differs between the versions that are spoken is here, and nowhere else in this package.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, final

from stompbroker.client.errors import NoConnection, Problem, refusal_of_connect
from stompbroker.errors import PeerViolation
from stompbroker.stomp import Frame, FrameReader, Head, Limits, Version, render_frame, unescape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Headers = list[tuple[str, str]]

#: The most that a broker can be set to allow: what it delivered must not fail here.
LIMITS: Final = Limits(max_header_count=65_536, max_header_bytes=16 * 1024**2, max_body_bytes=1024**3)
#: The other side counts as lost after this many heart-beat intervals of silence. ActiveMQ's first one comes after two.
HEART_BEAT_MARGIN: Final = 2.5
#: Without 1.0: it has neither NACK nor single acknowledgements.
VERSIONS: Final = (Version.V1_1, Version.V1_2)
#: What a server that expects TLS answers to anything else: an alert record.
_TLS_ALERT: Final = b"\x15\x03"
_SERVER_COMMANDS: Final = frozenset({"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What the two sides agreed on."""

    version: Version
    #: What the broker calls itself, such as `RabbitMQ/4.1.0`; often empty.
    server: str
    #: How often we must send, and after what silence the broker is lost, in seconds; infinite if not agreed.
    sends_every_s: float
    silence_limit_s: float


def render_connect(host: str, heart_beat_s: float, versions: Iterable[Version], more: Headers) -> bytes:
    interval_ms = round(heart_beat_s * 1000)
    offered = ",".join(version.value for version in versions)
    headers = [("accept-version", offered), ("host", host), ("heart-beat", f"{interval_ms},{interval_ms}"), *more]
    return render_frame("CONNECT", headers)


@final
@dataclass(slots=True, eq=False)
class Dialogue:
    """
    Invariants:
        nothing but CONNECTED or an ERROR is taken before `greeting`, and no CONNECTED after it
    """

    #: How the broker's place is called in errors.
    address: str
    heart_beat_s: float
    greeting: Greeting | None = None
    _reader: FrameReader = field(default_factory=lambda: FrameReader(LIMITS, _require_server_command))
    _has_received: bool = False

    @property
    def version(self) -> Version:
        return Version.V1_2 if self.greeting is None else self.greeting.version

    @property
    def has_more(self) -> bool:
        """Whether `receive(b"")` may return more at once."""
        return self._reader.has_more

    def receive(self, chunk: bytes) -> list[Frame]:
        """The frames that this chunk completes. CONNECTED is not among them. Raises NoConnection."""
        if not self._has_received and chunk.startswith(_TLS_ALERT):
            raise NoConnection(Problem.NEEDS_TLS, f"{self.address} expects TLS.")
        self._has_received = self._has_received or bool(chunk)
        try:
            frames = self._reader.receive(chunk)
        except PeerViolation as violation:
            raise self._not_stomp(str(violation)) from violation
        if not frames or (self.greeting is not None and frames[0].command != "CONNECTED"):
            return frames
        first = frames[0]
        if first.command == "ERROR" and self.greeting is None:
            raise refusal_of_connect(_unescaped(first.headers), first.body)
        if first.command != "CONNECTED" or self.greeting is not None:
            raise self._not_stomp(f"{first.command} came first" if self.greeting is None else "CONNECTED came twice")
        # The reader stops after CONNECTED, since what follows may be written differently.
        self.greeting = self._greet(first.headers)
        self._reader.version = self.greeting.version
        return frames[1:]

    def _greet(self, headers: Mapping[str, str]) -> Greeting:
        said = headers.get("version", "1.0")
        version = next((known for known in VERSIONS if known.value == said), None)
        if version is None:
            raise self._not_stomp(f"it chose version {said[:40]!r}")
        parts = [part.strip() for part in headers.get("heart-beat", "0,0").split(",")]
        if len(parts) != 2 or not all(part.isdecimal() for part in parts):
            raise self._not_stomp(f"heart-beat is {','.join(parts)[:40]!r}")
        sends_s, wants_s = (int(part[:10]) / 1000 for part in parts)
        ours_s = self.heart_beat_s
        return Greeting(
            version=version,
            server=headers.get("server", ""),
            sends_every_s=max(ours_s, wants_s) if ours_s and wants_s else inf,
            silence_limit_s=max(ours_s, sends_s) * HEART_BEAT_MARGIN if ours_s and sends_s else inf,
        )

    def ended(self) -> NoConnection:
        """The error that says that the broker has closed the connection."""
        hint = "." if self._has_received else " without an answer; does it expect TLS (stomp+tls://)?"
        return NoConnection(Problem.CLOSED, f"The broker at {self.address} closed the connection{hint}")

    def silent(self, seconds: float) -> NoConnection:
        guess = "is it a STOMP broker?" if self.greeting is None else "the broker or the network hangs."
        return NoConnection(Problem.SILENT, f"{self.address} has said nothing for {seconds:g} seconds; {guess}")

    def _not_stomp(self, reason: str) -> NoConnection:
        return NoConnection(Problem.NO_STOMP, f"What answers at {self.address} does not speak STOMP: {reason}.")

    def render(self, command: str, headers: Headers, body: bytes = b"") -> bytes:
        return render_frame(command, headers, body, self.version)


def answer_headers(message: Mapping[str, str], version: Version) -> Headers:
    """What an ACK or NACK of this message names it by; empty if it needs none."""
    if version is Version.V1_2:
        return [("id", message["ack"])] if "ack" in message else []
    return [(name, message[name]) for name in ("message-id", "subscription") if name in message]


def _unescaped(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Of an ERROR before any version is agreed on. Brokers write it as in the newest, or it is shown as it is."""
    try:
        return {name: unescape(value, Version.V1_2) for name, value in headers.items()}
    except PeerViolation:
        return headers


def _require_server_command(head: Head) -> None:
    """The reader's check of each kind of frame, made before its body is read."""
    if head.command not in _SERVER_COMMANDS:
        raise PeerViolation(f"it says {head.command[:40]!r}")
