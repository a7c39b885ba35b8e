"""Lists, shows and closes connections."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from stompbroker.clock import iso_time
from stompbroker.control.listing import described, list_params, page_of, take_page
from stompbroker.control.records import Record, Shown, alike
from stompbroker.control.request import Method, NotFound, Param
from stompbroker.errors import PeerViolation
from stompbroker.ids import ConnectionId

if TYPE_CHECKING:
    from stompbroker.control.parts import BrokerParts
    from stompbroker.sessions import Session

#: Topics a client publishes to that are listed.
MAX_SHOWN_TOPICS: Final = 20

_CONNECTION: Final[Record[Session]] = Record(
    "Connection",
    {
        "id": Shown(int, lambda _, session: session.connection_id),
        "peer": Shown(str),
        "endpoint": Shown(str, says="Where it came in."),
        "user": Shown(str | None, lambda _, session: session.client.grant.user or None, "Who has logged in."),
        "version": Shown(str | None),
        "client_id": Shown(str | None, lambda _, session: session.client.client_id),
        **alike(int, "heart_beat_to_client_ms", "heart_beat_from_client_ms"),
        "subscriptions": Shown(int, lambda _, session: len(session.commands.consumers)),
        "in_flight": Shown(int, lambda _, session: session.commands.consumers.in_flight),
        "publishing_to": Shown(
            [str],
            lambda _, session: [
                topic.destination.key for topic in islice(session.client.publishing_to, MAX_SHOWN_TOPICS)
            ],
        ),
        "bytes_in": Shown(int),
        "bytes_out": Shown(int, lambda _, session: session.outbox.sent_bytes),
        "connected_at": Shown(str, lambda _, session: iso_time(session.connected_at_ns)),
        "held_back": Shown(bool, lambda _, session: session.is_held_back),
        "late_acks": Shown(int, lambda _, session: session.commands.late_answers),
    },
)
_SORT_FIELDS: Final = _CONNECTION.sorted_by("id", "peer", "bytes_in", "bytes_out", "connected_at")


async def _list(broker: BrokerParts, **wanted: Any) -> dict[str, Any]:
    """Connections."""
    page = await take_page(
        broker,
        broker.sessions.values(),
        lambda session: [
            str(session.connection_id),
            session.peer,
            session.client.client_id or "",
            session.client.grant.user,
        ],
        _SORT_FIELDS,
        **wanted,
    )
    return page.answer("connections", await described(partial(_describe, broker), page.items, broker.looking))


async def _show(broker: BrokerParts, id: int) -> dict[str, Any]:
    """One connection."""
    return _describe(broker, _find(broker, id))


async def _close(broker: BrokerParts, id: int) -> dict[str, Any]:
    """Close a connection, with an ERROR that says so."""
    session = _find(broker, id)
    shown = _describe(broker, session)
    session.fail(PeerViolation("connection closed", "an operator has closed it"))
    return shown


def _find(broker: BrokerParts, connection_id: int) -> Session:
    session = broker.sessions.get(ConnectionId(connection_id))
    if session is None:
        raise NotFound(f"there is no connection {connection_id}")
    return session


def _describe(broker: BrokerParts, session: Session) -> dict[str, Any]:
    greeting = session.protocol.greeting
    return _CONNECTION.describe(
        broker,
        session,
        version=None if greeting is None else greeting.version.value,
        heart_beat_to_client_ms=0 if greeting is None else greeting.heart_beats.to_client_ms,
        heart_beat_from_client_ms=0 if greeting is None else greeting.heart_beats.from_client_ms,
    )


_ID: Final = {"id": Param(says="The number of a connection.", kind=int, low=1, is_required=True)}
METHODS: Final = {
    "connections": Method(_list, page_of("connections", _CONNECTION), list_params(_SORT_FIELDS)),
    "connection": Method(_show, _CONNECTION, _ID),
    "close_connection": Method(_close, _CONNECTION, _ID),
}
