"""The server's side of one STOMP connection, without I/O.

Law: connects the reader, the states, and the negotiation of version and heart-beats. Chunks of bytes in, checked frames
out. The session knows what frames do; the worker and the pacemaker know when to send and what timed out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.commands import State, check_before_greeting, check_of, next_state
from stompbroker.stomp.frame_reader import FrameReader
from stompbroker.stomp.frame_writer import render_frame
from stompbroker.stomp.heads import PADDING
from stompbroker.stomp.versions import Version, choose_version

if TYPE_CHECKING:
    from stompbroker.stomp.frame import Frame, Limits

#: Largest heart-beat interval accepted, in milliseconds (ten digits are 115 days): more is a mistake.
MAX_INTERVAL_MS: Final = 9_999_999_999

_CHECKS: Final = {version: check_of(version) for version in Version}


@final
@dataclass(frozen=True, slots=True)
class HeartBeats:
    """The negotiated intervals in milliseconds; 0 means none in that direction."""

    from_client_ms: int
    to_client_ms: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What the two sides agreed on when they connected."""

    version: Version
    heart_beats: HeartBeats
    #: CONNECT's headers, unescaped by definition.
    headers: dict[str, str]


@final
class Connection:
    """One client's protocol state.

    Invariants:
        greeting is set from the first CONNECT on, and with it the reader's version
        no frame is returned that is illegal in the state before it or lacks a header its version requires
    """

    __slots__ = ("_can_and_wants_ms", "_reader", "greeting", "state")

    def __init__(self, limits: Limits, *, heart_beat_send_ms: int, heart_beat_want_ms: int) -> None:
        self._reader = FrameReader(limits, check_before_greeting)
        self._can_and_wants_ms = (heart_beat_send_ms, heart_beat_want_ms)
        self.state = State.FRESH
        self.greeting: Greeting | None = None

    @property
    def version(self) -> Version:
        """The negotiated version; until then 1.0, the simplest, because an ERROR may have to be sent."""
        return self.greeting.version if self.greeting is not None else Version.V1_0

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete."""
        return self._reader.pending_bytes

    @property
    def has_more(self) -> bool:
        """Whether `receive(b"")` may return more frames."""
        return self._reader.has_more and self.state in (State.FRESH, State.OPEN)

    def receive(self, chunk: bytes) -> list[Frame]:
        """The frames this chunk completes. Raises PeerViolation, and from then on takes nothing more."""
        if self.state not in (State.FRESH, State.OPEN):
            return []
        try:
            frames = self._reader.receive(chunk)
            if frames:
                self._advance(frames[-1])
        except PeerViolation:
            self.state = State.FAILED
            raise
        return frames

    def fail(self) -> None:
        """The client was, or is about to be, sent an ERROR: take nothing more from it."""
        self.state = State.FAILED

    def render_connected(self, session: str, server: str) -> bytes:
        """An empty `server` is not sent."""
        assert self.greeting is not None
        headers = [("version", self.greeting.version.value), ("session", session)]
        if server:
            headers.append(("server", server))
        if self.greeting.version.has_heart_beats:
            headers.append(("heart-beat", "{},{}".format(*self._can_and_wants_ms)))
        return render_frame("CONNECTED", headers)

    def _advance(self, last: Frame) -> None:
        """Only CONNECT and DISCONNECT change the state, and the reader stops after them, so the last frame of a batch
        is enough."""
        self.state = next_state(self.state, last.command)
        if last.command in ("CONNECT", "STOMP"):
            self.greeting = self._greet(last.headers)
            self._reader.version = self.greeting.version
            self._reader.check = _CHECKS[self.greeting.version]

    def _greet(self, headers: dict[str, str]) -> Greeting:
        version = choose_version(headers.get("accept-version"))
        if version is None:
            supported = ",".join(known.value for known in Version)
            raise PeerViolation(
                "no common version",
                f"the client accepts {headers['accept-version']!r}; supported protocol versions, of which "
                f"accept-version must name one, are {supported}",
                headers=(("version", supported),),
            )
        if version.trims_values:
            headers = {name: value.strip(PADDING) for name, value in headers.items()}
        heart_beats = HeartBeats(0, 0)
        if version.has_heart_beats:
            heart_beats = negotiate(parse_heart_beat(headers.get("heart-beat")), self._can_and_wants_ms)
        return Greeting(version=version, heart_beats=heart_beats, headers=headers)


def parse_heart_beat(value: str | None) -> tuple[int, int]:
    """`<what I can send>,<what I want to get>` in milliseconds; `0,0` if missing. Raises PeerViolation."""
    if value is None:
        return 0, 0
    parts = [part.strip() for part in value.split(",")]
    if len(parts) == 2 and all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        return int(parts[0]), int(parts[1])
    raise PeerViolation(
        "malformed heart-beat header",
        f"{value!r} is not two whole numbers of milliseconds, 0 to {MAX_INTERVAL_MS}, such as 10000,10000",
    )


def negotiate(client: tuple[int, int], server: tuple[int, int]) -> HeartBeats:
    """STOMP 1.2, "Heart-beating": none if one side cannot or does not want to, else the larger of the two."""
    client_can, client_wants = client
    server_can, server_wants = server
    return HeartBeats(
        from_client_ms=max(client_can, server_wants) if client_can and server_wants else 0,
        to_client_ms=max(server_can, client_wants) if server_can and client_wants else 0,
    )
