"""A SUBSCRIBE with `browser:true`, which looks at a queue and takes nothing.

Law: headers in; out comes what shows the queue and its end marker, or a PeerViolation that names what contradicts it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from stompbroker.delivery import Browsing, DestinationKind
from stompbroker.errors import PeerViolation
from stompbroker.message import Message, Origin
from stompbroker.sessions.headers import shown, truth
from stompbroker.stomp import message_tail, render_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.delivery import Consumer, Subscription
    from stompbroker.message import MessageIds

_BROWSER: Final = "browser"
#: Headers for what a browser is not: a member, a durable subscription, or one that begins elsewhere.
_NAMES: Final = (
    *("group", "activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name", "x-queue-name"),
    *("from", "x-stream-offset"),
)
#: The same, if they say true.
_FLAGS: Final = (
    *("shared", "exclusive", "activemq.exclusive", "single-active", "x-single-active-consumer", "durable"),
    *("persistent", "auto-delete", "no-local", "activemq.noLocal"),
)
_LOST: Final = "the store has lost what comes next in this queue"


def read_browser(headers: Mapping[str, str]) -> bool:
    """Whether a SUBSCRIBE asks for a browser. Raises PeerViolation if it asks for something else, too."""
    if not truth(_BROWSER, headers.get(_BROWSER, "false")):
        return False
    if headers.get("ack", "auto") != "auto":
        raise PeerViolation(
            "browser:true contradicts 'ack'",
            f"ack:{shown(headers['ack'])}, but a browser takes nothing, so there is nothing to acknowledge; use "
            "ack:auto, or leave the header out",
        )
    said = [name for name in _NAMES if name in headers]
    said += [name for name in _FLAGS if truth(name, headers.get(name, "false"))]
    said += ["ordering"] if headers.get("ordering", "none") != "none" else []
    if said:
        raise PeerViolation(
            f"browser:true contradicts {said[0]!r}",
            "a browser is on its own, sees a queue from its first message to its last, and takes nothing; leave the "
            f"header {said[0]!r} out, or browser:true",
        )
    return True


def browser_of(subscription: Subscription, message_ids: MessageIds) -> Browsing:
    """Raises PeerViolation if it is not at a queue."""
    pattern = subscription.pattern
    if pattern.kind is not DestinationKind.QUEUE:
        raise PeerViolation(
            "browser:true is for queues",
            f"{shown(subscription.destination)} is none; use /queue/NAME. What a topic retains is read with "
            "from:earliest",
        )
    return Browsing(partial(_end_marker, str(pattern), message_ids))


def check_takes(consumer: Consumer) -> Consumer:
    """Raise PeerViolation if one of its deliveries is answered although it is a browser."""
    if consumer.subscription.browser is not None:
        raise PeerViolation(
            "a browser's message needs no answer",
            f"the subscription {consumer.name!r} has browser:true and takes nothing, so ACK and NACK are not for its "
            "messages; to take them, subscribe without browser",
        )
    return consumer


def _end_marker(destination: str, message_ids: MessageIds, is_cut_short: bool) -> Message:
    """As ActiveMQ writes it, and whether messages are missing."""
    headers = [("destination", destination), (_BROWSER, "end")]
    headers += [("browser-incomplete", _LOST)] if is_cut_short else []
    tail = message_tail(message_ids.make(), render_headers(headers), b"")
    return Message(0, tail, Origin("", is_plain=b"\\r" not in tail), 0)
