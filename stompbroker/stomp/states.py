"""Which command is legal in which state of a connection.

Law: the table and the one function that consults it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, final

from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LEGAL", "State", "next_state"]


@final
class State(Enum):
    FRESH = "waiting for CONNECT"
    OPEN = "connected"
    DRAINING = "the client said DISCONNECT"
    FAILED = "the client was sent an ERROR"

    #: As in `Version`: looked up for every head.
    __hash__ = object.__hash__


_WHILE_OPEN = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT")

LEGAL: Mapping[State, Mapping[str, State]] = {
    State.FRESH: {"CONNECT": State.OPEN, "STOMP": State.OPEN},
    State.OPEN: dict.fromkeys(_WHILE_OPEN, State.OPEN) | {"DISCONNECT": State.DRAINING},
    # STOMP 1.2, "DISCONNECT": clients must not send more; what comes all the same is not even read.
    State.DRAINING: {},
    State.FAILED: {},
}


def next_state(state: State, command: str) -> State:
    """Where `command` leads from `state`. Raises PeerViolation when it leads nowhere."""
    try:
        return LEGAL[state][command]
    except KeyError:
        pass
    if state is State.FRESH:
        raise PeerViolation("not connected", f"the first frame must be CONNECT or STOMP, not {command}")
    if command in LEGAL[State.FRESH]:
        raise PeerViolation("already connected", f"{command} may be sent only once, as the first frame")
    raise PeerViolation("connection is closing", f"{command} is not allowed any more: {state.value}")
