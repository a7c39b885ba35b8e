"""Connected clients: from checked frames to changes of topics, and to what the client is told.

Law: synchronous and without sockets; the worker gives it bytes and takes bytes from it.
"""

from stompbroker.sessions.outbox import Dispatch, FlushQueue, Outbox
from stompbroker.sessions.session import SMALL_PARTIAL_BYTES, Ending, Session
from stompbroker.sessions.session_context import RefusalPace, SessionContext, SessionSettings, SessionTimers
from stompbroker.sessions.starting_points import StartKind, read_start
from stompbroker.sessions.stomp_sink import StompSink

__all__ = [
    "SMALL_PARTIAL_BYTES",
    "Dispatch",
    "Ending",
    "FlushQueue",
    "Outbox",
    "RefusalPace",
    "Session",
    "SessionContext",
    "SessionSettings",
    "SessionTimers",
    "StartKind",
    "StompSink",
    "read_start",
]
