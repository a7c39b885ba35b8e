"""Connections, and how to end one.

Law: looks, and closes with an ERROR that says who wanted it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from stompbroker.clock import iso_time
from stompbroker.control.listing import LIST_PARAMS, Wanted, described, take_page
from stompbroker.control.request import NotFound
from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stompbroker.control.looking import Looking
    from stompbroker.control.request import Methods
    from stompbroker.ids import ConnectionId
    from stompbroker.sessions import Session

__all__ = ["ConnectionMethods"]


@final
class ConnectionMethods:
    def __init__(self, sessions: Mapping[ConnectionId, Session], looking: Looking) -> None:
        self._sessions = sessions
        self._looking = looking
        self._fields: Mapping[str, Callable[[Session], Any]] = {
            "id": lambda one: one.connection_id,
            "peer": lambda one: one.peer,
            "bytes_in": lambda one: one.bytes_in,
            "bytes_out": lambda one: one.outbox.sent_bytes,
            "connected_at": lambda one: one.connected_at_ns,
        }
        self.methods: Methods = {
            "connections": (self._list, LIST_PARAMS),
            "connection": (self._show, frozenset({"id"})),
            "close_connection": (self._close, frozenset({"id"})),
        }

    async def _list(self, **params: Any) -> dict[str, Any]:
        wanted = Wanted.read(params, tuple(self._fields))
        page = await take_page(
            wanted,
            self._sessions.values(),
            lambda one: [str(one.connection_id), one.peer, one.statistics().client_id or ""],
            self._fields[wanted.field],
            self._looking,
        )
        return page.described("connections", await described(_described, page.items, self._looking))

    async def _show(self, id: object = None) -> dict[str, Any]:
        return _described(self._find(id))

    async def _close(self, id: object = None) -> dict[str, Any]:
        session = self._find(id)
        shown = _described(session)
        session.fail(PeerViolation("connection closed", "an operator has closed it"))
        return shown

    def _find(self, connection_id: object) -> Session:
        for session in self._sessions.values():
            if session.connection_id == connection_id:
                return session
        raise NotFound(f"there is no connection {connection_id!r}")


def _described(session: Session) -> dict[str, Any]:
    statistics = session.statistics()
    return {
        "id": statistics.id,
        "peer": statistics.peer,
        "version": statistics.version,
        "client_id": statistics.client_id,
        "heart_beat_to_client_ms": statistics.heart_beat_to_client_ms,
        "heart_beat_from_client_ms": statistics.heart_beat_from_client_ms,
        "subscriptions": statistics.subscriptions,
        "in_flight": statistics.in_flight,
        "publishing_to": list(statistics.publishing_to),
        "bytes_in": statistics.bytes_in,
        "bytes_out": statistics.bytes_out,
        "connected_at": iso_time(statistics.connected_at_ns),
        "held_back": statistics.is_held_back,
        "late_acks": statistics.late_answers,
    }
