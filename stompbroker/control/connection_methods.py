"""Lists, shows and closes connections."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from stompbroker.clock import iso_time
from stompbroker.control.listing import described, list_params, take_page
from stompbroker.control.request import Method, NotFound, Param
from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from stompbroker.control.listing import SortFields
    from stompbroker.control.parts import BrokerParts
    from stompbroker.sessions import Session

#: Topics a client publishes to that are listed.
MAX_SHOWN_TOPICS: Final = 20

_SORT_FIELDS: Final[SortFields[Session]] = {
    "id": lambda _, session: session.connection_id,
    "peer": lambda _, session: session.peer,
    "bytes_in": lambda _, session: session.bytes_in,
    "bytes_out": lambda _, session: session.outbox.sent_bytes,
    "connected_at": lambda _, session: session.connected_at_ns,
}


async def _list(broker: BrokerParts, **wanted: Any) -> dict[str, Any]:
    """Connections."""
    page = await take_page(
        broker,
        broker.sessions.values(),
        lambda session: [str(session.connection_id), session.peer, session.client.client_id or ""],
        _SORT_FIELDS,
        **wanted,
    )
    return page.answer("connections", await described(_described, page.items, broker.looking))


async def _show(broker: BrokerParts, id: int) -> dict[str, Any]:
    """One connection."""
    return _described(_find(broker, id))


async def _close(broker: BrokerParts, id: int) -> dict[str, Any]:
    """Close a connection, with an ERROR that says so."""
    session = _find(broker, id)
    shown = _described(session)
    session.fail(PeerViolation("connection closed", "an operator has closed it"))
    return shown


def _find(broker: BrokerParts, connection_id: int) -> Session:
    for session in broker.sessions.values():
        if session.connection_id == connection_id:
            return session
    raise NotFound(f"there is no connection {connection_id!r}")


def _described(session: Session) -> dict[str, Any]:
    greeting, consumers = session.protocol.greeting, session.commands.consumers
    return {
        "id": session.connection_id,
        "peer": session.peer,
        "version": None if greeting is None else greeting.version.value,
        "client_id": session.client.client_id,
        "heart_beat_to_client_ms": 0 if greeting is None else greeting.heart_beats.to_client_ms,
        "heart_beat_from_client_ms": 0 if greeting is None else greeting.heart_beats.from_client_ms,
        "subscriptions": len(consumers),
        "in_flight": consumers.in_flight,
        "publishing_to": [topic.destination.key for topic in islice(session.client.publishing_to, MAX_SHOWN_TOPICS)],
        "bytes_in": session.bytes_in,
        "bytes_out": session.outbox.sent_bytes,
        "connected_at": iso_time(session.connected_at_ns),
        "held_back": session.is_held_back,
        "late_acks": session.commands.late_answers,
    }


_ID: Final = {"id": Param(says="The number of a connection.", kind=int, low=1, is_required=True)}
METHODS: Final = {
    "connections": Method(_list, list_params(_SORT_FIELDS)),
    "connection": Method(_show, _ID),
    "close_connection": Method(_close, _ID),
}
