"""The server's side of one STOMP connection, without I/O.

Law: ties reader, states and version negotiation together. Chunks of bytes in, checked frames out; what the frames
mean to topics is the session's business, when anything is sent or times out is the worker's and the pacemaker's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.commands import CLIENT_COMMANDS, REQUIRED_HEADERS, require_headers
from stompbroker.stomp.frame_reader import FrameReader
from stompbroker.stomp.frame_writer import render_frame
from stompbroker.stomp.head_parser import PADDING
from stompbroker.stomp.heartbeat import HeartBeats, negotiate, parse_heart_beat
from stompbroker.stomp.states import LEGAL, State, next_state
from stompbroker.stomp.versions import Version, choose_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.stomp.frame import Frame, Head
    from stompbroker.stomp.limits import Limits

__all__ = ["Connection", "Greeting"]


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
        self._reader = FrameReader(limits, _check_before_greeting)
        self._can_and_wants_ms = (heart_beat_send_ms, heart_beat_want_ms)
        self.state = State.FRESH
        self.greeting: Greeting | None = None

    @property
    def version(self) -> Version:
        """The negotiated version; 1.0, the simplest, as long as there is none (an ERROR may have to be sent)."""
        return self.greeting.version if self.greeting is not None else Version.V1_0

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has not come in full."""
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
        """The client was, or is about to be, sent an ERROR: nothing it says counts any more."""
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
        """Only CONNECT and DISCONNECT change the state, and the reader stops after them: looking at the last frame
        of a batch is enough."""
        self.state = next_state(self.state, last.command)
        if last.command in ("CONNECT", "STOMP"):
            self.greeting = self._greet(last)
            self._reader.version = self.greeting.version
            self._reader.check = _CHECKS[self.greeting.version]

    def _greet(self, connect: Frame) -> Greeting:
        version = choose_version(connect.headers.get("accept-version"))
        if version is None:
            supported = ",".join(known.value for known in Version)
            raise PeerViolation(
                "no common version",
                f"the client accepts {connect.headers['accept-version']!r}; supported protocol versions, of which "
                f"accept-version must name one, are {supported}",
                headers=(("version", supported),),
            )
        headers = connect.headers
        if version.trims_values:
            headers = {name: value.strip(PADDING) for name, value in headers.items()}
        heart_beats = HeartBeats(0, 0)
        if version.has_heart_beats:
            heart_beats = negotiate(parse_heart_beat(headers.get("heart-beat")), self._can_and_wants_ms)
        return Greeting(version=version, heart_beats=heart_beats, headers=headers)


def _check_before_greeting(head: Head) -> None:
    """Raise PeerViolation unless the frame may be the first one."""
    if head.command not in CLIENT_COMMANDS:
        raise PeerViolation("not connected", f"the first frame must be CONNECT or STOMP, not {head.command[:40]!r}")
    next_state(State.FRESH, head.command)
    require_headers(head, Version.V1_0)


def _check_of(version: Version) -> Callable[[Head], None]:
    """What the reader calls, once this version is agreed on, for every head it has not met before. It knows no
    connection: that keeps its reader, and the two would keep each other."""
    required_by_command = REQUIRED_HEADERS[version]
    allowed = {name: required_by_command[name] for name in LEGAL[State.OPEN] if name in required_by_command}

    def check(head: Head) -> None:
        required = allowed.get(head.command)
        if required is not None and all(name in head.headers for name in required):
            return
        if head.command in CLIENT_COMMANDS:
            next_state(State.OPEN, head.command)
        require_headers(head, version)

    return check


_CHECKS: Final = {version: _check_of(version) for version in Version}
