"""Headers of other brokers that would change a delivery, and have no effect here.

Law: headers in, nothing out, or a PeerViolation that says what to do instead. Ignoring such a header would deliver
other messages than asked for, to others, or at another time. Mere hints, such as `priority`, and headers that mean
nothing without queues, such as `JMSXGroupID`, are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.errors import PeerViolation
from stompbroker.sessions.header_values import shown, truth

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Whether a header with this value asks for what is not there.
_Asks = Callable[[str, str], bool]


class _Unsupported(NamedTuple):
    asks: _Asks
    #: What is not there, and what to do instead.
    reason: str


def _unless(*harmless: str) -> _Asks:
    return lambda _header, value: value.lower() not in harmless


_is_filled: Final = _unless("")

_DELAYED: Final = _Unsupported(
    _unless("", "0"), "messages cannot be delayed or repeated; send the message when it is due, without this header"
)
_ONE_OF_MANY: Final = _Unsupported(
    _unless("", "multicast"),
    "there are no queues yet, and every subscriber of a topic gets every message; leave the header out",
)
_FILTERED: Final = _Unsupported(
    _is_filled,
    "messages cannot be filtered by their headers; subscribe to a topic or pattern that has what you want, or "
    "filter what you get, without this header",
)
_EXCLUSIVE: Final = _Unsupported(
    truth, "subscribers cannot stand by for each other; use a durable subscription, which has one connection at a time"
)
_LIMITED: Final = _Unsupported(
    _is_filled, "a subscription cannot limit what is kept for it; let the publisher send ttl, and leave the header out"
)

UNSUPPORTED_IN_SEND: Final[Mapping[str, _Unsupported]] = {
    "AMQ_SCHEDULED_DELAY": _DELAYED,
    "AMQ_SCHEDULED_TIME": _DELAYED,
    "AMQ_SCHEDULED_PERIOD": _DELAYED,
    "AMQ_SCHEDULED_REPEAT": _DELAYED,
    "AMQ_SCHEDULED_CRON": _DELAYED,
    "x-delay": _DELAYED,
    "destination-type": _ONE_OF_MANY,
    "x-message-ttl": _Unsupported(_is_filled, "the life of a message is not given so; use ttl, in milliseconds"),
    "retain": _Unsupported(
        lambda _header, value: value in ("set", "remove"),
        "a topic keeps no last value; leave the header out, or have the operator set retain_messages for the topic",
    ),
    "reply-to": _Unsupported(
        lambda _header, value: value.startswith(("/temp-queue/", "/temp-topic/")),
        "there are no temporary destinations yet; subscribe to a topic with a name that nobody else has, and give that",
    ),
    "_AMQ_DUPL_ID": _Unsupported(
        _is_filled, "duplicates are not found; leave the header out, and have subscribers look for them"
    ),
}

UNSUPPORTED_IN_SUBSCRIBE: Final[Mapping[str, _Unsupported]] = {
    "selector": _FILTERED,
    "x-stream-filter": _FILTERED,
    "browser": _Unsupported(truth, "a topic cannot be browsed; to read what it retains, subscribe with from:earliest"),
    "subscription-type": _ONE_OF_MANY,
    "destination-type": _ONE_OF_MANY,
    "exclusive": _EXCLUSIVE,
    "activemq.exclusive": _EXCLUSIVE,
    "activemq.retroactive": _Unsupported(truth, "to read what a topic retains, subscribe with from:earliest"),
    "from-seq": _Unsupported(_unless("-1"), "to read what a topic retains, subscribe with from:offset=NUMBER"),
    "include-seq": _Unsupported(
        _is_filled, "a number is not given under another name; messages of a topic that retains some carry offset"
    ),
    "x-message-ttl": _LIMITED,
    "x-max-length": _LIMITED,
    "x-max-length-bytes": _LIMITED,
    "x-expires": _Unsupported(
        _is_filled,
        "a subscription cannot say how long it is kept; leave the header out, or have the operator set idle_delete_s",
    ),
    "x-dead-letter-exchange": _Unsupported(
        _is_filled, "there are no exchanges; leave the header out, and find dead letters at /topic/DLQ.<topic>"
    ),
}


def refuse_unsupported(headers: Mapping[str, str], unsupported: Mapping[str, _Unsupported]) -> None:
    """Raises PeerViolation."""
    for header in unsupported.keys() & headers.keys():
        value = headers[header]
        if unsupported[header].asks(header, value):
            raise PeerViolation(f"unsupported header {header!r}", f"{shown(value)}: {unsupported[header].reason}")
