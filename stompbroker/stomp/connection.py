"""The server's side of one STOMP connection, without I/O: which command is legal when and what it must carry, and the
negotiation of version and heart-beats.

Law: chunks of bytes in, checked frames out, by tables of the specification. The session knows what frames do; the
worker and the pacemaker know when to send and what timed out.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.frame import Version, choose_version
from stompbroker.stomp.frame_reader import FrameReader
from stompbroker.stomp.frame_writer import render_frame
from stompbroker.stomp.heads import PADDING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stompbroker.stomp.frame import Frame, Head, Limits
    from stompbroker.stomp.heads import HeadAllowance


#: Largest heart-beat interval accepted, in milliseconds (ten digits are 115 days): more is a mistake.
MAX_INTERVAL_MS: Final = 9_999_999_999
#: Bytes that are kept of whoever is not logged in: an incomplete CONNECT, or what came behind one while it is checked.
#: Clients that do not wait for CONNECTED send a few frames.
MAX_EARLY_BYTES: Final = 64 * 1024


@final
class State(Enum):
    FRESH = "waiting for CONNECT"
    AUTHENTICATING = "CONNECT is being checked"
    OPEN = "connected"
    DRAINING = "the client said DISCONNECT"
    FAILED = "the client was sent an ERROR"

    #: As in `Version`: looked up for every head.
    __hash__ = object.__hash__


_WHILE_OPEN = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT")

_LEGAL: Mapping[State, Mapping[str, State]] = {
    State.FRESH: {"CONNECT": State.AUTHENTICATING, "STOMP": State.AUTHENTICATING},
    # What a client sends behind its CONNECT is kept, and read when it is admitted.
    State.AUTHENTICATING: {},
    State.OPEN: dict.fromkeys(_WHILE_OPEN, State.OPEN) | {"DISCONNECT": State.DRAINING},
    # STOMP 1.2, "DISCONNECT": clients must not send more. What they send all the same is not read.
    State.DRAINING: {},
    State.FAILED: {},
}


def _in_all(*names: str) -> dict[Version, tuple[str, ...]]:
    return dict.fromkeys(Version, names)


#: STOMP 1.2, "Client Frames", and the older versions: the headers each command must have. An absent version does not
#: define the command.
_REQUIRED: Mapping[str, Mapping[Version, tuple[str, ...]]] = {
    # `accept-version` and `host` are required by 1.2 on paper, but 1.0 clients know neither and stompjs omits `host`.
    "CONNECT": _in_all(),
    "STOMP": _in_all(),
    "SEND": _in_all("destination"),
    "SUBSCRIBE": _in_all("destination", "id") | {Version.V1_0: ("destination",)},
    # 1.0 names a subscription by `id` or by `destination`; the session says so when both are missing.
    "UNSUBSCRIBE": {Version.V1_0: (), Version.V1_1: ("id",), Version.V1_2: ("id",)},
    "ACK": {Version.V1_0: ("message-id",), Version.V1_1: ("message-id", "subscription"), Version.V1_2: ("id",)},
    "NACK": {Version.V1_1: ("message-id", "subscription"), Version.V1_2: ("id",)},
    "BEGIN": _in_all("transaction"),
    "COMMIT": _in_all("transaction"),
    "ABORT": _in_all("transaction"),
    "DISCONNECT": _in_all(),
}


def next_state(state: State, command: str) -> State:
    """Where `command` leads from `state`. Raises PeerViolation when it leads nowhere."""
    try:
        return _LEGAL[state][command]
    except KeyError:
        pass
    if state is State.FRESH:
        raise PeerViolation("not connected", f"the first frame must be CONNECT or STOMP, not {command[:40]!r}")
    if command in _LEGAL[State.FRESH]:
        raise PeerViolation("already connected", f"{command} may be sent only once, as the first frame")
    raise PeerViolation("connection is closing", f"{command} is not allowed any more: {state.value}")


def check_before_greeting(head: Head) -> None:
    """Raise PeerViolation unless the frame may be the first one."""
    next_state(State.FRESH, head.command)


def check_of(version: Version) -> Callable[[Head], None]:
    """The check of heads that the reader has not seen before, once this version is negotiated. It must not know the
    connection, which keeps its reader: that would be a reference cycle."""
    required_by_command = {
        command: required[version]
        for command, required in _REQUIRED.items()
        if version in required and command in _LEGAL[State.OPEN]
    }

    def check(head: Head) -> None:
        required = required_by_command.get(head.command)
        if required is None or not all(name in head.headers for name in required):
            _refuse(head, version)

    return check


def _refuse(head: Head, version: Version) -> None:
    """Raise the PeerViolation that says what is wrong with a head on an open connection."""
    by_version = _REQUIRED.get(head.command)
    if by_version is None:
        raise PeerViolation(
            "unknown command", f"{head.command[:40]!r} is not a command; a client may send {', '.join(_REQUIRED)}"
        )
    next_state(State.OPEN, head.command)
    if version not in by_version:
        defined_in = ", ".join(known.value for known in by_version)
        raise PeerViolation(
            f"{head.command} is not part of STOMP {version.value}",
            f"this connection negotiated STOMP {version.value}; {head.command} exists in {defined_in}",
        )
    required = by_version[version]
    missing = [name for name in required if name not in head.headers]
    raise PeerViolation(
        f"{head.command} needs the header {missing[0]!r}",
        f"in STOMP {version.value} {head.command} must carry: {', '.join(required)}; missing: {', '.join(missing)}",
    )


def forbid_body(frame: Frame, version: Version) -> None:
    """Raise PeerViolation if a frame that may have none carries a body. 1.0 says that such a body is ignored."""
    if frame.body and version is not Version.V1_0:
        raise PeerViolation(
            f"{frame.command} must not have a body",
            f"{len(frame.body)} bytes came with it; only SEND may carry a body",
            receipt=frame.receipt,
        )


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
@dataclass(slots=True, eq=False)
class Connection:
    """One client's protocol state.

    Invariants:
        greeting is set from the first CONNECT on, and with it the reader's version
        no byte behind CONNECT is looked at before `admit`
        no frame is returned that is illegal in the state before it or lacks a header its version requires
    """

    limits: InitVar[Limits]
    _can_send_ms: int
    _wants_ms: int
    allowance: InitVar[HeadAllowance | None] = None
    _reader: FrameReader = field(init=False)
    state: State = State.FRESH
    greeting: Greeting | None = None

    def __post_init__(self, limits: Limits, allowance: HeadAllowance | None) -> None:
        self._reader = FrameReader(limits, check_before_greeting, allowance)

    @property
    def version(self) -> Version:
        """The negotiated version; until then 1.0, the simplest, because an ERROR may have to be sent."""
        return self.greeting.version if self.greeting is not None else Version.V1_0

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete."""
        return self._reader.pending_bytes

    @property
    def awaited_bytes(self) -> int:
        """How many more bytes complete it; 0 if nobody knows. Of a stranger nothing large is awaited."""
        return self._reader.awaited_bytes if self.state is State.OPEN else 0

    @property
    def has_more(self) -> bool:
        return self._reader.has_more and self.state in (State.FRESH, State.OPEN)

    def receive(self, chunk: bytes) -> list[Frame]:
        """The frames this chunk completes. Raises PeerViolation, and from then on takes nothing more."""
        if self.state is State.AUTHENTICATING:
            self._reader.keep(chunk)
            self.check_early()
            return []
        if self.state not in (State.FRESH, State.OPEN):
            return []
        try:
            frames = self._reader.receive(chunk)
            if frames:
                self._advance(frames[-1])
            elif self.state is State.FRESH:
                self.check_early()
        except PeerViolation:
            self.state = State.FAILED
            raise
        return frames

    def check_early(self) -> None:
        """Raise PeerViolation if a stranger has sent too much: as CONNECT, or behind one that has to be checked."""
        if self._reader.pending_bytes > MAX_EARLY_BYTES:
            self.state = State.FAILED
            raise PeerViolation(
                "too much before CONNECTED",
                f"more than {MAX_EARLY_BYTES} bytes came; CONNECT has no body, and what follows it has to wait for "
                "CONNECTED",
            )

    def admit(self) -> None:
        """Its CONNECT was checked: from now on its frames are read."""
        if self.state is State.AUTHENTICATING:
            self.state = State.OPEN

    def fail(self) -> None:
        """The client was, or is about to be, sent an ERROR: take nothing more from it."""
        self.state = State.FAILED

    def close(self) -> None:
        """The client is gone."""
        self._reader.close()

    def render_connected(self, session: str, server: str) -> bytes:
        """An empty `server` is not sent."""
        assert self.greeting is not None
        headers = [("version", self.greeting.version.value), ("session", session)]
        if server:
            headers.append(("server", server))
        if self.greeting.version.has_heart_beats:
            headers.append(("heart-beat", f"{self._can_send_ms},{self._wants_ms}"))
        return render_frame("CONNECTED", headers)

    def _advance(self, last: Frame) -> None:
        """The last frame is enough: only CONNECT and DISCONNECT change the state, and the reader stops after them."""
        command = last.command
        self.state = next_state(self.state, command)
        if command in ("CONNECT", "STOMP"):
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
            heart_beats = negotiate(parse_heart_beat(headers.get("heart-beat")), (self._can_send_ms, self._wants_ms))
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
