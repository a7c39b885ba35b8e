"""Where a new subscription begins in what its topic has retained.

Law: from what a SUBSCRIBE asks for to an offset of its topic, found at once: a time is looked up among the marks of
what is retained, and what lies between the mark and the time is stepped over when it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.delivery import Replay
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.sessions.starting_points import StartKind

if TYPE_CHECKING:
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.sessions.subscribe_headers import SubscribeRequest

__all__ = ["find_start"]


def find_start(request: SubscribeRequest, around: SessionContext) -> Replay | None:
    """None if it begins with what comes. Raises PeerViolation."""
    start = request.start
    if start is None or start.kind is StartKind.LATEST:
        return None
    if not request.pattern.is_exact:
        raise PeerViolation(
            "replay needs one topic",
            f"{request.destination!r} is a pattern; only of one topic it can be said where to begin (`from`); "
            "leave that out",
        )
    now_ns = around.clock.now_ns()
    topic = around.registry.topic(request.pattern, now_ns)
    if topic.retained is None:
        raise PeerViolation(
            "topic retains nothing",
            f"{topic.name!r} keeps no messages for later subscribers, so there is nothing to begin `from`: leave that "
            "out, or have the operator set retain_s, retain_bytes or retain_messages for the topic",
        )
    kept_from = topic.collected_up_to
    match start.kind:
        case StartKind.EARLIEST:
            return Replay(kept_from)
        case StartKind.OFFSET:
            if start.offset > topic.log.end_offset:
                raise PeerViolation(
                    "offset not reached yet",
                    f"the next message of {topic.name!r} gets offset {topic.log.end_offset}, not {start.offset}; "
                    "begin there at the latest",
                )
            return Replay(Offset(max(start.offset, kept_from)), asked_for=Offset(start.offset))
        case _:
            since_ns = start.at_ns if start.kind is StartKind.TIME else now_ns - start.age_ns
            return Replay(max(kept_from, topic.retained.offset_before(since_ns)), since_ns=since_ns)
