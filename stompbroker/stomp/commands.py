"""The commands a client may send: when, and with which headers.

Law: tables of the specification, and the functions that check a head or a frame against them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stompbroker.stomp.frame import Frame, Head


@final
class State(Enum):
    FRESH = "waiting for CONNECT"
    OPEN = "connected"
    DRAINING = "the client said DISCONNECT"
    FAILED = "the client was sent an ERROR"

    #: As in `Version`: looked up for every head.
    __hash__ = object.__hash__


_WHILE_OPEN = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT")

_LEGAL: Mapping[State, Mapping[str, State]] = {
    State.FRESH: {"CONNECT": State.OPEN, "STOMP": State.OPEN},
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
    """The check of every head that the reader has not seen before, once this version is negotiated.

    It must not know the connection, which keeps its reader: that would be a reference cycle.
    """
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
