"""Headers of other brokers that would change a delivery, and have no effect here.

Law: headers in, nothing out, or a PeerViolation that says what is not there and what to do instead. To ignore such a
header would deliver other messages than asked for, to others, or at another time. What is merely a hint, such as
`priority`, or means nothing where there are only topics, such as `JMSXGroupID`, is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.errors import PeerViolation
from stompbroker.sessions.header_values import shown, truth

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["refuse_unsupported_in_send", "refuse_unsupported_in_subscribe"]


#: Whether a header with this value asks for it.
_Asks = Callable[[str, str], bool]


class _Unsupported(NamedTuple):
    asks: _Asks
    #: What is not there, and what to do instead.
    reason: str


def _is_filled(_header: str, value: str) -> bool:
    return value != ""


def _is_more_than_zero(_header: str, value: str) -> bool:
    return value not in ("", "0")


def _is_not_multicast(_header: str, value: str) -> bool:
    return value.lower() not in ("", "multicast")


def _is_retained(_header: str, value: str) -> bool:
    return value in ("set", "remove")


def _is_temporary(_header: str, value: str) -> bool:
    return value.startswith(("/temp-queue/", "/temp-topic/"))


def _is_not_at_the_end(_header: str, value: str) -> bool:
    return value != "-1"


_DELAYED: Final = _Unsupported(
    _is_more_than_zero, "messages cannot be delayed or repeated; send the message when it is due, without this header"
)
_ONE_OF_MANY: Final = _Unsupported(
    _is_not_multicast,
    "there are no queues yet, and every subscriber of a topic gets every message; leave the header out",
)
_LIMITED: Final = _Unsupported(
    _is_filled, "a subscription cannot limit what is kept for it; let the publisher send ttl, and leave the header out"
)
_EXCLUSIVE: Final = _Unsupported(
    truth, "subscribers cannot stand by for each other; use a durable subscription, which has one connection at a time"
)

_IN_SEND: Final[Mapping[str, _Unsupported]] = {
    **dict.fromkeys(
        (
            "AMQ_SCHEDULED_DELAY",
            "AMQ_SCHEDULED_TIME",
            "AMQ_SCHEDULED_PERIOD",
            "AMQ_SCHEDULED_REPEAT",
            "AMQ_SCHEDULED_CRON",
            "x-delay",
        ),
        _DELAYED,
    ),
    "destination-type": _ONE_OF_MANY,
    "x-message-ttl": _Unsupported(_is_filled, "the life of a message is not given so; use ttl, in milliseconds"),
    "retain": _Unsupported(
        _is_retained,
        "a topic keeps no last value; leave the header out, or have the operator set retain_messages for the topic",
    ),
    "reply-to": _Unsupported(
        _is_temporary,
        "there are no temporary destinations yet; subscribe to a topic with a name that nobody else has, and give that",
    ),
    "_AMQ_DUPL_ID": _Unsupported(
        _is_filled, "duplicates are not found; leave the header out, and have subscribers look for them"
    ),
}

_IN_SUBSCRIBE: Final[Mapping[str, _Unsupported]] = {
    **dict.fromkeys(
        ("selector", "x-stream-filter"),
        _Unsupported(
            _is_filled,
            "messages cannot be filtered by their headers; subscribe to a topic or pattern that has what you want, or "
            "filter what you get, without this header",
        ),
    ),
    "browser": _Unsupported(truth, "a topic cannot be browsed; to read what it retains, subscribe with from:earliest"),
    **dict.fromkeys(("subscription-type", "destination-type"), _ONE_OF_MANY),
    **dict.fromkeys(("exclusive", "activemq.exclusive"), _EXCLUSIVE),
    "activemq.retroactive": _Unsupported(truth, "to read what a topic retains, subscribe with from:earliest"),
    "from-seq": _Unsupported(_is_not_at_the_end, "to read what a topic retains, subscribe with from:offset=NUMBER"),
    "include-seq": _Unsupported(
        _is_filled, "a number is not given under another name; messages of a topic that retains some carry offset"
    ),
    **dict.fromkeys(("x-message-ttl", "x-max-length", "x-max-length-bytes"), _LIMITED),
    "x-expires": _Unsupported(
        _is_filled,
        "a subscription cannot say how long it is kept; leave the header out, or have the operator set idle_delete_s",
    ),
    "x-dead-letter-exchange": _Unsupported(
        _is_filled, "there are no exchanges; leave the header out, and find dead letters at /topic/DLQ.<topic>"
    ),
}


def refuse_unsupported_in_send(headers: Mapping[str, str]) -> None:
    """Raises PeerViolation."""
    _refuse(_IN_SEND, headers)


def refuse_unsupported_in_subscribe(headers: Mapping[str, str]) -> None:
    """Raises PeerViolation."""
    _refuse(_IN_SUBSCRIBE, headers)


def _refuse(table: Mapping[str, _Unsupported], headers: Mapping[str, str]) -> None:
    for header in table.keys() & headers.keys():
        value = headers[header]
        if table[header].asks(header, value):
            raise PeerViolation(f"unsupported header {header!r}", f"{shown(value)}: {table[header].reason}")
