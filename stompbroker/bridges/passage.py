"""The headers of a message on its way from one broker to another.

Law: pure; the headers of a MESSAGE in, the destination and headers of a SEND out. What the broker of origin says of
one delivery stays there. From one of ours a message keeps where it was published first, and the path it took; the path
gets the id of the store that it leaves. So every broker can tell what was there already, and the same message that
comes over two ways. Other brokers carry both along; but where a message was published first is not believed from there,
since anybody who may publish there could have written it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOPIC, _QUEUE = "/topic/", "/queue/"
#: What says how a message was sent or delivered there. The last ones would be refused by brokers of ours.
_LEFT_BEHIND: Final = frozenset(
    {
        *("destination", "message-id", "subscription", "ack", "redelivered", "delivery-count", "redelivery-reason"),
        *("first-delivered-at", "offset", "missing-before", "content-length", "receipt", "transaction", "report"),
        *(
            "mandatory",
            "outcome-to",
            "persistent",
            "expires",
            "ttl",
            "expiration",
            "producer",
            "producer-epoch",
            "producer-seq",
        ),
        *("bridge-offset", "bridge-published", "bridge-expires", "bridge-path", "bridge-origin"),
        *("AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT"),
        *("AMQ_SCHEDULED_CRON", "x-delay", "x-message-ttl", "destination-type", "retain", "_AMQ_DUPL_ID"),
    }
)
#: Store ids, as brokers of ours take them: at most 32. Where anybody may write anything, others are no path.
_PATH: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}(,[A-Za-z0-9_.:-]{1,64}){0,31}", re.ASCII)
#: Digits of a time in milliseconds that brokers of ours take.
_MAX_DIGITS: Final = 16
#: The broker that it comes from has made such a message: it is not the one that it was made of.
_MADE_HERE: Final = "returned"
#: Where only the connection that wrote it gets answers.
_OWN_TEMPORARY: Final = "/temp-"


class Passage(NamedTuple):
    destination: str
    headers: dict[str, str]
    #: When it was published where it comes from, in milliseconds since 1970; None if that is not said.
    published_ms: int | None


def onward(headers: Mapping[str, str], *, pattern: str, from_ours: bool, to_ours: bool, now_ms: int) -> Passage:
    """`pattern`: what it was subscribed by. Raises ValueError for a MESSAGE that a broker of ours cannot have sent."""
    kept = {name: value for name, value in headers.items() if name not in _LEFT_BEHIND}
    if kept.get("reply-to", "").startswith(_OWN_TEMPORARY):
        del kept["reply-to"]
    kept.setdefault("origin-message-id", headers.get("message-id", ""))
    expires_ms: int | None = None
    if from_ours:
        if "bridge-offset" not in headers:
            raise ValueError("its messages do not say where they are in its store; is it a stompbroker?")
        here = headers["bridge-offset"]
        is_made_here = _MADE_HERE in headers
        path = [] if is_made_here or "bridge-path" not in headers else headers["bridge-path"].split(",")
        kept["bridge-path"] = ",".join([*path, here.partition("/")[0]])
        kept["bridge-origin"] = here if is_made_here else headers.get("bridge-origin", here)
        if "bridge-expires" in headers:
            expires_ms = int(headers["bridge-expires"])
        if headers.get("persistent", "true").lower() == "false":
            kept["persistent"] = "false"
        if to_ours:
            producer, _, offset = kept["bridge-origin"].rpartition("/")
            kept |= {"producer": producer, "producer-epoch": "1", "producer-seq": str(int(offset) + 1)}
    else:
        if _PATH.fullmatch(headers.get("bridge-path", "")):
            kept["bridge-path"] = headers["bridge-path"]
        expires_ms = _milliseconds(headers.get("expires", "")) or None
        if headers.get("persistent", "true").lower() not in ("true", "1"):
            kept["persistent"] = "false"
    if not to_ours and kept.pop("persistent", "true") == "true":
        # Without it they take a message for one that need not be kept. RabbitMQ fails at persistent:false.
        kept["persistent"] = "true"
    if expires_ms is not None:
        # ActiveMQ and ours know the first one, RabbitMQ the second.
        kept["expires"] = str(expires_ms)
        if not to_ours:
            kept["expiration"] = str(max(1, expires_ms - now_ms))
    published_ms = _milliseconds(headers.get("bridge-published" if from_ours else "timestamp", ""))
    destination = headers.get("destination", "")
    if from_ours:
        destination = _in_full(destination, pattern)
    return Passage(destination, kept, published_ms)


def _milliseconds(text: str) -> int | None:
    """None for what is no time."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _in_full(destination: str, pattern: str) -> str:
    """What has no prefix means a topic there, or a queue: the pattern that matches it tells."""
    if destination.startswith("/"):
        return destination
    return (_QUEUE if pattern.startswith(_QUEUE) else _TOPIC) + destination
